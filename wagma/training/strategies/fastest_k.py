"""Adaptive fastest-k SGD: K-sync SGD with a k that grows during the training."""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, SupportsIndex, Unpack

import torch

from wagma.inject.checks import check_count
from wagma.theory.fastest_k import AdaptiveK
from wagma.training.flat import FlatParameters
from wagma.training.ordered import ordered_dot
from wagma.training.ranks import Waits
from wagma.training.strategies.collective import Collective
from wagma.training.strategies.ksync import KSync
from wagma.training.strategies.nonfinite import Nonfinite

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm

Schedule = Literal["additive", "double", "bound-optimal"]


class Progress(NamedTuple):
    """What all ranks know alike after an update; the k of the next update follows from it.

    Attributes:
        version: version of the update.
        seconds: seconds since the training began, the mean over the ranks in the update; as precise
            as the parameters' dtype.
        inner_product: inner product, in float64, of its gradient and the previous update's; None
            for the first update, and if it is NaN.
        k: k of the update.
    """

    version: int
    seconds: float
    inner_product: float | None
    k: int


class FastestK(KSync):
    """`KSync` that begins with few gradients per update and takes more as the error falls.

    Adaptive fastest-k SGD of Kas Hanna et al. (2022), without a master: a small k makes fast
    updates, a large k a low error floor. By Algorithm 1 k grows when more than `burnin` updates
    were made with it, and the inner product of successive averaged gradients was negative more
    often than positive by more than `thresh`. All ranks have the same gradients and sum the product
    in one fixed order, so that they decide alike without a message.

    Args:
        comm: the ranks that train together; "auto": those that the launcher started, over MPI or as
            torchrun does; see `PartialAllreduce`.
        k0: k of the first update, 1 to the number of ranks.
        step: what "additive" adds to k.
        thresh: how far negative products have to outnumber the others before k grows.
        burnin: updates with the same k that have to be exceeded before k grows.
        k_max: the largest k, k0 to the number of ranks; None: the number of ranks.
        schedule: "additive": k + step (section V-A). "double": 2 k (V-B). "bound-optimal": k + 1 at
            each of `switch_times`, computed by `wagma.theory.fastest_k.switch_times` (Theorem 1).
            Or a function that returns k for a `Progress`: the same function on all ranks;
            checkpoints do not save its state.
        switch_times: seconds from the start of the training, ascending; for "bound-optimal" only.
        window: see `KSync`; None: computed from k0.
        on_nonfinite: see `KSync`.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Raises:
        what `KSync` does.
    """

    _who_sets_k = (
        "the schedule sets it, and has to be one function of its Progress alone on all ranks"
    )

    def __init__(
        self,
        comm: Comm,
        k0: SupportsIndex,
        *,
        step: SupportsIndex = 1,
        thresh: float = 10,
        burnin: float = 200,
        k_max: SupportsIndex | None = None,
        schedule: Schedule | Callable[[Progress], int] = "additive",
        switch_times: Sequence[float] | None = None,
        window: int | None = None,
        on_nonfinite: Nonfinite = "error",
        **waits: Unpack[Waits],
    ) -> None:
        super().__init__(comm, k0, window=window, on_nonfinite=on_nonfinite, **waits)
        self._options = {"step": step, "thresh": thresh, "burnin": burnin, "k_max": k_max}
        self._schedule = schedule
        self._k_varies = callable(schedule)  # the other schedules never lower k
        self._switch_times = switch_times
        self._k0 = self._k_max = 0
        self._policy: AdaptiveK | None = None
        self._last: torch.Tensor | None = None  # the gradient of the latest update
        self._seconds = 0.0  # of training up to the latest update
        self._began = 0.0

    @property
    def k(self) -> int:
        """Gradients that start the next version that this rank calls; the schedule sets it."""
        return index(self._k)

    @k.setter
    def k(self, k: SupportsIndex) -> None:
        raise AttributeError(f"k={k!r}: the schedule of FastestK sets it; KSync takes one from you")

    def arguments(self) -> dict[str, object]:
        """Return the checked arguments."""
        inherited = super().arguments()
        options: dict[str, Any] = self._options
        k0, schedule = self.k, self._schedule
        adaptive = schedule if schedule in ("additive", "double") else "additive"
        policy = AdaptiveK(k0, self.size, **options, schedule=adaptive)
        name = getattr(schedule, "__qualname__", None) or repr(schedule)
        if schedule in ("additive", "double"):
            self._policy = policy
        elif schedule != "bound-optimal" and not callable(schedule):
            raise ValueError(
                f"schedule={schedule!r} must be 'additive', 'double', 'bound-optimal' or a "
                "function of a wagma.training.strategies.fastest_k.Progress"
            )
        k_max = self.size if options["k_max"] is None else int(options["k_max"])
        self._k_max, self._k0 = k_max, k0
        return {
            **inherited,
            **{key: float(options[key]) for key in ("step", "thresh", "burnin")},
            "k_max": k_max,
            "schedule": name,
            "switch_times": self._check_times(),
        }

    def _check_times(self) -> list[float] | None:
        if (self._schedule == "bound-optimal") != (self._switch_times is not None):
            raise ValueError(
                f"schedule={self._schedule!r} and switch_times={self._switch_times!r}: "
                "'bound-optimal' needs the times of wagma.theory.fastest_k.switch_times(), and no "
                "other schedule takes times"
            )
        if self._switch_times is None:
            return None
        times = [float(time) for time in self._switch_times]
        if any(math.isnan(time) for time in times) or times != sorted(times):
            raise ValueError(f"switch_times={times} must be seconds in ascending order")
        self._switch_times = times
        return times

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Create the collective."""
        if self._last is not None:  # new parameters follow the old ones
            grown = self._last.new_zeros(parameters.layout.numel)
            grown[: self._last.numel()] = self._last
            self._last = grown
        if parameters.layout.dtype.itemsize == 2 and self._switch_times is not None:
            raise ValueError(
                f"schedule='bound-optimal' with parameters of {parameters.layout.dtype}: the "
                "seconds that ranks share would have two digits; pass 'additive' or 'double'"
            )
        self._began = time.monotonic() - self._seconds
        return super().connect(parameters)

    def _number(self) -> float:
        return time.monotonic() - self._began

    def _observe(self, version: int, number: float) -> None:
        """Choose the k of the next version."""
        self._seconds = number
        gradient = self.gradients.content
        product = None
        if self._last is None:
            self._last = gradient.clone()
        else:
            product = ordered_dot(self._last, gradient)
            self._last.copy_(gradient)
        product = None if product is None or math.isnan(product) else product
        self._change_k(self._choose(Progress(version, number, product, self.k)))

    def _choose(self, progress: Progress) -> int:
        if self._policy is not None:
            return self._policy.update(progress.inner_product)
        if callable(self._schedule):
            return check_count("k of the schedule", self._schedule(progress), 1, self._k_max)
        times = self._switch_times
        assert times is not None
        return min(self._k0 + bisect_right(times, progress.seconds), self._k_max)

    # ---- checkpoints -----------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """Return k, the schedule's state, and the gradient of the latest update."""
        last = None if self._last is None else self._last.clone()
        return {**self._numbers(), "last": last}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        last = state["last"]
        self._last = None if last is None else last.to(self.parameters.flat)
        self._restore({name: value for name, value in state.items() if name != "last"})

    def _numbers(self) -> dict[str, Any]:
        policy = None if self._policy is None else self._policy.state()
        return {"k": self.k, "seconds": self._seconds, "policy": policy}

    def _restore(self, numbers: Mapping[str, Any]) -> None:
        self._seconds = numbers["seconds"]
        self._began = time.monotonic() - self._seconds
        if self._policy is not None:
            self._policy.load_state(numbers["policy"])
        self._change_k(numbers["k"])

    def after_load(self) -> None:
        """Use rank 0's k if the ranks saved at different versions."""
        with self.meet() as meeting:
            states = meeting.exchange(self._numbers, last=True)
        if any(state != states[0] for state in states):
            self._restore(states[0])
            self._last = None
