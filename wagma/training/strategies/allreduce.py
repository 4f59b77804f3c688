"""Allreduce-SGD: the paper's synchronous baseline, gradients averaged over all ranks."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Unpack

import torch
from torch.optim import Optimizer

from wagma.collectives import SyncAllreduce
from wagma.inject.checks import check_count
from wagma.training.buckets import Bucket, Buckets, cut
from wagma.training.flat import FlatParameters
from wagma.training.flat_gradients import FlatGradients
from wagma.training.ranks import Waits
from wagma.training.strategies.collective import Collective, close_all, threads_may_call
from wagma.training.strategies.gradients import GradientAveraging

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm, Meeting

__all__ = ["AllreduceSGD"]


class AllreduceSGD(GradientAveraging):
    """Averages the gradients of all ranks before every step; everybody waits for the slowest.

    A step copies the gradients into the collective's memory, where they are reduced in place, and
    makes the averages the new ``.grad``; a gradient that was kept stays what it was. A parameter
    that has no gradient on any rank keeps ``grad = None``; where some ranks have one, the others
    count as zero. The loss that a closure returns is averaged too, in the parameters' dtype, so
    that an optimizer that looks at it (LBFGS) decides alike on every rank. A version is one
    averaging: with a closure one evaluation of it. With weights the averages of gradients and loss
    are sum(w g) / sum(w).

    With `bucket_bytes` gradients leave while ``backward()`` computes others, as DDP's do, and their
    averaging overlaps with it; only the last bucket leaves in the step. Averages are the same to
    the bit in shared memory; over messages where all sizes are reduced by one schedule. What DDP
    asks for holds then:

    - ``opt.weight`` is set before ``backward()``;
    - gradients that accumulate over several backward passes do so in ``opt.no_sync()``, and the
      last pass follows the block;
    - between ``backward()`` and the step nothing may change the gradients but
      ``opt.average_gradients()`` and ``opt.clip_grad_norm_()``, which act on averages.

    What breaks this raises RuntimeError.

    Args:
        comm: the ranks that train together; "auto": those that the launcher
            started, over MPI or as torchrun does; see `PartialAllreduce`.
        bucket_bytes: bytes of gradients that leave together, such as DDP's ``25 << 20``; a thread
            of this process sends them. None: all leave in the step.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Raises:
        what `Algorithm` does; TypeError, ValueError: `bucket_bytes` is no int, or below 1; when the
        optimizer is made.
    """

    _timed = False  # whether backward passes are

    def __init__(
        self,
        comm: Comm = "auto",
        bucket_bytes: int | None = None,
        **waits: Unpack[Waits],
    ) -> None:
        super().__init__(comm, **waits)
        self.bucket_bytes = bucket_bytes
        self._buckets: Buckets | None = None

    def arguments(self) -> dict[str, object]:
        """Return the own arguments, checked."""
        if self.bucket_bytes is not None:
            self.bucket_bytes = check_count("bucket_bytes", self.bucket_bytes, 1)
        return {"bucket_bytes": self.bucket_bytes}

    def connect(self, parameters: FlatParameters) -> tuple[Collective, ...]:
        """Make the collectives, one per bucket; that of the last one counts the versions."""
        whole = parameters.layout
        made = []
        for first, end in cut(whole, self.bucket_bytes):
            layout = whole.part(first, end)
            collective = SyncAllreduce(self.comm, self._like(layout), **self.waits)
            memory = torch.from_numpy(collective.empty()).view(whole.dtype)
            stops = self.stops if first == 0 else None  # in the last one, which leaves in the step
            part = parameters.parameters[first:end]
            made.append(Bucket(part, first, layout, collective, memory, stops))
            if self.bucket_bytes is not None and not threads_may_call(collective):
                raise RuntimeError(
                    "bucket_bytes over MPI: a thread sends the buckets, for which MPI has to be "
                    "initialised with MPI_THREAD_MULTIPLE, mpi4py's default; do so, or leave "
                    "bucket_bytes out"
                )
        algorithm = weakref.proxy(self)
        self._buckets = Buckets(made, lambda: algorithm.weight, timed=self._timed)
        return tuple(bucket.collective for bucket in reversed(made))

    @property
    def gradients(self) -> FlatGradients:
        """The memory that is averaged; with `bucket_bytes` that of the last bucket."""
        return self.buckets.each[-1].gradients

    @property
    def buckets(self) -> Buckets:
        """The gradients that are averaged, in the order in which they leave."""
        if self._buckets is None:
            raise RuntimeError(f"{type(self).__name__} serves no optimizer: it is new, or closed")
        return self._buckets

    def before_step(self, loss: torch.Tensor | float | None) -> torch.Tensor | float | None:
        """Averages gradients and loss over all ranks."""
        mean = self._average(loss, self.weight)
        if isinstance(loss, torch.Tensor):
            return torch.full_like(loss, mean, requires_grad=False)
        return None if loss is None else mean

    def passive_step(self, inner: Optimizer) -> None:
        """Applies the mean of the other ranks' gradients."""
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
        """Return the ranks.

        Raises:
            RuntimeError: gradients have left in ``backward()`` that no step has used.
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
        except BaseException as error:  # Ctrl-C: the others would wait for what is not sent
            for collective in self._collectives:
                collective.__exit__(type(error), error, None)
            raise
        close_all(self._collectives)

    def _check_none_left(self) -> None:
        if self._buckets is not None and self._buckets.are_under_way:
            raise RuntimeError(
                "gradients have left in backward() (bucket_bytes), and no step has used them: call "
                "step() first"
            )

    def release(self) -> None:
        """Let go of the collectives' memory."""
        if self._buckets is not None:
            self._buckets.close()
        self._buckets = None
