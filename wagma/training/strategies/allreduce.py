"""Allreduce-SGD: gradients averaged over all ranks, the paper's synchronous baseline."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Unpack

import torch
from torch.optim import Optimizer

from wagma.collectives import SyncAllreduce
from wagma.inject.checks import check_count
from wagma.training.arrays import array_of
from wagma.training.buckets import Bucket, Buckets, cut
from wagma.training.clock import Clock
from wagma.training.flat import FlatParameters
from wagma.training.flat_gradients import FlatGradients
from wagma.training.ranks import Waits
from wagma.training.strategies.collective import Collective, close_all, threads_may_call
from wagma.training.strategies.gradients import GradientAveraging

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm, Meeting


class AllreduceSGD(GradientAveraging):
    """Average the gradients of all ranks before every step; all ranks wait for the slowest.

    A step copies the gradients into the collective's memory, reduces them in place, and assigns the
    averages to ``.grad`` as new tensors; references to the old gradients keep their values. A
    parameter without a gradient on any rank keeps ``grad = None``; if some ranks have one, the
    others count as zero. The loss that a closure returns is averaged too, in the parameters' dtype,
    so that an optimizer that uses it (LBFGS) decides alike on all ranks. A version is one
    averaging, which is one evaluation of a closure. With weights the averages of gradients and loss
    are sum(w g) / sum(w).

    With `bucket_bytes` gradients are sent in buckets while ``backward()`` computes others, as by
    DDP; only the last bucket is sent in the step. In shared memory averages do not change by a bit;
    over messages if one schedule reduces all sizes. The rules of DDP then apply:

    - set ``opt.weight`` before ``backward()``;
    - accumulate gradients over several backward passes in ``opt.no_sync()``, and make the last pass
      after the block;
    - between ``backward()`` and the step change gradients by ``opt.average_gradients()`` and
      ``opt.clip_grad_norm_()`` alone, which act on averages.

    Breaking a rule raises RuntimeError.

    Args:
        comm: the ranks that train together; "auto": those that the launcher started, over MPI or as
            torchrun does; see `PartialAllreduce`.
        bucket_bytes: bytes of gradients in a bucket, such as DDP's ``25 << 20``; a thread of this
            process sends the buckets. None: the step sends all gradients.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Raises:
        what `Algorithm` does; creating the optimizer raises TypeError if `bucket_bytes` is no int,
        and ValueError if it is below 1.
    """

    _timed = False  # whether to time backward passes

    def __init__(
        self, comm: Comm = "auto", bucket_bytes: int | None = None, **waits: Unpack[Waits]
    ) -> None:
        super().__init__(comm, **waits)
        self.bucket_bytes = bucket_bytes
        self._buckets: Buckets | None = None

    def arguments(self) -> dict[str, object]:
        """Return the checked arguments."""
        if self.bucket_bytes is not None:
            self.bucket_bytes = check_count("bucket_bytes", self.bucket_bytes, 1)
        return {"bucket_bytes": self.bucket_bytes}

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Create one collective per bucket; the last bucket's counts the versions."""
        whole = parameters.layout
        clock, made = Clock(whole.device), []
        for first, end in cut(whole, self.bucket_bytes):
            layout = whole.part(first, end)
            like = self._like(layout)
            collective = SyncAllreduce(self.comm, like, **self.waits)
            memory = array_of(collective, like)
            stops = self.stops if first == 0 else None  # in the last bucket, sent in the step
            part = parameters.parameters[first:end]
            made.append(Bucket(part, first, layout, collective, memory, clock, stops))
            if self.bucket_bytes is not None and not threads_may_call(collective):
                raise RuntimeError(
                    "bucket_bytes over MPI: a thread sends the buckets, so initialise MPI with "
                    "MPI_THREAD_MULTIPLE, mpi4py's default, or leave bucket_bytes out"
                )
        algorithm = weakref.proxy(self)
        self._buckets = Buckets(made, lambda: algorithm.weight, clock, timed=self._timed)
        return tuple(bucket.collective for bucket in reversed(made))

    @property
    def gradients(self) -> FlatGradients:
        """The gradients in the collective's memory; with `bucket_bytes` the last bucket's."""
        return self.buckets.each[-1].gradients

    @property
    def buckets(self) -> Buckets:
        """The buckets, in the order in which they are sent."""
        if self._buckets is None:
            raise RuntimeError(f"{type(self).__name__} serves no optimizer: it is new, or closed")
        return self._buckets

    def before_step(self, loss: torch.Tensor | float | None) -> torch.Tensor | float | None:
        """Average gradients and loss over all ranks."""
        mean = self._average(loss, self.weight)
        if isinstance(loss, torch.Tensor):
            return torch.full_like(loss, mean, requires_grad=False)
        return None if loss is None else mean

    def passive_step(self, inner: Optimizer) -> None:
        """Apply the mean of the other ranks' gradients."""
        self._average(None, 0.0)
        inner.step()

    def average_gradients(self, scale: float = 1.0) -> None:
        """Average the gradients over all ranks: one version."""
        self._average(None, self.weight, scale)

    def _average(
        self, loss: torch.Tensor | float | None, weight: float, scale: float = 1.0
    ) -> float:
        mean = self.buckets.finish(weight, loss, scale)
        self.outcome = self.buckets.sent[-1].outcome
        return mean

    def hold(self, *, holding: bool) -> None:
        """Send nothing in a `no_sync` block."""
        self.buckets.holding = holding

    def meet(self) -> Meeting:
        """Return the context manager of `Algorithm.meet`.

        Raises:
            RuntimeError: ``backward()`` sent gradients that no step has used.
        """
        self._check_none_left()
        return super().meet()

    def synchronize(self, *, final: bool = True) -> None:  # noqa: ARG002
        """Average the parameters, in the memory for gradients."""
        self._check_none_left()
        self.outcome = self.buckets.average(self.parameters.flat)
        self.parameters.written()

    def _leave(self) -> None:
        try:
            if self._buckets is not None:
                self._buckets.drain()
        except BaseException as error:  # Ctrl-C: other ranks would wait for unsent buckets
            for collective in self._collectives:
                collective.__exit__(type(error), error, None)
            raise
        close_all(self._collectives)

    def _check_none_left(self) -> None:
        if self._buckets is not None and self._buckets.are_under_way:
            raise RuntimeError(
                "backward() sent gradients (bucket_bytes) that no step has used: call step() first"
            )

    def release(self) -> None:
        """Release the collectives' memory."""
        if self._buckets is not None:
            self._buckets.close()
        self._buckets = None
