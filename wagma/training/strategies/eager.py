"""Eager-SGD: gradients averaged with those that are there, late ones later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

from torch.optim import Optimizer

from wagma.collectives import MajorityAllreduce, SoloAllreduce
from wagma.training.flat import FlatParameters
from wagma.training.ranks import Waits
from wagma.training.strategies.collective import Collective
from wagma.training.strategies.results import GradientResults
from wagma.units import plural

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm

__all__ = ["EagerSGD"]

Variant = Literal["solo", "majority"]


class EagerSGD(GradientResults):
    """Averages the gradients of the ranks that are there; what comes too late joins the next ones.

    Of Li et al., "Taming Unbalanced Training Workloads in Deep Learning with Partial Collective
    Operations" (PPoPP 2020). A version starts with one rank: with any ("solo"), or with one that
    every rank draws alike ("majority": on average half of the others have come before it). A rank
    that comes later finds the version done; its gradient is carried, that is added to its next one.
    Each result is the sum of what was there divided by the number of ranks, sum(w g) / P with
    weights, and `Outcome.weight` that number.

    No result is lost, so that the models are equal at equal versions, bit for bit: a rank that is
    behind gets all results in one step and applies each as a step of the inner optimizer of its
    own, in order. `version` then advances by as many: loops count it. What has to happen once per
    version is a hook of the inner optimizer's step, a learning-rate schedule for example::

        opt.register_step_post_hook(lambda *_: schedule.step())

    A closure is evaluated once per step, and the loss that it returns is this rank's own. LBFGS,
    which evaluates it several times and compares, is refused when the optimizer is made: the
    gradients that come back belong to other points.

    `synchronize` averages and applies what is carried, so that no gradient is lost, and then
    averages the parameters. A parameter that has no gradient on any rank keeps ``grad = None``.

    Args:
        comm: the ranks that train together; "auto": those that the launcher
            started, over MPI or as torchrun does; see `PartialAllreduce`.
        variant: "solo" or "majority".
        grace: seconds that a version stays open for ranks that are about to arrive, or "auto". The
            paper's algorithm to the letter has 0.
        window: versions that a rank may be ahead of the slowest, and results that are kept;
            None: 8.
        seed: of the draws of "majority", the same on all ranks.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Raises:
        what `Algorithm` does. What is wrong with the other arguments is raised, on every rank, when
        the optimizer is made.
    """

    def __init__(
        self,
        comm: Comm = "auto",
        variant: Variant = "solo",
        *,
        grace: float | Literal["auto"] = "auto",
        window: int | None = None,
        seed: int = 0,
        **waits: Unpack[Waits],
    ) -> None:
        super().__init__(comm, **waits)
        self.variant = variant
        self._grace = grace
        self._window = window
        self._seed = seed
        self._inner: Optimizer | None = None
        self._carries = False  # a gradient of this rank is in no result yet

    def arguments(self) -> dict[str, object]:
        """Return the own arguments, checked."""
        if self.variant not in get_args(Variant):
            known = " or ".join(map(repr, get_args(Variant)))
            raise ValueError(f"variant={self.variant!r} must be {known}")
        return {"variant": self.variant}

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Make the collective."""
        kind = SoloAllreduce if self.variant == "solo" else MajorityAllreduce
        memory = self._like(parameters.layout)
        collective = kind(
            self.comm,
            memory,
            grace=self._grace,
            window=self._window,
            seed=self._seed,
            **self.waits,
        )
        self._place(parameters, memory)
        return (collective,)

    def _contribute(self, inner: Optimizer, loss: Any) -> None:  # noqa: ARG002
        """Contributes the gradients and what is carried, and applies the results."""
        self.gradients.gather(None)
        self.gradients.weigh(self.weight)
        self._average(inner, 1.0)

    def passive_step(self, inner: Optimizer) -> None:
        """Contributes what is carried, or nothing, and applies the results."""
        self.gradients.clear()
        # P divides, not those that have samples; what is told has to be heard.
        counts = self._carries or self.weight == 0 or self.stops.told
        self._average(inner, float(counts))

    def _average(self, inner: Optimizer, weight: float) -> None:
        self._inner = inner
        self.outcome = self.collective.allreduce(self.gradients.memory, weight)
        self._carries = self.outcome.late and weight > 0
        self._apply(inner)

    def synchronize(self, *, final: bool = True) -> None:
        """Applies what is carried, then averages the parameters: one version."""
        self._flush()
        self._apply(self._inner)
        super().synchronize(final=final)
        self.count_versions(-1)

    def restart(self, version: int) -> None:  # noqa: ARG002
        """Drops what is carried, of models of before."""
        self._flush()

    def _flush(self) -> None:
        """Averages what is carried, over all ranks."""
        self.gradients.memory.zero_()
        self.outcome = self.collective.sync(self.gradients.memory)
        self._carries = False

    def __repr__(self) -> str:
        return f"EagerSGD({plural(self.size, 'rank')}, {self.variant!r})"
