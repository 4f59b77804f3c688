"""K-sync SGD without a server: an update takes the gradients of the first K ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex, Unpack

from torch.optim import Optimizer

from wagma.collectives import QuorumAllreduce, QuorumMismatchError, SegmentError
from wagma.inject.checks import check_count
from wagma.theory.ksync.methods import default_window
from wagma.training.clock import Clock, Lead
from wagma.training.flat import FlatParameters
from wagma.training.ranks import Waits
from wagma.training.strategies.collective import Collective
from wagma.training.strategies.gradients import GradientResults
from wagma.training.strategies.nonfinite import Nonfinite, NonfiniteGradients
from wagma.units import plural, size_text

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm


class KSync(GradientResults):
    """Average the gradients of the first k ranks; drop late gradients.

    K-sync SGD of Dutta et al., "Slow and Stale Gradients Can Win the Race" (AISTATS 2018), without
    its parameter server: every rank has the model and makes every update, so that no rank's link is
    a bottleneck. A version averages the n >= k gradients present when the k-th arrives, sum(w g) /
    sum(w) with weights. Each is computed at the newest model: no gradient is stale.

    A late rank gets all updates that it missed, and applies each in order as a step of the inner
    optimizer; its own gradient is dropped. `version` then advances by as many. Models are
    bit-identical at equal versions. With k = P it is AllreduceSGD.

    A gradient that will be dropped need not be completed. A loop over micro-batches can check
    that::

        for x, y in micro_batches:
            if opt.should_stop():
                break
            loss(model(x), y).backward()
        opt.step()

    Without the check slow ranks compute gradients in vain, and an update takes longer than the k-th
    order statistic of the compute times.

    Register what has to happen once per version as a hook of the inner step, see `EagerSGD`.

    Args:
        comm: the ranks that train together; "auto": those that the launcher started, over MPI or as
            torchrun does; see `PartialAllreduce`.
        k: gradients that start an update, 1 to the number of ranks. It may change between steps,
            see `k`, unless it is the number of ranks.
        window: versions that a rank may be ahead of the slowest, and results that are kept for
            that one; None: ceil(8 P / k) with the initial k.
        on_nonfinite: how to treat a gradient with a NaN or an infinity. "error": raise
            FloatingPointError on its rank, which contributes nothing; "skip": leave it out.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Raises:
        what `Algorithm` does. Creating the optimizer raises errors in the other arguments, on every
        rank.
    """

    _who_sets_k = "all ranks have to set it for the same version"

    def __init__(
        self,
        comm: Comm,
        k: SupportsIndex,
        *,
        window: int | None = None,
        on_nonfinite: Nonfinite = "error",
        **waits: Unpack[Waits],
    ) -> None:
        super().__init__(comm, **waits)
        self._k: SupportsIndex = k
        self._window = window
        self._nonfinite = NonfiniteGradients(on_nonfinite)
        self._k_varies = False  # whether k was set later, or a schedule may lower it
        self._in_place = False  # whether k stays at all ranks: the collective keeps no updates

    @property
    def k(self) -> int:
        """Gradients that start the next version that this rank calls.

        Setting it is no collective call, but all ranks need the same k in a version: otherwise
        every rank gets QuorumMismatchError, in that call or in the next one.

        An algorithm created with k = P keeps no updates for slow ranks, so its k cannot change. To
        start with k = P and lower it later, create the algorithm with a smaller k, and set k to P
        before the first step.

        Raises:
            TypeError, ValueError: the value is no int, out of its range, or cannot change.
        """
        return index(self._k)

    @k.setter
    def k(self, k: SupportsIndex) -> None:
        self._change_k(k)

    def _change_k(self, k: SupportsIndex) -> None:
        k = check_count("k", k, 1, self.size)
        if self._in_place and k < self.size:
            raise ValueError(
                f"k={k}: this {type(self).__name__} was made with k = all {self.size} ranks, keeps "
                "no updates for slow ranks, and cannot lower k: make it with a smaller k, and "
                "raise it to all ranks before the first step"
            )
        self._k = k
        self._k_varies = True
        if self._collectives:
            self.collective.k = self._k

    @property
    def collective(self) -> QuorumAllreduce:
        """The collective that averages; its own counter starts at 0 in every process."""
        return self._connected(QuorumAllreduce)

    def arguments(self) -> dict[str, object]:
        """Return the checked arguments."""
        self._k = check_count("k", self._k, 1, self.size)
        self._in_place = self._k == self.size and not self._k_varies
        self._nonfinite.check()
        return {"k": self._k, "on_nonfinite": self._nonfinite.what}

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Create the collective."""
        self._lead = Lead(Clock(parameters.layout.device))
        memory = self._like(parameters.layout)
        if self._window is None:  # the first time only: new parameters do not change the window
            self._window = default_window(self.size, self.k)
        # A collective created with all ranks could never lower k, see QuorumAllreduce.k.
        first = self.k if self._in_place else min(self.k, max(1, self.size - 1))
        with self._explaining():
            collective = QuorumAllreduce(
                self.comm, memory, first, grace=0, window=self._window, **self.waits
            )
        collective.k = self.k
        self._place(parameters, memory)
        return (collective,)

    def synchronize(self, *, final: bool = True) -> None:
        """Average the parameters, one version."""
        with self._explaining():
            super().synchronize(final=final)

    def _leave(self) -> None:
        """Close the collective."""
        with self._explaining():
            super()._leave()

    def should_stop(self) -> bool:
        """Return whether the version that this rank calls next has started without this rank."""
        self._lead.keep()
        return self.collective.pinned()

    def passive_step(self, inner: Optimizer) -> None:
        """Contribute no gradient, and apply the results."""
        self.gradients.clear()
        self._average(inner, self.stops.weigh(0.0))

    def _contribute(self, inner: Optimizer, loss: Any) -> None:  # noqa: ARG002
        self.gradients.gather(self._number())
        if self._nonfinite.passes(self.gradients, self):
            self._average(inner, self.weight)
        else:
            self.passive_step(inner)

    def _number(self) -> float:
        """Return the number to average beside the gradients, see `FlatGradients.gather`."""
        return 0.0

    def _average(self, inner: Optimizer, weight: float) -> None:
        with self._explaining():
            self.outcome = self.collective.allreduce(self.gradients.memory, weight)
        self._apply(inner)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Add to errors of the collective what they mean for this algorithm."""
        try:
            yield
        except QuorumMismatchError as error:
            raise QuorumMismatchError(
                f"{error}. The quorum is opt.algorithm.k: {self._who_sets_k}"
            ) from error
        except SegmentError as error:
            raise SegmentError(
                f"{error}. {type(self).__name__} keeps up to `window` updates for slow ranks: "
                "lower window, or take wagma.ParameterServerSGD, which keeps none"
            ) from error

    def stats(self) -> dict[str, int | float]:
        """Return the k of the next version, and the number of skipped gradients."""
        return {"k": self.k, "nonfinite": self._nonfinite.skipped}

    def state(self) -> dict[str, Any]:
        """Return k."""
        return {"k": self.k}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore k."""
        self._change_k(state["k"])

    def __repr__(self) -> str:
        kept = ""
        if self._gradients is not None:
            window = self.collective.options.window or 0
            size = size_text(index(window) * self._gradients.memory.nbytes)
            kept = f", window={window}, which keeps up to {size} of updates"
        return f"{type(self).__name__}({plural(self.size, 'rank')}, k={self._k}{kept})"
