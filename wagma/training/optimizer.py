"""Distributed training with any unmodified torch optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self, overload

import torch
from torch.optim import Optimizer

from wagma.collectives import Outcome
from wagma.launch.logs import RankLogger
from wagma.training import watching
from wagma.training.buffers import average_buffers
from wagma.training.checkpoints import load, save
from wagma.training.clock import Clock
from wagma.training.closures import check_given
from wagma.training.ending import EndingOptimizer
from wagma.training.flat import FlatParameters
from wagma.training.joining import Pace, check_before_last, naming_join
from wagma.training.policies.base import ComputePolicy
from wagma.training.same_model import agree, share_rest
from wagma.training.scaling import check_pending, forget, unscale
from wagma.training.strategies.base import Algorithm

if TYPE_CHECKING:
    from wagma.theory.cannikin import Plan


class DistributedOptimizer(EndingOptimizer):
    """Wrap an optimizer so that `algorithm` averages its steps over the ranks.

    ::

        inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        with wagma.DistributedOptimizer(inner, wagma.WAGMA(MPI.COMM_WORLD), model=model) as opt:
            while opt.version < steps:
                opt.zero_grad()
                loss(model(inputs), targets).backward()
                opt.step()
            opt.synchronize()  # one model on all ranks

    Creation is collective: it checks that all ranks train the same model, and copies the parameters
    from rank 0 to all ranks; given ``model=model`` also the model's frozen parts and buffers. The
    parameters become views of one flat tensor, which WAGMA and ADPSGD keep in memory shared by the
    ranks, unless it is on a GPU, until the training is closed. A forked process has a copy of its
    own: its writes stay there, and its reads may see values newer than the fork. Frozen parameters
    (``requires_grad=False``) in the optimizer are averaged like all others, and may change in the
    last bits if the number of ranks is no power of two.

    `param_groups`, `state` and `defaults` are those of the inner optimizer: learning-rate
    schedulers take this object or the inner one. Momentum and other state are not averaged. With
    ``missed="fast-forward"`` `version` may advance by more than one in a step: step a scheduler
    ``1 + opt.outcome.skipped`` times, or compute the rate from the version, as in
    ``LambdaLR(opt, lambda _: 0.99**opt.version)``.

    Pass this object to ``unscale_`` and ``step`` of a `torch.amp.GradScaler`. A rank whose
    gradients overflow makes a step without gradients (see
    `wagma.algorithms.Algorithm.passive_step`), so that the ranks stay together; its ``update()``
    lowers its own scale. Ranks may have different scales: each divides by its own before averaging.

    As a context manager it closes at the end; after an exception the ranks that need this one get
    PeerError instead of waiting.

    Args:
        optimizer: any torch optimizer over dense parameters of one floating dtype, on the CPU or on
            one NVIDIA GPU per rank.
        algorithm: a new algorithm, such as ``wagma.WAGMA(comm)``; see `wagma.algorithms`. Or a
            compute policy around an algorithm, such as ``wagma.DropCompute(algorithm, 12)``.
        model: the model of the parameters. Its other parameters, such as frozen ones, and its
            buffers are copied from rank 0 too. None: those stay as they are on each rank; a warning
            is logged if the optimizer's parameters differ between the ranks, because the others
            then probably differ too.

    Raises:
        TypeError: an argument has a wrong type.
        ValueError: the parameters cannot be averaged, or differ between the ranks; on every rank.

    Not thread-safe: one thread at a time.
    """

    _step_supports_amp_scaling = True  # GradScaler calls step() after an overflow, too

    def __init__(
        self,
        optimizer: Optimizer,
        algorithm: Algorithm | ComputePolicy,
        *,
        model: torch.nn.Module | None = None,
    ) -> None:
        if not isinstance(optimizer, Optimizer) or isinstance(optimizer, DistributedOptimizer):
            raise TypeError(
                f"optimizer is a {type(optimizer).__name__}: "
                "it has to be a torch.optim.Optimizer that is not yet distributed"
            )
        policy = algorithm if isinstance(algorithm, ComputePolicy) else ComputePolicy(algorithm)
        super().__init__(optimizer, policy)
        algorithm = policy.algorithm
        self._log = RankLogger(__name__, algorithm.rank, algorithm.size)
        policy.agree(model)
        tensors = self._tensors()
        layout = agree(algorithm, tensors)
        share_rest(algorithm, tensors, model, self._log)
        self._parameters = FlatParameters(tensors, layout)
        algorithm.broadcast(self._parameters.flat)
        self._parameters.written()
        self._pace = Pace(Clock(layout.device))
        algorithm.attach(self._parameters, optimizer)
        policy.attach(optimizer)

    # ---- training --------------------------------------------------------------------------------
    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Step the inner optimizer and average.

        Args:
            closure: evaluates the model and returns the loss, a number or a tensor of one element.

        Returns:
            What the inner optimizer's step returns.

        Raises:
            TypeError: the inner optimizer needs a closure, and none is given.
            ValueError: `weight` is 0, and the inner optimizer needs a closure.
            RuntimeError: a parameter's ``.data`` was replaced, or `param_groups` changed without
                `add_param_group`; inside `no_sync`; after the last step of a `join`; in
                ``scaler.step(opt)`` without a gradient while `pending`.
            PeerError, StallError: see `wagma.collectives`.
        """
        try:
            with naming_join(self._algorithm, self._blocks):
                result = self._step(closure)
        except BaseException:
            forget(self)
            self._policy.fail_step()
            raise
        if watching.watcher is not None:
            watching.watcher.end_step(self._algorithm)
        return result

    def _step(self, closure: Callable[[], float] | None) -> float | None:
        check_given(self._inner, closure, self.weight)
        tensors = self._parameters.parameters
        if self._marks.averaged(tensors):
            self._step_on_averages(closure)
            return None
        self._check_step("step()")
        if self.pending:
            check_pending(self)
        self._policy.begin_step(tensors, closure)
        if self.weight == 0 or not unscale(self):
            self._passive_step()
            return None
        self._pace.arrive()
        if closure is not None:
            closure = self._counters.counting(closure, self._algorithm)
        result: float | None = self._algorithm.step(self._inner, closure)
        self._counters.steps += 1
        self._finish_step()
        self._pace.leave()
        return result

    def _passive_step(self) -> None:
        """Clear the gradients and make a step without gradients of this rank."""
        self._inner.zero_grad()
        self._algorithm.passive_step(self._inner)
        self._counters.passive_steps += 1
        self._finish_step()

    def _finish_step(self) -> None:
        while self._algorithm.unheard and (self._last is None or self.version < self._last):
            self._counters.see(self.outcome)
            self._algorithm.passive_step(self._inner)
        self._policy.end_step(self._inner, self._last)
        self._algorithm.weight = self._algorithm.default_weight
        self._counters.see(self.outcome)
        self._marks.use(self._parameters.parameters)
        self._algorithm.see_version()

    def _check_step(self, call: str) -> None:
        self._algorithm.check_open(call)
        self._check_parameters()
        if "no_sync" in self._blocks:
            raise RuntimeError(f"{call} inside no_sync(): leave the block before the step")
        check_before_last(call, self.version, self._last)

    def synchronize(self, buffers: Iterable[torch.Tensor] | None = None) -> None:
        """Replace the model on all ranks by the mean of all models, as at the end of a training.

        It is a version and advances `version`. All ranks have to call it at the same version, which
        a loop ``while opt.version < steps`` ensures.

        Args:
            buffers: ``model.buffers()``. Floating buffers, such as BatchNorm's mean and variance,
                are averaged over the ranks; others, such as its count of batches, are copied from
                rank 0. None: buffers stay as they are on each rank.

        Raises:
            MismatchError: the ranks are at different versions.
            RuntimeError: parameters were replaced or changed, as in `step`; inside `join` or
                `no_sync`; no step has used the latest gradients.
            TypeError, ValueError: `buffers` are no tensors on the CPU, or not alike on all ranks;
                on every rank.
        """
        self._check_call("synchronize()")
        self._check_parameters()
        self._marks.check_none_wait(self._parameters.parameters)
        with naming_join(self._algorithm, self._blocks):
            if buffers is not None:
                average_buffers(self._algorithm, buffers)
            self._algorithm.synchronize()
            self._algorithm.see_version()
        self._counters.see(self.outcome)
        self._marks.use(self._parameters.parameters)

    @property
    def version(self) -> int:
        """The next version that this rank calls, counted from the start of the training."""
        return self._algorithm.version

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of the latest version on this rank; None before the first."""
        return self._algorithm.outcome

    @property
    def pending(self) -> bool:
        """Whether this rank's latest gradient still waits for an update.

        Skip the backward pass then: ``if not opt.pending: backward()``, then ``opt.step()``. Always
        False with algorithms that use or drop each gradient in its own step.
        """
        return self._algorithm.pending

    def should_stop(self) -> bool:
        """Return whether the gradient being computed would no longer be used.

        Local and cheap (under a microsecond in shared memory). On a GPU it waits for the work that
        was queued before the last call but one. If it is true, end the computation,
        between micro-batches or in a hook of a module, and call `step`. It becomes true only with
        algorithms that drop late gradients, and is a hint: it may become true right after the call.
        """
        return self._algorithm.should_stop()

    @property
    def plan(self) -> Plan | None:
        """Division of the total batch among the ranks with `wagma.Cannikin`; otherwise None."""
        return self._algorithm.plan

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm that averages."""
        return self._algorithm

    def stats(self) -> dict[str, int | float]:
        """Return counters of this rank since the optimizer was created; local and cheap.

        One flat dict of numbers, for TensorBoard or a CSV file: "version"; "steps" and
        "passive_steps", with and without gradients of this rank; "averages" with this rank, and in
        how many of them it was "late" ("late_share": their share); "skipped" versions;
        "staleness_mean", the mean number of versions by which contributions were older than the
        newest one in their average; "waited_seconds" for other ranks, and "waited_last_seconds" in
        the latest version. The algorithm and a policy add counters of their own.
        """
        own = {**self._algorithm.stats(), **self._policy.stats()}
        return {"version": self.version, **self._counters.as_dict(), **own}

    # ---- end -------------------------------------------------------------------------------------
    def close(self) -> None:
        """Leave the training; the other ranks go on without this one. May be called again.

        Collective calls raise RuntimeError afterwards. The model, `state_dict`, `version`,
        `outcome` and `stats` stay readable.
        """
        self._leave()
        self._algorithm.close()

    def _leave(self) -> None:
        """Remove the hooks of model and parameters."""
        self._marks.close()
        self._policy.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._leave()
        self._algorithm.__exit__(kind, error, trace)

    # ---- checkpoints -----------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Return the inner optimizer's state and, under "wagma", the version and algorithm state.

        The inner optimizer can load it too. Each rank saves its own state and model, because models
        differ between synchronisations; save one model for all ranks only after `synchronize()`.

        Raises:
            RuntimeError: `param_groups` changed without `add_param_group`.
        """
        self._parameters.check_are(self._tensors())
        return save(self._policy, self._inner)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` returned on this rank; collective, at one version of all ranks.

        All ranks continue at one version, the lowest that was saved. A state of the inner optimizer
        alone does not change the version. Load the model separately, in place, before the next
        step.

        Raises:
            RuntimeError: the ranks are at different versions, and nothing is loaded; inside `join`.
            what the inner optimizer's ``load_state_dict`` raises, on every rank.
        """
        self._check_call("load_state_dict()")
        load(self._policy, self._inner, state_dict, self._log)

    # ---- parameters ------------------------------------------------------------------------------
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, as the inner optimizer does; collective, at one version of all ranks.

        Rank 0's new parameters are copied to all ranks. The flat tensor and the collectives are
        created again; versions and state are kept. The old collectives' contributions of late ranks
        and gradients carried by EagerSGD are lost: call `synchronize` before.

        Raises:
            RuntimeError: the ranks are at different versions; inside `join` or `no_sync`.
            ValueError: the ranks add different groups, or the group cannot be averaged.
            what the inner optimizer's ``add_param_group`` raises.
            All on every rank, and nothing is added.
            what creating the collectives raises; the training has ended then, see `close`.
        """
        self._check_call("add_param_group()")
        groups = self._inner.param_groups
        known = len(groups)

        def add() -> int:
            self._check_parameters()
            self._inner.add_param_group(param_group)
            return self.version

        try:
            with self._algorithm.meet() as meeting:
                versions = meeting.exchange(add, last=True)
            if len(set(versions)) > 1:
                raise RuntimeError(
                    f"a group can only be added when all ranks are at one version, they are at "
                    f"{versions}: add it before the first step, or after synchronize()"
                )
            layout = agree(self._algorithm, self._tensors())
        except BaseException:
            del groups[known:]
            raise
        start = self._parameters.layout.numel
        try:
            self._parameters = FlatParameters(self._tensors(), layout)
            self._algorithm.broadcast(self._parameters.flat[start:])
            self._parameters.written()
            self._algorithm.reattach(self._parameters)
            self._policy.reattach(self._parameters.parameters)
            self._marks.drop()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def _check_parameters(self) -> None:
        self._parameters.check_are(self._tensors())
        self._parameters.check()

    def _tensors(self) -> list[torch.Tensor]:
        return [tensor for group in self._inner.param_groups for tensor in group["params"]]

    def __repr__(self) -> str:
        return f"DistributedOptimizer({self._algorithm!r}, {self._inner!r})"
