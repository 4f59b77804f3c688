"""Distributed training with any torch optimizer, unmodified."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, overload

import torch
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from wagma.algorithms import Algorithm
from wagma.collectives import Outcome
from wagma.flat import FlatParameters, Layout
from wagma.logs import RankLogger

__all__ = ["DistributedOptimizer"]


class DistributedOptimizer(Optimizer):
    """An optimizer whose steps are averaged over the ranks as `algorithm` says.

    ::

        opt = wagma.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
            wagma.WAGMA(MPI.COMM_WORLD),
        )
        while opt.version < steps:
            opt.zero_grad()
            loss(model(inputs), targets).backward()
            opt.step()
        opt.synchronize()  # one model on all ranks

    Making it is collective: it checks that all ranks train the same model, and rank 0's parameters
    become everybody's (the parameters only: load pretrained buffers, such as BatchNorm's
    statistics, on every rank). The parameters become views of one flat tensor.

    `param_groups`, `state` and `defaults` are the inner optimizer's own: learning-rate schedulers
    and gradient scalers take this object or the inner one. With gradient scaling a rank may skip a
    step; loops count `version`, which then does not advance on that rank. With
    ``missed="fast-forward"`` it may advance by more than one in a step: a scheduler is then stepped
    ``1 + opt.outcome.skipped`` times, or follows it:
    ``LambdaLR(opt, lambda _: 0.99**opt.version)``.

    Used as a context manager it closes at the end; after an exception the ranks that need this one
    get PeerError instead of waiting.

    Args:
        optimizer: any torch optimizer over dense CPU parameters of one floating dtype.
        algorithm: a fresh `wagma.WAGMA` or `wagma.AllreduceSGD`.

    Raises:
        TypeError: an argument is not what it should be.
        ValueError: the parameters cannot be averaged, or differ between the ranks; on every rank.

    Not thread-safe: one thread at a time.
    """

    def __init__(self, optimizer: Optimizer, algorithm: Algorithm) -> None:
        # Optimizer.__init__ is not called: it would make param_groups and state a second time.
        if not isinstance(optimizer, Optimizer) or isinstance(optimizer, DistributedOptimizer):
            raise TypeError(
                f"optimizer is a {type(optimizer).__name__}: "
                "it has to be a torch.optim.Optimizer that is not yet distributed"
            )
        if not isinstance(algorithm, Algorithm):
            raise TypeError(
                f"algorithm is a {type(algorithm).__name__}: it has to be an object like "
                "wagma.WAGMA(comm) or wagma.AllreduceSGD(comm)"
            )
        self._inner = optimizer
        self._algorithm = algorithm
        self._log = RankLogger(__name__, algorithm.rank, algorithm.size)
        tensors = [tensor for group in optimizer.param_groups for tensor in group["params"]]
        layout = _agree(algorithm, tensors)
        self._parameters = FlatParameters(tensors, layout)
        algorithm.broadcast(self._parameters.flat)
        algorithm.attach(self._parameters)

    # ---- training --------------------------------------------------------------------------------
    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Steps the inner optimizer and averages.

        Args:
            closure: evaluates the model and returns the loss, a number or (as torch has it, whose
                types say float) a tensor of one element.

        Returns:
            What the inner optimizer's step returns.

        Raises:
            RuntimeError: a parameter's ``.data`` was replaced.
            PeerError, StallError: see `wagma.collectives`.
        """
        self._parameters.check()
        result: float | None = self._algorithm.step(self._inner, closure)
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients, as the inner optimizer does."""
        self._inner.zero_grad(set_to_none)

    def synchronize(self) -> None:
        """Makes the model equal on all ranks: the mean of theirs. The end of a training.

        It is a version like any other and advances `version`; all ranks call it at the same one,
        which a loop ``while opt.version < steps`` ensures.

        Raises:
            MismatchError: the ranks are at different versions.
        """
        self._parameters.check()
        self._algorithm.synchronize()

    @property
    def version(self) -> int:
        """The next version that this rank calls, counted from the start of the training."""
        return self._algorithm.version

    @property
    def outcome(self) -> Outcome | None:
        """What the latest version gave this rank, None before the first."""
        return self._algorithm.outcome

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm that averages."""
        return self._algorithm

    # ---- end -------------------------------------------------------------------------------------
    def close(self) -> None:
        """Leaves the training: the others go on without this rank. May be called again."""
        self._algorithm.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._algorithm.__exit__(kind, error, trace)

    # ---- checkpoints -----------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's state and, under "wagma", the version reached.

        The inner optimizer can load it too. The model between two synchronisations is each rank's
        own: a checkpoint that one rank writes for all belongs after `synchronize()`.
        """
        state = self._inner.state_dict()
        state["wagma"] = {"version": self.version}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what `state_dict` gave; collective, and all ranks have to be at one version.

        All ranks continue at one version: where they saved different ones, at the lowest. A state
        of the inner optimizer alone leaves the version where it is. The model is loaded separately,
        in place, before the next step.

        Raises:
            RuntimeError: the ranks are at different versions; nothing is loaded.
        """
        counters = state_dict.get("wagma", {"version": self.version})
        with self._algorithm.meet() as meeting:
            versions = meeting.exchange(lambda: int(counters["version"]), last=True)
        if len(set(versions)) > 1 and self._algorithm.rank == 0:
            self._log.warning(
                "the ranks saved versions %s; all continue at %d", versions, min(versions)
            )
        self._algorithm.resume(min(versions))
        self._inner.load_state_dict(state_dict)

    # ---- what belongs to the inner optimizer -----------------------------------------------------
    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The inner optimizer's."""
        return self._inner.param_groups

    @property
    def state(self) -> defaultdict[torch.Tensor, Any]:  # type: ignore[override]
        """The inner optimizer's."""
        return self._inner.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """The inner optimizer's."""
        return self._inner.defaults

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused: the flat array is made once.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            f"cannot add {len(list(param_group.get('params', ())))} parameters: the array that is "
            "averaged is made with DistributedOptimizer; add the group to the inner optimizer "
            "before it is made"
        )

    def register_step_pre_hook(self, hook: Any) -> RemovableHandle:
        """Registers with the inner optimizer, whose step calls it."""
        return self._inner.register_step_pre_hook(hook)

    def register_step_post_hook(self, hook: Any) -> RemovableHandle:
        """Registers with the inner optimizer: it is called before parameters are averaged."""
        return self._inner.register_step_post_hook(hook)

    def register_state_dict_pre_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """Registers with the inner optimizer."""
        return self._inner.register_state_dict_pre_hook(hook, prepend)

    def register_state_dict_post_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """Registers with the inner optimizer."""
        return self._inner.register_state_dict_post_hook(hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Any, prepend: bool = False
    ) -> RemovableHandle:
        """Registers with the inner optimizer."""
        return self._inner.register_load_state_dict_pre_hook(hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Any, prepend: bool = False
    ) -> RemovableHandle:
        """Registers with the inner optimizer."""
        return self._inner.register_load_state_dict_post_hook(hook, prepend)

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "a DistributedOptimizer is one rank's part of a running training and cannot be copied "
            "or pickled: save its state_dict()"
        )

    def __repr__(self) -> str:
        return f"DistributedOptimizer({self._algorithm!r}, {self._inner!r})"


def _agree(algorithm: Algorithm, tensors: list[torch.Tensor]) -> Layout:
    """Lays the parameters out; fails on every rank when one rank's cannot be, or is another's."""
    with algorithm.meet() as meeting:
        layouts: list[Layout] = []

        def lay_out() -> str:
            layouts.append(Layout.of(tensors))
            return layouts[0].fingerprint()

        prints = meeting.exchange(lay_out)
        mine = layouts[0].describe()
        others = [rank for rank, print_ in enumerate(prints) if print_ != prints[0]]
        # Of rank 0, and only where it is needed: it can be long.
        needed = others and algorithm.rank == 0
        theirs = meeting.exchange(lambda: mine if needed else [], last=True)[0]
    if others:
        raise ValueError(
            f"the ranks train different models: those of ranks {others} are not that of rank 0; "
            f"rank {algorithm.rank} has {_first_difference(mine, theirs)}. "
            "Build the same model and the same optimizer on every rank"
        )
    return layouts[0]


def _first_difference(mine: list[str], theirs: list[str]) -> str:
    for index, (own, other) in enumerate(zip(mine, theirs, strict=False)):
        if own != other:
            return f"parameter {index} as {own}, rank 0 as {other}"
    if len(mine) != len(theirs):
        return f"{len(mine)} parameters, rank 0 has {len(theirs)}"
    return "the same as rank 0"
