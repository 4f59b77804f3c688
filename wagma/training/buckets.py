"""Gradients that leave in buckets while backward() computes the others."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch
from torch.utils.hooks import RemovableHandle

from wagma.collectives import Outcome, PartialAllreduce
from wagma.training.flat import Layout
from wagma.training.flat_gradients import FlatGradients
from wagma.training.marks import Mark, is_same, mark_of
from wagma.training.stopping import Stops

__all__ = ["Bucket", "Buckets", "Sent", "cut"]

CHANGED = (
    "the gradient of parameter {index} was changed after backward() had sent it (bucket_bytes): to "
    "clip averages call opt.clip_grad_norm_() or opt.average_gradients() after backward(), with a "
    "GradScaler opt.average_gradients(scaler); accumulate gradients inside opt.no_sync(), and "
    "compute the last of them after the block"
)


def cut(layout: Layout, bucket_bytes: int | None) -> list[tuple[int, int]]:
    """Return (first, end) of the parameters of each bucket, in the order in which they leave.

    backward() computes the last parameters first: these leave first. Parameters are not cut: a
    bucket has at least `bucket_bytes`, but for the last one.

    Args:
        layout: of all parameters.
        bucket_bytes: None: one bucket has all.
    """
    end = len(layout.slots)
    if bucket_bytes is None:
        return [(0, end)]
    found, size = [], 0
    for first in range(end - 1, -1, -1):
        size += layout.slots[first].numel * layout.dtype.itemsize
        if size >= bucket_bytes or first == 0:
            found.append((first, end))
            end, size = first, 0
    return found


class Sent(NamedTuple):
    """What became of a bucket.

    Attributes:
        outcome: of its collective.
        began: when its averaging began, by time.perf_counter.
        ended: when it had ended, the waiting for other ranks included.
        waited: seconds of that waiting.
    """

    outcome: Outcome
    began: float
    ended: float
    waited: float

    def waited_after(self, time: float) -> float:
        """Return the seconds that it waited for other ranks, at most those after `time`."""
        return min(self.waited, max(0.0, self.ended - time))


class Bucket:
    """Some of the parameters, and the collective that averages their gradients.

    Args:
        parameters: which.
        first: number of the first one among all parameters.
        layout: of these.
        collective: over all ranks.
        memory: its array.
        stops: see `FlatGradients`.

    Attributes:
        parameters, first, collective: as given.
        gradients: in `memory`.
    """

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        first: int,
        layout: Layout,
        collective: PartialAllreduce,
        memory: torch.Tensor,
        stops: Stops | None = None,
    ) -> None:
        self.parameters = parameters
        self.gradients = FlatGradients(parameters, layout, memory, first, stops)
        self.collective = collective
        self.first = first
        self._marks: list[Mark | None] = []  # of the gradients that were gathered

    def gather(
        self, weight: float, loss: torch.Tensor | float | None = None, scale: float = 1.0
    ) -> None:
        """Make this rank's gradients its contribution."""
        self._marks = []
        if weight > 0:
            self.gradients.gather(loss, scale)
            self._marks = [mark_of(parameter.grad) for parameter in self.parameters]
        else:  # the gradients may be anything
            self.gradients.clear()

    def send(self, weight: float) -> Sent:
        """Average what was gathered."""
        began = time.perf_counter()
        outcome = self.collective.allreduce(self.gradients.memory, weight)
        return Sent(outcome, began, time.perf_counter(), outcome.waited)

    def check_unchanged(self) -> None:
        """Raise RuntimeError if a gradient is another one than when they were gathered."""
        for index, mark in enumerate(self._marks):
            if not is_same(self.parameters[index].grad, mark):
                raise RuntimeError(CHANGED.format(index=self.first + index))


class Buckets:
    """Send each bucket when its gradients are there, in order, by a thread of its own.

    Every rank sends the buckets in the same order: one that is complete waits for those before it.
    The last one leaves in `finish`, and with it what has no gradient on this rank.

    Nothing that lives longer keeps this alive, the parameters and the thread included: ranks that
    need this one are told of its end when it is dropped, too.

    Args:
        buckets: in order; one alone needs no thread, and leaves in `finish`.
        weight: returns that of this rank's gradients.
        timed: whether `first` is noted, also of one bucket.

    Attributes:
        each: the buckets.
        holding: whether backward passes leave gradients incomplete, so that none is sent.
        sent: the latest average of each bucket.
        first: when the first gradient of the coming step was there, by time.perf_counter; None: it
            is not, or it is not noted.

    Not thread-safe, but for backward passes.
    """

    def __init__(
        self, buckets: Sequence[Bucket], weight: Callable[[], float], *, timed: bool = False
    ) -> None:
        self.holding = False
        self.first: float | None = None
        self.sent: list[Sent] = []
        self.each = buckets
        self._weight = weight
        self._lock = threading.Lock()
        self._hooks: dict[torch.Tensor, RemovableHandle] = {}
        self._missing: list[set[torch.Tensor]] = []  # gradients that a bucket waits for
        self._under_way: list[Future[Sent]] = []
        self._left_with = 1.0  # the weight of those that are under way
        self._queue: _Queue = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._end = weakref.finalize(self, _end, self._hooks, self._queue)
        self._end.atexit = False
        if len(buckets) > 1 or timed:
            self._expect()
            self._begin()
        if len(buckets) > 1:
            self._thread = threading.Thread(target=_send, args=(self._queue,), daemon=True)
            self._thread.start()

    def _expect(self) -> None:
        """Wait for the gradients of all parameters that are trained now."""
        self._missing = [
            {one for one in bucket.parameters if one.requires_grad} for bucket in self.each
        ]
        for number, trained in enumerate(self._missing):
            for parameter in trained - self._hooks.keys():
                register: Any = parameter.register_post_accumulate_grad_hook
                self._hooks[parameter] = register(_seeing(weakref.ref(self), number))

    def _begin(self) -> None:
        """Begin the next step, whose parameters are known when its first gradient comes."""
        self._under_way = []
        self._missing = []
        self.first = None

    @property
    def _is_forked(self) -> bool:
        """Whether this is a copy in a forked child, which has no thread."""
        return self._thread is not None and not self._thread.is_alive()

    def see(self, parameter: torch.Tensor, number: int) -> None:
        """Send what is complete with the gradient of `parameter`; called by backward()."""
        if self._is_forked:
            return
        with self._lock:
            if self.first is None:
                self.first = time.perf_counter()
            if number < len(self._under_way):
                bucket = self.each[number]
                same = [one is parameter for one in bucket.parameters]
                raise RuntimeError(CHANGED.format(index=bucket.first + same.index(True)))
            if self.holding:
                return
            if not self._missing:
                self._expect()
            self._missing[number].discard(parameter)
            while (ready := len(self._under_way)) < len(self.each) - 1:
                if self._missing[ready]:
                    return
                self._leave(self._weight())

    def _leave(self, weight: float) -> None:
        """Send the next bucket."""
        if not self._under_way:
            self._left_with = weight
        bucket = self.each[len(self._under_way)]
        self._check_weight(weight)
        bucket.gather(weight)
        future: Future[Sent] = Future()
        self._queue.put((future, bucket, weight))
        self._under_way.append(future)

    def _check_weight(self, weight: float) -> None:
        if self._under_way and weight != self._left_with:
            raise RuntimeError(
                f"the weight is {weight:g}, and gradients have left with {self._left_with:g} in "
                "backward() (bucket_bytes): set opt.weight before backward(); a step without this "
                "rank's gradients is one without backward(), with opt.weight = 0"
            )

    def finish(
        self, weight: float, loss: torch.Tensor | float | None = None, scale: float = 1.0
    ) -> float:
        """Send what has not left, and make the averages the parameters' gradients.

        Args:
            weight: of this rank's gradients.
            loss: averaged with them.
            scale: factor of the gradients, which has to be equal on all ranks.

        Returns:
            The average of `loss`.

        Raises:
            RuntimeError: gradients, or the weight, were changed after gradients had left.
            what the collectives do; what one of several buckets has raised each later step does.
        """
        last = self.each[-1]
        if self._is_forked:
            last.send(weight)  # raises HandleError
        with self._lock:
            self._check_weight(weight)
            for bucket in self.each[: len(self._under_way)]:
                bucket.check_unchanged()
            while len(self._under_way) < len(self.each) - 1:
                self._leave(weight)
        last.gather(weight, loss, scale)
        began = time.perf_counter()
        try:
            before = [future.result() for future in self._under_way]
            self.sent = [*before, last.send(last.gradients.stops.weigh(weight))]
        except Exception:  # of a collective, which is broken; after Ctrl-C they are still under way
            self._begin()
            raise
        self._begin()
        self.sent[-1].outcome.waited += sum(one.waited_after(began) for one in before)
        for bucket in self.each:
            number = bucket.gradients.hand_out()
        return number

    def average(self, flat: torch.Tensor) -> Outcome:
        """Make `flat`, which lies like all parameters, the mean of the ranks': a sync version."""
        stop = flat.numel()
        for bucket in self.each:
            content = bucket.gradients.content
            part = flat[stop - content.numel() : stop]
            stop -= content.numel()
            bucket.gradients.clear()
            content.copy_(part)
            outcome = bucket.collective.sync(bucket.gradients.memory)
            part.copy_(content)
        return outcome

    @property
    def are_under_way(self) -> bool:
        """Whether gradients have left that no step has used."""
        return bool(self._under_way)

    def drain(self) -> None:
        """Wait until what is under way has ended, well or not."""
        if not self._is_forked:
            wait(self._under_way)

    def close(self) -> None:
        """Remove the hooks, and end the thread when it has sent what is under way."""
        self._end()


_Queue = SimpleQueue[tuple[Future[Sent], Bucket, float] | None]


def _seeing(buckets: weakref.ref[Buckets], number: int) -> Callable[[torch.Tensor], None]:
    """Return the hook of a parameter of bucket `number`."""

    def see(parameter: torch.Tensor) -> None:
        if (found := buckets()) is not None:
            found.see(parameter, number)

    return see


def _end(hooks: dict[torch.Tensor, RemovableHandle], queue: _Queue) -> None:
    for hook in hooks.values():
        hook.remove()
    hooks.clear()
    queue.put(None)


def _send(queue: _Queue) -> None:
    """Send buckets one after the other; the thread's function.

    After an error none is sent any more: that of one collective ends the training, and waiting in
    each of the others would take its timeout again.
    """
    broken: BaseException | None = None
    while (task := queue.get()) is not None:
        future, bucket, weight = task
        try:
            if broken is not None:
                raise broken
            sent = bucket.send(weight)
        except BaseException as error:  # the step raises it
            broken = error
            future.set_exception(error)
        else:
            future.set_result(sent)
        del task, future, bucket
