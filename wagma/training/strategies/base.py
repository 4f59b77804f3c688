"""A training algorithm: what its collective averages before and after an inner step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch.optim import Optimizer

from wagma.collectives import Outcome
from wagma.training.closures import step_with
from wagma.training.flat import FlatParameters
from wagma.training.ranks import Waits
from wagma.training.strategies.collective import Collective
from wagma.training.strategies.ending import AgreedEnd

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm
    from wagma.theory.cannikin import Plan


class Algorithm(AgreedEnd, ABC):
    """Decide what a `wagma.DistributedOptimizer` averages, and when; each serves one optimizer.

    A step of the optimizer calls `before_step` (gradients are computed), steps the inner optimizer,
    and calls `after_step` (parameters are updated). Most algorithms average in one of the two. An
    algorithm with another number of inner steps overrides `step`.

    Args:
        comm: the ranks that train together; "auto": those that the launcher started, over MPI or as
            torchrun does; see `PartialAllreduce`. Creating the optimizer is collective over them.
        timeout: seconds until a wait ends in StallError; None: never.
        stall_warning: seconds between warnings about a stuck wait, 0.1 at least; None: none.
        transport: "shm", "mpi" or "auto", see `wagma.collectives.Options`.

    Attributes:
        rank: this process's rank.
        size: the number of ranks.
        outcome: outcome of the latest version; None before the first version, and after a version
            that called no collective, such as a local step.
        weight: weight of this rank's gradient in the next step; `DistributedOptimizer.weight` sets
            it, and the algorithm passes it to its collective.
        wait_avoiding: a rank that calls early does not wait for the others, but makes them late. A
            rank whose data ran out then keeps the pace of its last steps.
        joins: ranks whose data ran out can take part in the steps of the others.
        default_weight: value to which `weight` returns after each step.
        made_with: what `arguments` returned when the optimizer was created; empty before.

    Raises:
        what `PartialAllreduce` raises for a wrong `comm`.

    Not thread-safe; different optimizers may be used by different threads.
    """

    wait_avoiding: bool = False
    joins: bool = True
    default_weight: float = 1.0
    _where_to_clip = (
        "averages models, and gradients are each rank's own: clip them after backward() and before "
        "step(), as in torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)"
    )

    def __init__(self, comm: Comm = "auto", **waits: Unpack[Waits]) -> None:
        super().__init__(comm, **waits)
        self.weight = self.default_weight
        self.outcome: Outcome | None = None
        self.made_with: dict[str, object] = {}
        self._base = 0
        self._parameters: FlatParameters | None = None
        self._closed = False

    def attach(self, parameters: FlatParameters, inner: Optimizer) -> None:
        """Create the collectives for the parameters of `inner`, equal on all ranks; collective.

        Raises:
            RuntimeError: this algorithm serves another optimizer already.
            MismatchError: the ranks have different algorithms.
            TypeError, ValueError: an argument is wrong, on any rank.
        """
        if self._parameters is not None:
            raise RuntimeError(
                f"this {type(self).__name__} serves another optimizer: make one per optimizer"
            )
        kind = {"algorithm": type(self).__name__}

        def arguments() -> dict[str, object]:
            self.check_inner(inner)
            self.made_with = self.arguments()
            return kind | self.made_with

        with self.meet() as meeting:
            meeting.agree(arguments, last=True)
        self.serve(parameters)

    def serve(self, parameters: FlatParameters) -> None:
        """Create the collectives for these parameters; collective."""
        self._parameters = parameters
        self._collectives = self.connect(parameters)

    def reattach(self, parameters: FlatParameters) -> None:
        """Create the collectives again for more `parameters`, and keep the version; collective.

        All ranks have to be at one version. Contributions to the old collectives are lost.
        """
        version = self.version
        self.release()
        self._leave()
        self.serve(parameters)
        self._watch_again()
        self.resume(version)

    def check_weight(self, weight: float) -> None:
        """Check that a gradient may have this weight, which is finite and >= 0.

        Raises:
            ValueError: the algorithm does not accept the weight.
        """

    def arguments(self) -> dict[str, object]:
        """Return the arguments that no collective checks, and that must be equal on all ranks.

        Raises:
            TypeError, ValueError: an argument is wrong; raised on every rank.
        """
        return {}

    def check_inner(self, inner: Optimizer) -> None:
        """Check that the algorithm can train with `inner`.

        Raises:
            TypeError: it cannot; raised on every rank.
        """

    @abstractmethod
    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Create the collectives, the one that averages first."""

    def step(self, inner: Optimizer, closure: Callable[[], Any] | None) -> Any:
        """Make one step of the training, with gradients that exist or that `closure` computes.

        Args:
            inner: the optimizer of this rank's own steps.
            closure: evaluates the model and returns the loss.

        Returns:
            What the inner optimizer's step returns.
        """
        result: Any = None
        if closure is None:
            self.before_step(None)
            inner.step()
        else:
            evaluate = closure

            def averaged() -> Any:
                return self.before_step(evaluate())

            result = step_with(inner, averaged)
        self.after_step()
        return result

    def passive_step(self, inner: Optimizer) -> None:  # noqa: ARG002 (overrides use it)
        """Make a version without a gradient of this rank: no data, an overflow, or weight 0.

        An algorithm that averages models contributes this rank's model as it is, with `weight`. One
        that averages gradients contributes none, and applies the average of the others.
        """
        self.after_step()

    def average_gradients(self, scale: float = 1.0) -> None:  # noqa: ARG002 (overrides use it)
        """Replace ``.grad`` by the mean over all ranks; the next step does not average again.

        Args:
            scale: factor by which this rank's gradients are multiplied, the same on all ranks.

        Raises:
            RuntimeError: the algorithm does not average gradients before a step.
            MismatchError: the ranks have different scales.
        """
        raise RuntimeError(f"{type(self).__name__} {self._where_to_clip}")

    def before_step(self, loss: torch.Tensor | float | None) -> torch.Tensor | float | None:
        """Run when the gradients are computed, once per evaluation of a closure.

        Args:
            loss: what the closure returned; None without a closure.

        Returns:
            The loss to pass to the inner optimizer.
        """
        return loss

    def after_step(self) -> None:
        """Run when the inner optimizer has updated the parameters."""

    def hold(self, *, holding: bool) -> None:
        """Note that a `no_sync` block begins or ends; gradients inside it are incomplete."""

    def should_stop(self) -> bool:
        """Return whether the gradient being computed would no longer be used.

        Local and cheap: call it between micro-batches, or every millisecond. On a GPU it may wait
        for work that was queued before earlier calls, so that a loop does not run ahead.
        """
        return False

    @property
    def pending(self) -> bool:
        """Whether an older gradient of this rank is still unused; a new one would be ignored."""
        return False

    @property
    def plan(self) -> Plan | None:
        """Division of the total batch among the ranks; None: the training loop decides."""
        return None

    def stats(self) -> dict[str, int | float]:
        """Return counters to add to `DistributedOptimizer.stats`; local and cheap.

        An entry with a name that the optimizer uses replaces the optimizer's.
        """
        return {}

    @abstractmethod
    def synchronize(self, *, final: bool = True) -> None:
        """Make the parameters equal on all ranks; all ranks call it at the same version.

        Args:
            final: True from `DistributedOptimizer.synchronize`: apply or drop everything that a
                later step would use, such as carried gradients. False from a step.
        """

    @property
    def parameters(self) -> FlatParameters:
        """The trained parameters."""
        if self._parameters is None:
            raise RuntimeError(self._not_attached())
        return self._parameters

    @property
    def version(self) -> int:
        """The next version that this rank calls, counted from the start of the training."""
        return self._base + self.counter()

    def counter(self) -> int:
        """Return the number of versions of the collective since `connect`."""
        return self.collective.version

    @property
    def options(self) -> object | None:
        """The collective's options, which a checkpoint's have to be equal to; None: it has none."""
        return getattr(self.collective, "options", None)

    def count_versions(self, versions: int) -> None:
        """Correct `version`, which otherwise counts the calls of the collective.

        Args:
            versions: number of versions that called no collective, such as local steps; negative:
                number of calls that were no versions of the training.
        """
        self._base += versions

    def resume(self, version: int) -> None:
        """Continue counting at `version`, the same on all ranks; collective.

        Raises:
            RuntimeError: the ranks are at different versions of the collective.
        """
        with self.meet() as meeting:
            versions = meeting.exchange(lambda: self.version, last=True)
        if len(set(versions)) > 1:
            raise RuntimeError(
                f"state can only be loaded when all ranks are at one version, they are at "
                f"{versions}: load it before the first step, or after synchronize()"
            )
        self.restart(version)
        self._base = version - self.counter()
        self._restart_watch()

    def restart(self, version: int) -> None:
        """Advance the collectives to a state in which `version` can follow; collective.

        The counter of a collective starts at 0 in every process. If its groups depend on the
        counter, the algorithm passes versions without contributions until the groups match.
        """

    def state(self) -> dict[str, Any]:
        """Return this rank's state beside parameters and version: tensors, numbers and strings.

        The collective's own state (contributions that others may still use, carried gradients)
        cannot be saved; after `synchronize` there is none.
        """
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned on this rank; called after `resume`."""

    def after_load(self) -> None:
        """Compare the states after all ranks have loaded theirs; collective."""

    def fail_step(self) -> None:
        """Clean up after a step that raised an exception."""
