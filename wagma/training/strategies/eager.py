"""Eager-SGD: averages of the gradients that arrive in time; late gradients join the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

from torch.optim import Optimizer

from wagma.collectives import MajorityAllreduce, SoloAllreduce
from wagma.training.flat import FlatParameters
from wagma.training.ranks import Waits
from wagma.training.strategies.collective import Collective
from wagma.training.strategies.gradients import GradientResults
from wagma.units import plural

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm

Variant = Literal["solo", "majority"]


class EagerSGD(GradientResults):
    """Average the gradients that arrive in time; a late gradient is added to its rank's next one.

    From Li et al., "Taming Unbalanced Training Workloads in Deep Learning with Partial Collective
    Operations" (PPoPP 2020). The arrival of one rank starts a version: of any rank ("solo"), or of
    one drawn alike on all ranks ("majority": half of the other ranks arrive before it on average).
    A rank that arrives later is late: its gradient is carried, which means added to its next one.
    A result is the sum of the contributions divided by the number of ranks, sum(w g) / P with
    weights; `Outcome.weight` is the divisor.

    No result is lost: a rank that is behind gets all missed results in one call, and applies each
    in order as a separate step of the inner optimizer. So models are bit-identical at equal
    versions. `version` then advances by more than one: let loops count it. Register what has to
    happen once per version, such as a learning-rate schedule, as a hook of the inner step::

        opt.register_step_post_hook(lambda *_: schedule.step())

    A step evaluates a closure once and returns its loss on this rank. Optimizers that evaluate a
    closure several times, such as LBFGS, are refused when the optimizer is created: the averaged
    gradients belong to other points.

    `synchronize` averages and applies carried gradients, so that none is lost, and then averages
    the parameters. A parameter without a gradient on any rank keeps ``grad = None``.

    Args:
        comm: the ranks that train together; "auto": those that the launcher started, over MPI or as
            torchrun does; see `PartialAllreduce`.
        variant: "solo" or "majority".
        grace: seconds that a version waits for ranks that are about to arrive, or "auto". The
            paper's algorithm has 0.
        window: versions that a rank may be ahead of the slowest, and results that are kept;
            None: 8.
        seed: seed of the draws of "majority", the same on all ranks.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Raises:
        what `Algorithm` does. Creating the optimizer raises errors in the other arguments, on every
        rank.
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
        self._carries = False  # whether a gradient of this rank is in no result yet

    def arguments(self) -> dict[str, object]:
        """Return the checked arguments."""
        if self.variant not in get_args(Variant):
            known = " or ".join(map(repr, get_args(Variant)))
            raise ValueError(f"variant={self.variant!r} must be {known}")
        return {"variant": self.variant}

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Create the collective."""
        kind = SoloAllreduce if self.variant == "solo" else MajorityAllreduce
        memory = self._like(parameters.layout)
        collective = kind(
            self.comm, memory, grace=self._grace, window=self._window, seed=self._seed, **self.waits
        )
        self._place(parameters, memory)
        return (collective,)

    def _contribute(self, inner: Optimizer, loss: Any) -> None:  # noqa: ARG002
        """Contribute the gradients and what is carried, and apply the results."""
        self.gradients.gather(None)
        self.gradients.weigh(self.weight)
        self._average(inner, 1.0)

    def passive_step(self, inner: Optimizer) -> None:
        """Contribute what is carried, or nothing, and apply the results."""
        self.gradients.clear()
        # The divisor is P even without samples, and a stop request must reach the others.
        counts = self._carries or self.weight == 0 or self.stops.requested
        self._average(inner, float(counts))

    def _average(self, inner: Optimizer, weight: float) -> None:
        self._inner = inner
        self.outcome = self.collective.allreduce(self.gradients.memory, weight)
        self._carries = self.outcome.late and weight > 0
        self._apply(inner)

    def synchronize(self, *, final: bool = True) -> None:
        """Average and apply what is carried, then average the parameters: one version."""
        self._flush()
        self._apply(self._inner)
        super().synchronize(final=final)
        self.count_versions(-1)

    def restart(self, version: int) -> None:  # noqa: ARG002
        """Drop what is carried: it belongs to earlier models."""
        self._flush()

    def _flush(self) -> None:
        """Average what is carried over all ranks."""
        self.gradients.memory.zero_()
        self.outcome = self.collective.sync(self.gradients.memory)
        self._carries = False

    def __repr__(self) -> str:
        return f"EagerSGD({plural(self.size, 'rank')}, {self.variant!r})"
