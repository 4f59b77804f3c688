"""A training algorithm: a collective, and two moments of a step at which it may be called."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import torch
from torch.optim import Optimizer

from wagma.collectives import Outcome, PeerError, StallError
from wagma.collectives.rendezvous.meeting import Meeting
from wagma.collectives.rendezvous.reports import describe_ranks
from wagma.training.closures import step_with
from wagma.training.flat import FlatParameters
from wagma.training.ranks import Waits
from wagma.training.strategies.collective import Collective, close_all
from wagma.training.strategies.ending import AgreedEnd

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm
    from wagma.theory.cannikin import Plan

__all__ = ["Algorithm"]


C = TypeVar("C")


class Algorithm(AgreedEnd, ABC):
    """What a `wagma.DistributedOptimizer` averages, and when; for one optimizer.

    A step of the optimizer is: `before_step` (the gradients are there), the inner optimizer's step,
    `after_step` (the parameters are new). Most algorithms average in one of the two; one that makes
    another number of inner steps has a `step` of its own.

    Args:
        comm: the ranks that train together; "auto": those that the launcher started, over MPI or as
            torchrun does; see `PartialAllreduce`. Making the optimizer is collective over them.
        timeout: seconds until a wait ends in StallError; None: never.
        stall_warning: seconds between warnings about a stuck wait, 0.1 at least; None: none.
        transport: "shm", "mpi" or "auto", see `wagma.collectives.Options`.

    Attributes:
        rank: this one of them.
        size: how many they are.
        outcome: what the latest version gave this rank; None before the first, and of a version
            that called no collective, such as a local step.
        weight: how much this rank's gradient counts in the coming step, see
            `DistributedOptimizer.weight`, which sets it; what averages hands it to its collective.
        wait_avoiding: a rank that calls early is not held up by the others, but makes them late.
            One without data of its own then keeps the pace of its last steps.
        joins: ranks without data of their own can take part in the steps of the others.
        default_weight: what `weight` is again after each step.
        made_with: what `arguments` gave when the optimizer was made; empty before.

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
        """Makes the collective for `parameters` of `inner`, equal on all ranks; collective.

        Raises:
            RuntimeError: this algorithm serves another optimizer already.
            MismatchError: the ranks have made different algorithms.
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
        self._parameters = parameters
        self._collectives = self.connect(parameters)

    def reattach(self, parameters: FlatParameters) -> None:
        """Makes the collective again, for `parameters` that have grown, and keeps the version.

        Collective; all ranks are at one version. What ranks had contributed is gone.
        """
        version = self.version
        self.release()
        self._leave()
        self._parameters = parameters
        self._collectives = self.connect(parameters)
        self._watch_again()
        self.resume(version)

    def meet(self) -> Meeting:
        """The ranks, to compare something; a context manager. Collective.

        Raises:
            PeerError: a rank that trained with this one has failed.
            StallError: not all ranks have come in time.
        """
        if not self._collectives:
            return super().meet()
        try:
            return Meeting(self.comm, self._patience, self._watch)
        except (PeerError, StallError) as error:  # the others, who may come later, are told
            self.__exit__(type(error), error, None)
            raise

    def _watch(self) -> None:
        """Raises what the collectives know of ranks that will not come."""
        lost = self.collective.lost()
        if lost:
            others = ", over a communicator of comm.Create_group() if they live"
            others = "" if self.comm in (None, "auto") else others
            raise PeerError(
                f"{describe_ranks(lost)} failed, died or left without close(), and all ranks have "
                f"to meet here: make a new optimizer without them{others}"
            )

    def check_weight(self, weight: float) -> None:
        """Check that this rank's gradient may count `weight`, >= 0 and finite, in a step.

        Raises:
            ValueError: it may not.
        """

    def arguments(self) -> dict[str, object]:
        """The algorithm's own arguments, which no collective checks and all ranks have alike.

        Raises:
            TypeError, ValueError: one is wrong; then it is raised on every rank.
        """
        return {}

    def check_inner(self, inner: Optimizer) -> None:
        """Whether it can train with `inner`.

        Raises:
            TypeError: it cannot; then it is raised on every rank.
        """

    def _leave(self) -> None:
        """Closes the collectives."""
        close_all(self._collectives)

    @abstractmethod
    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Makes the collectives: first the one over the array that this algorithm averages."""

    def step(self, inner: Optimizer, closure: Callable[[], Any] | None) -> Any:
        """One step of the training: the gradients are there, or `closure` computes them.

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

    def passive_step(self, inner: Optimizer) -> None:  # noqa: ARG002 (of those that step)
        """A version without a gradient of this rank: its data ran out, it overflowed, or counts 0.

        Averaging models, the rank contributes the one it has, with `weight`. What averages
        gradients contributes none and applies the others'.
        """
        self.after_step()

    def average_gradients(self, scale: float = 1.0) -> None:  # noqa: ARG002 (of those that do)
        """Make ``.grad`` the mean over all ranks, for a step that does not average again.

        Args:
            scale: factor by which this rank's are multiplied, the same on all ranks.

        Raises:
            RuntimeError: the algorithm does not average gradients before a step.
            MismatchError: the ranks have different scales.
        """
        raise RuntimeError(f"{type(self).__name__} {self._where_to_clip}")

    def before_step(self, loss: torch.Tensor | float | None) -> torch.Tensor | float | None:
        """Called when the gradients are there, once per evaluation of a closure.

        Args:
            loss: what the closure returned, None without a closure.

        Returns:
            The loss that the inner optimizer is to see.
        """
        return loss

    def after_step(self) -> None:
        """Called when the inner optimizer has changed the parameters."""

    def hold(self, *, holding: bool) -> None:
        """See that a `no_sync` block begins, or ends: gradients inside it are not complete."""

    def should_stop(self) -> bool:
        """Return whether a gradient that is being computed would not be used any more.

        Local and cheap: it may be asked between micro-batches, or every millisecond.
        """
        return False

    @property
    def pending(self) -> bool:
        """Whether a gradient of this rank waits to be used, so that a new one would be ignored."""
        return False

    @property
    def plan(self) -> Plan | None:
        """How a total batch is divided among the ranks; None: the loop decides."""
        return None

    def stats(self) -> dict[str, int | float]:
        """Return what this algorithm counts beside `DistributedOptimizer.stats`; local and cheap.

        A name that the optimizer counts, too, replaces its figure.
        """
        return {}

    @abstractmethod
    def synchronize(self, *, final: bool = True) -> None:
        """Make the parameters equal on all ranks; called by all of them at the same version.

        Args:
            final: by `DistributedOptimizer.synchronize`: nothing may be left that a later step
                would have used, such as gradients that are carried. False: by a step itself.
        """

    @property
    def parameters(self) -> FlatParameters:
        """The parameters that are trained."""
        if self._parameters is None:
            raise RuntimeError(
                f"this {type(self).__name__} serves no optimizer yet: "
                "give it to wagma.DistributedOptimizer"
            )
        return self._parameters

    @property
    def collective(self) -> Collective:
        """The collective that averages; its own counter starts at 0 in every process."""
        return self._serving()[0]

    def _connected(self, kind: type[C]) -> C:
        """The collective that is a `kind`."""
        return next(c for c in self._serving() if isinstance(c, kind))

    def _serving(self) -> tuple[Collective, ...]:
        if not self._collectives:
            raise RuntimeError(
                f"this {type(self).__name__} serves no optimizer yet: "
                "give it to wagma.DistributedOptimizer"
            )
        return self._collectives

    @property
    def version(self) -> int:
        """The next version that this rank calls, counted from the start of the training."""
        return self._base + self.counter()

    def counter(self) -> int:
        """Return the versions that the collective has made since it was connected."""
        return self.collective.version

    def count_versions(self, versions: int) -> None:
        """Add to `version`, which counts the collective's calls by itself.

        Args:
            versions: of the training that called no collective, such as a local step; < 0: calls
                that were no version of their own.
        """
        self._base += versions

    def resume(self, version: int) -> None:
        """Continues the training's count at `version`, the same on all ranks; collective.

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
        """Bring the collectives to where `version` can be called next; collective.

        A collective's own counter starts at 0 in every process: where what it does depends on it,
        such as its groups, it passes through versions without contributions.
        """

    def state(self) -> dict[str, Any]:
        """What this rank has to save beside parameters and version: tensors, numbers and texts.

        What is in the collective itself (contributions that others may still use, gradients that
        are carried) cannot be saved: it is gone after `synchronize`.
        """
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Takes up what `state` gave on this rank; called after `resume`."""

    def after_load(self) -> None:
        """See that all ranks have loaded their states, to compare them; collective."""

    def fail_step(self) -> None:
        """See that a step has raised an exception."""

    def release(self) -> None:
        """Lets go of the collective's memory; called once for each that was made."""

    @contextmanager
    def _leaving(self) -> Iterator[None]:
        """Releases at the end.

        The others come first: they do not wait for the copy of a large model, nor for ever should
        there be no memory for it.
        """
        released, self._closed = self._closed, True
        try:
            yield
        finally:
            if not released:
                self.release()

    def close(self) -> None:
        """Leaves the collective: the others go on without this rank. May be called again.

        A model that is kept in the collective's array gets memory of its own. With transport="mpi"
        it returns when all have left, see `PartialAllreduce.close`.
        """
        if self._collectives:
            with self._leaving():
                self._leave()

    def hint(self, text: str | None) -> None:
        """Make `text` what warnings about waits for other ranks say besides, from now on."""
        for collective in self._collectives:
            collective.hint = text

    def check_open(self, call: str) -> None:
        """Checks that the training goes on here.

        Args:
            call: what is refused otherwise, as "step()".

        Raises:
            RuntimeError: `close` was called, or the with block left.
        """
        if self._closed:
            raise RuntimeError(
                f"{call} of a training that is closed: this {type(self).__name__} has left it, "
                "with close() or at the end of its with block. Make a new DistributedOptimizer "
                "with a new algorithm, and load the state_dict() of this one"
            )

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Closes; after an exception the ranks that need this one get PeerError at once."""
        if error is None:
            self.close()
            return
        if self._collectives:
            with self._leaving():
                for collective in self._collectives:
                    collective.__exit__(kind, error, trace)

    def __enter__(self) -> Algorithm:
        return self
