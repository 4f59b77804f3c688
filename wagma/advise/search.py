"""The search for the method that a training should use. Pure."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import SupportsIndex

import numpy as np
from scipy.optimize import minimize_scalar

from wagma.advise.advice import GAIN, Advice, Proposal
from wagma.advise.candidates import Candidate, candidates, left_out, synchronous
from wagma.advise.network import network_of, ranks_per_node
from wagma.profile import TrainingProfile
from wagma.simulate import Network, Simulated, Workload, simulate

VERSIONS = 300  # of a simulation; profiles of fewer steps are repeated in blocks
_BETTER = 1.01  # by which a tuned parameter has to beat the library's own choice
_TUNED = 5  # so many of the best algorithms have their continuous parameter tuned
_MANY = 16  # times the ranks of the profile


def advise(
    profile: TrainingProfile,
    ranks: SupportsIndex | None = None,
    *,
    time_to_loss: bool = False,
    noise_scale: float | None = None,
    network: Network | str | None = None,
    seed: int = 0,
    advance: Callable[[], object] = lambda: None,
) -> Advice:
    """Simulate every method with the times of a profile, and return the three best ones.

    Methods are ordered by throughput, the gradients that count per second. With `time_to_loss`
    convergence counts too, as far as theory prices it: the throughput of gradients that are t
    versions old is divided by 1 + t, as the learning rate has to be (Arjevani et al., 2020, "A
    Tight Convergence Analysis for Stochastic Gradient Descent with Delayed Updates"); methods of
    high risk, and those whose models are more than the noise of an update apart, are left out.
    Equal arguments give equal advice. Takes seconds for tens of ranks, minutes for 1,024.

    Args:
        profile: of a training.
        ranks: how many ranks to predict for; None: those of the profile.
        time_to_loss: whether risks to convergence count.
        noise_scale: of the gradients, in local batches, >= 0, by which the goodput counts with
            `time_to_loss` in place of the throughput; None: unknown.
        network: a `Network`; the name of one of `NETWORKS`, whose pattern is scaled to the
            profile's times; None: "node" or "ethernet", by the profile's hosts.
        seed: of all draws.
        advance: called when a candidate is done.

    Raises:
        ValueError: the profile has too few steps, or one rank; a number of ranks below 2; a noise
            scale below 0, or without `time_to_loss`.
        KeyError: there is no such network.
    """
    if noise_scale is not None and not time_to_loss:
        raise ValueError("noise_scale counts with time_to_loss=True alone: give both")
    cause = profile.diagnosis().words
    workload = Workload.from_profile(profile, ranks, VERSIONS, seed)
    if workload.ranks < 2:
        raise ValueError("ranks is 1: one rank waits for nobody; profile or name 2 or more")
    if isinstance(network, Network):
        used, whence = network, "as given"
    else:
        used, whence = network_of(profile, network)
    searched = _Search(workload, used, seed, noise_scale)
    now = searched.proposal(synchronous(), 0.0)
    families: dict[str, tuple[float, Candidate]] = {}
    refused: dict[str, str] = {}
    for candidate in candidates(workload):
        try:
            made = searched.proposal(candidate, now.throughput)
        except ValueError as error:  # more ranks than the engine knows
            refused.setdefault(candidate.family, str(error))
            advance()
            continue
        score = made.score(time_to_loss=time_to_loss)
        if score > families.get(made.family, (-1.0, candidate))[0]:
            families[made.family] = (score, candidate)
        advance()
    promising = sorted(families.values(), key=lambda found: found[0], reverse=True)[:_TUNED]
    tuned = [searched.proposal(searched.tuned(best), now.throughput) for _, best in promising]
    least = (1 + GAIN) * now.score(time_to_loss=time_to_loss)
    best = sorted(tuned, key=lambda p: p.score(time_to_loss=time_to_loss), reverse=True)
    return Advice(
        ranks=workload.ranks,
        cause=cause,
        now=now,
        measured=profile.ranks * profile.steps / float(profile.durations.sum(axis=1).max()),
        method=profile.method,
        best=tuple(p for p in best if p.score(time_to_loss=time_to_loss) >= least)[:3],
        time_to_loss=time_to_loss,
        network=whence,
        left_out=(*left_out(workload), *refused.values()),
        warnings=tuple(_warnings(profile, workload.ranks, searched.warnings, network is None)),
    )


class _Search:
    def __init__(
        self, workload: Workload, network: Network, seed: int, noise_scale: float | None = None
    ) -> None:
        self.workload, self.network, self.seed = workload, network, seed
        self.noise_scale = noise_scale
        self.warnings: set[str] = set()

    def proposal(self, candidate: Candidate, now: float) -> Proposal:
        """Return what is predicted of a candidate; `now`: throughput to compare with, or 0."""
        run = self._run(candidate, consensus=True)
        waited = float(run.waited.sum()) / (run.seconds * self.workload.ranks)
        return Proposal(
            family=candidate.family,
            code=candidate.code(),
            throughput=run.throughput,
            gain=run.throughput / now - 1 if now else 0.0,
            late=run.late,
            waited=min(waited, 1.0),
            staleness=run.staleness,
            dropped=run.dropped,
            consensus=run.consensus,
            risk=_risk(run),
            needs=candidate.needs,
            goodput=None if self.noise_scale is None else run.goodput(self.noise_scale),
        )

    def _run(self, candidate: Candidate, *, consensus: bool) -> Simulated:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run = simulate(
                candidate.method, self.workload, self.network, self.seed, consensus=consensus
            )
        self.warnings.update(str(warning.message) for warning in caught)
        return run

    def tuned(self, candidate: Candidate) -> Candidate:
        """Return the candidate with a continuous parameter, if that beats the library's choice."""
        if candidate.tunes is None:
            return candidate
        low, high = self._range(candidate.tunes)

        def with_value(logarithm: float) -> Candidate:
            value = float(np.exp(logarithm))
            is_grace = candidate.tunes == "grace"
            chosen = (
                replace(candidate.method, grace=value)
                if is_grace
                else replace(candidate.method, threshold=value)
            )
            return replace(candidate, method=chosen)

        def cost(logarithm: float) -> float:
            return -self._run(with_value(logarithm), consensus=False).throughput

        found = minimize_scalar(
            cost, bounds=(np.log(low), np.log(high)), method="bounded", options={"maxiter": 8}
        )
        usual = self._run(candidate, consensus=False).throughput
        return with_value(found.x) if -found.fun > _BETTER * usual else candidate

    def _range(self, name: str) -> tuple[float, float]:
        """Return where the best value of a parameter may be, in seconds."""
        compute = self.workload.compute
        mean = float(compute.mean())
        if name == "threshold":
            return 0.3 * mean, 1.5 * float(compute.max())
        spread = float(np.median(compute.max(axis=0) - compute.min(axis=0)))
        return 1e-5 * mean, max(spread, 2e-5 * mean)


def _risk(run: Simulated) -> str:
    """Return how much of the convergence is at stake, in words."""
    consensus = run.consensus or 0.0
    if run.staleness == 0 and run.dropped <= 0.005 and run.consensus == 0:
        grade = "none"
    elif run.staleness <= 1 and run.dropped <= 0.1 and consensus <= 0.5:
        grade = "low"
    elif run.staleness <= 4 and run.dropped <= 0.3 and consensus <= 2:
        grade = "medium"
    else:
        grade = "high"
    least = "at least " if run.consensus is None else ""
    return f"{least}{grade}: {run.note}"


def _warnings(
    profile: TrainingProfile, ranks: int, simulated: set[str], guessed: bool
) -> Iterator[str]:
    yield from sorted(simulated)
    if guessed and ranks > profile.ranks == ranks_per_node(profile):
        yield (
            f"the profile has one host, and all {ranks} ranks are taken to share its memory: if "
            "these are on several hosts, name their network, as in --network ethernet"
        )
    if ranks > _MANY * profile.ranks:
        yield (
            f"{ranks} ranks are copies of the {profile.ranks} that were profiled: delays that are "
            "rarer than these show are not in the prediction"
        )
    if profile.hook_share > 0.01:
        yield f"recording took {100 * profile.hook_share:.1f}% of the profiled time"
