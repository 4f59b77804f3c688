"""The methods that are tried for a training: parameters, and the code of each. Pure."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from wagma.collectives.topology import default_group_size
from wagma.simulate import Method, Workload, method

# A rank is always slower if its mean time differs so much from the fastest rank's.
UNEVEN = 1.05

Call = Callable[[Method], str]


@dataclass(frozen=True)
class Candidate:
    """A method, and Python that makes its algorithm.

    Attributes:
        family: candidates of one family differ in parameters only.
        method: what is simulated.
        call: returns the expression of the algorithm, given the method with its final parameters.
        tunes: the continuous parameter that a search may set: "grace", "threshold", or None.
        needs: what else the training loop has to do, in words.
    """

    family: str
    method: Method
    call: Call
    tunes: str | None = None
    needs: str = ""

    def code(self) -> tuple[str, str, str]:
        """Return the lines that switch it on; see `Proposal.code`."""
        return (
            "import wagma",
            f"algorithm = {self.call(self.method)}",
            "optimizer = wagma.DistributedOptimizer(optimizer, algorithm, model=model)",
        )


_VERSIONS = "let the loop count `optimizer.version`: it may advance by more than one"
_CURRENT = Candidate("AllreduceSGD", method("allreduce"), lambda _: 'wagma.AllreduceSGD("auto")')


def synchronous() -> Candidate:
    """Return the method with which others are compared: each step waits for all ranks."""
    return _CURRENT


def candidates(workload: Workload) -> Iterator[Candidate]:
    """Yield what is tried for the workload, of two ranks or more."""
    yield from _models(workload.ranks)
    yield from _gradients(workload.ranks)
    yield from _served(workload.ranks - 1)
    if _parts(workload) > 1:
        yield from _stopping(_parts(workload))
    if _is_uneven(workload):
        yield Candidate(
            "Cannikin",
            method("cannikin"),
            lambda _: f'wagma.Cannikin("auto", batch_range={workload.ranks} * batch_size)',
            needs="give its sampler to the data loader: docs/cannikin.md",
        )


def left_out(workload: Workload) -> Iterator[str]:
    """Yield the reasons for which methods are not tried."""
    if _parts(workload) < 2:
        yield (
            "DropCompute and Anytime Minibatch stop between the micro-batches of a step, and the "
            "profile has steps of one: accumulate gradients over two or more"
        )
    if not _is_uneven(workload):
        yield "Cannikin gives slow ranks smaller batches, and no rank is always slower here"


def _parts(workload: Workload) -> int:
    return 1 if workload.micro_batches is None else workload.micro_batches.shape[2]


def _is_uneven(workload: Workload) -> bool:
    means = workload.compute.mean(axis=1)
    return bool(means.max() > UNEVEN * np.median(means))


def _models(ranks: int) -> Iterator[Candidate]:
    """Yield the methods that average models."""
    for period in (2, 5, 10, 20):
        yield Candidate(
            "LocalSGD",
            method(f"local{period}"),
            lambda m: f'wagma.LocalSGD("auto", {m.sync_period})',
        )
    usual = default_group_size(ranks)
    for size in sorted({min(2, ranks), usual, min(2 * usual, ranks)}):
        for period in (5, 10, 20):
            yield Candidate(
                "WAGMA",
                method("wagma", group_size=size, sync_period=period),
                lambda m: (
                    f'wagma.WAGMA("auto", group_size={m.group_size}, sync_period={m.sync_period}'
                    f"{_grace(m)})"
                ),
                "grace",
            )
        yield Candidate(
            "WAGMA, fast-forward",
            method("wagma-ff", group_size=size),
            lambda m: (
                f'wagma.WAGMA("auto", group_size={m.group_size}, sync_period={m.sync_period}, '
                f'missed="fast-forward"{_grace(m)})'
            ),
            "grace",
            _VERSIONS,
        )
    yield Candidate(
        "ADPSGD", method("adpsgd"), lambda m: f'wagma.ADPSGD("auto"{_grace(m)})', "grace"
    )
    yield Candidate("DPSGD", method("dpsgd"), lambda _: 'wagma.DPSGD("auto")')
    yield Candidate("SGP", method("sgp1"), lambda _: 'wagma.SGP("auto")')


def _gradients(ranks: int) -> Iterator[Candidate]:
    """Yield the methods that average gradients without waiting for all."""
    for variant in ("solo", "majority"):
        yield Candidate(
            f"EagerSGD, {variant}",
            method(f"eager-{variant}"),
            lambda m: f'wagma.EagerSGD("auto", "{m.name.removeprefix("eager-")}"{_grace(m)})',
            "grace",
            _VERSIONS,
        )
    for k in sorted({ranks // 2, ranks * 3 // 4, ranks * 9 // 10, ranks - 1} - {0, ranks}):
        yield Candidate(
            "KSync",
            method(f"ksync{k}"),
            lambda m: f'wagma.KSync("auto", {m.quorum})',
            None,
            _VERSIONS,
        )
        yield Candidate(
            "KAsync",
            method(f"kasync{k}"),
            lambda m: f'wagma.KAsync("auto", {m.quorum})',
            None,
            f"skip the backward pass while `optimizer.pending`; {_VERSIONS}",
        )


def _served(learners: int) -> Iterator[Candidate]:
    """Yield the methods with a parameter server beside so many learners."""
    for name in ("k-sync", "k-async", "k-batch-async"):
        for k in sorted({max(1, learners // 2), max(1, learners * 3 // 4)}):
            yield Candidate(
                f"ParameterServerSGD, {name}",
                method(f"{name}{k}"),
                lambda m: f'wagma.ParameterServerSGD("auto", "{m.server}", k={m.quorum})',
                None,
                "start the ranks with MPI; the last one serves and trains no more (the batches are "
                "those of the others): skip the backward pass while `optimizer.pending`; "
                f"{_VERSIONS}",
            )


def _stopping(parts: int) -> Iterator[Candidate]:
    """Yield the methods that end a step before its last micro-batch."""
    for preempt in (False, True):
        yield Candidate(
            "DropCompute, preempting" if preempt else "DropCompute",
            method("dropcompute-preempt" if preempt else "dropcompute"),
            lambda m: (
                f'wagma.DropCompute(wagma.AllreduceSGD("auto"), {parts}'
                + ("" if m.threshold == "auto" else f", threshold={m.threshold:.3g}")
                + (", preempt=True)" if m.stop == "preempt" else ")")
            ),
            "threshold",
            "iterate over `optimizer.micro_batches(...)`: docs/dropcompute.md",
        )


def _grace(m: Method) -> str:
    return "" if m.grace == "auto" else f", grace={m.grace:.2g}"
