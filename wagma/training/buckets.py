"""Buckets of gradients that are sent while backward() computes the others."""

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import nullcontext
from queue import SimpleQueue
from typing import Any, NamedTuple

import torch
from torch.utils.hooks import RemovableHandle

from wagma.collectives import Outcome, PartialAllreduce
from wagma.training.clock import Clock, Moment
from wagma.training.flat import Layout
from wagma.training.flat_gradients import FlatGradients
from wagma.training.marks import Mark, is_same, mark_of
from wagma.training.stopping import Stops

CHANGED = (
    "the gradient of parameter {index} was changed after backward() had sent it (bucket_bytes): to "
    "clip averages call opt.clip_grad_norm_() or opt.average_gradients() after backward(), with a "
    "GradScaler opt.average_gradients(scaler); accumulate gradients inside opt.no_sync(), and "
    "compute the last of them after the block"
)


def cut(layout: Layout, bucket_bytes: int | None) -> list[tuple[int, int]]:
    """Return (first, end) of the parameters of each bucket, in the order of sending.

    backward() computes the gradients of the last parameters first, so they are sent first. A bucket
    does not split a parameter; each except the last has at least `bucket_bytes`.

    Args:
        layout: layout of all parameters.
        bucket_bytes: size of a bucket; None: one bucket has all parameters.
    """
    end = len(layout.slots)
    if bucket_bytes is None:
        return [(0, end)]
    ranges, size = [], 0
    for first in range(end - 1, -1, -1):
        size += layout.slots[first].numel * layout.dtype.itemsize
        if size >= bucket_bytes or first == 0:
            ranges.append((first, end))
            end, size = first, 0
    return ranges


class Sent(NamedTuple):
    """The averaging of a bucket."""

    outcome: Outcome  # outcome of the collective
    began: float  # time.perf_counter when the averaging began, with gradients that are computed
    ended: float  # time.perf_counter when it ended
    waited: float  # seconds between the two spent waiting for other ranks

    def waited_after(self, time: float) -> float:
        """Return the seconds of waiting, at most those from `time` to the end."""
        return min(self.waited, max(0.0, self.ended - time))


class Bucket:
    """Some of the parameters, and the collective that averages their gradients.

    Args:
        parameters: the parameters of the bucket.
        first: index of the first one among all parameters.
        layout: layout of the bucket's parameters.
        collective: collective over all ranks.
        memory: array of the collective.
        clock: of the device that computes the gradients.
        stops: see `FlatGradients`.

    Attributes:
        parameters, first, collective: as given.
        gradients: the gradients in `memory`.
        stream: of the averaging, where a GPU goes on with backward() meanwhile; None: that of the
            gradients.
    """

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        first: int,
        layout: Layout,
        collective: PartialAllreduce,
        memory: torch.Tensor,
        clock: Clock,
        stops: Stops | None = None,
    ) -> None:
        self.parameters = parameters
        self.gradients = FlatGradients(parameters, layout, memory, first, stops)
        self.collective = collective
        self.first = first
        self._marks: list[Mark | None] = []  # of the gathered gradients
        self._clock = clock
        self._gathered = clock.mark()
        self.stream: torch.cuda.Stream | None = None

    def gather(
        self, weight: float, loss: torch.Tensor | float | None = None, scale: float = 1.0
    ) -> None:
        """Gather this rank's gradients as its contribution."""
        self._marks = []
        if weight > 0:
            self.gradients.gather(loss, scale)
            self._marks = [mark_of(parameter.grad) for parameter in self.parameters]
        else:  # the gradients are undefined
            self.gradients.clear()
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        self._gathered = self._clock.mark()

    def send(self, weight: float) -> Sent:
        """Average the gathered gradients, in any thread."""
        began = time.perf_counter()
        with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
            outcome = self.collective.allreduce(self.gradients.memory, weight)
        began = max(began, self._gathered.seconds)  # the call has waited for a GPU
        return Sent(outcome, began, time.perf_counter(), outcome.waited)

    def hand_out(self) -> float:
        """Assign the averages to the gradients, see `FlatGradients.hand_out`."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
        return self.gradients.hand_out()

    def check_unchanged(self) -> None:
        """Raise RuntimeError if a gradient has changed since it was gathered."""
        for index, mark in enumerate(self._marks):
            if not is_same(self.parameters[index].grad, mark):
                raise RuntimeError(CHANGED.format(index=self.first + index))


class Buckets:
    """Send each bucket from a thread when its gradients are complete.

    All ranks send the buckets in the same order: a complete bucket waits for those before it.
    `finish` sends the last bucket, and every bucket without a gradient on this rank.

    Parameters and thread hold weak references only, so that dropping the object ends it and other
    ranks learn of its end.

    Args:
        buckets: the buckets in order; a single one needs no thread, and `finish` sends it.
        weight: returns the weight of this rank's gradients.
        clock: of the device that computes the gradients.
        timed: record `first` even with a single bucket.

    Attributes:
        each: the buckets.
        clock: as given.
        holding: whether gradients are incomplete after backward passes, so that none is sent.
        sent: the latest average of each bucket.
        first: the first gradient of the next step; None: there is none yet, or it is not recorded.

    Thread-safe for backward passes only.
    """

    def __init__(
        self,
        buckets: Sequence[Bucket],
        weight: Callable[[], float],
        clock: Clock,
        *,
        timed: bool = False,
    ) -> None:
        self.holding = False
        self.first: Moment | None = None
        self.sent: list[Sent] = []
        self.each = buckets
        self.clock = clock
        self._weight = weight
        self._lock = threading.Lock()
        self._hooks: dict[torch.Tensor, RemovableHandle] = {}
        self._missing: list[set[torch.Tensor]] = []  # parameters without gradient, by bucket
        self._under_way: list[Future[Sent]] = []
        self._sent_weight = 1.0  # weight of the buckets under way
        self._queue: _Queue = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._end = weakref.finalize(self, _end, self._hooks, self._queue)
        self._end.atexit = False
        if len(buckets) > 1 or timed:
            self._expect()
            self._begin()
        if len(buckets) > 1:
            memory = buckets[0].gradients.memory
            if memory.is_cuda:
                stream = torch.cuda.Stream(memory.device)  # type: ignore[no-untyped-call]
                for bucket in buckets:
                    bucket.stream = stream
            self._thread = threading.Thread(target=_send, args=(self._queue,), daemon=True)
            self._thread.start()

    def _expect(self) -> None:
        """Expect a gradient of every parameter that requires one now."""
        self._missing = [
            {one for one in bucket.parameters if one.requires_grad} for bucket in self.each
        ]
        for number, trained in enumerate(self._missing):
            for parameter in trained - self._hooks.keys():
                register: Any = parameter.register_post_accumulate_grad_hook
                self._hooks[parameter] = register(_gradient_hook(weakref.ref(self), number))

    def _begin(self) -> None:
        """Begin the next step; its first gradient decides which parameters to expect."""
        self._under_way = []
        self._missing = []
        self.first = None

    @property
    def _is_forked(self) -> bool:
        """Whether this is a forked child's copy, which has no thread."""
        return self._thread is not None and not self._thread.is_alive()

    def see(self, parameter: torch.Tensor, number: int) -> None:
        """Send the buckets that the gradient of `parameter` completes; called by backward()."""
        if self._is_forked:
            return
        with self._lock:
            if self.first is None:
                self.first = self.clock.mark()
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
                self._send_next(self._weight())

    def _send_next(self, weight: float) -> None:
        """Send the next bucket."""
        if not self._under_way:
            self._sent_weight = weight
        bucket = self.each[len(self._under_way)]
        self._check_weight(weight)
        bucket.gather(weight)
        future: Future[Sent] = Future()
        self._queue.put((future, bucket, weight))
        self._under_way.append(future)

    def _check_weight(self, weight: float) -> None:
        if self._under_way and weight != self._sent_weight:
            raise RuntimeError(
                f"the weight is {weight:g}, and backward() sent gradients with weight "
                f"{self._sent_weight:g} (bucket_bytes): set opt.weight before backward(); for "
                "a step without this rank's gradients set opt.weight = 0 and leave backward() out"
            )

    def finish(
        self, weight: float, loss: torch.Tensor | float | None = None, scale: float = 1.0
    ) -> float:
        """Send the remaining buckets, and assign the averages to the parameters' gradients.

        Args:
            weight: weight of this rank's gradients.
            loss: averaged with the gradients.
            scale: factor of the gradients, which has to be equal on all ranks.

        Returns:
            The average of `loss`.

        Raises:
            RuntimeError: gradients or the weight changed after gradients were sent.
            what the collectives raise; after an error in one of several buckets every later step
            raises it.
        """
        last = self.each[-1]
        if self._is_forked:
            last.send(weight)  # raises HandleError
        with self._lock:
            self._check_weight(weight)
            for bucket in self.each[: len(self._under_way)]:
                bucket.check_unchanged()
            while len(self._under_way) < len(self.each) - 1:
                self._send_next(weight)
        last.gather(weight, loss, scale)
        began = time.perf_counter()
        try:
            before = [future.result() for future in self._under_way]
            self.sent = [*before, last.send(last.gradients.stops.weigh(weight))]
        except Exception:  # a collective has failed; not after Ctrl-C, with buckets still under way
            self._begin()
            raise
        self._begin()
        self.sent[-1].outcome.waited += sum(one.waited_after(began) for one in before)
        for bucket in self.each:
            number = bucket.hand_out()
        return number

    def average(self, flat: torch.Tensor) -> Outcome:
        """Average `flat`, which has the layout of all parameters, in a sync version."""
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
        """Whether gradients were sent that no step has used."""
        return bool(self._under_way)

    def drain(self) -> None:
        """Wait until the buckets under way have succeeded or failed."""
        if not self._is_forked:
            wait(self._under_way)

    def close(self) -> None:
        """Remove the hooks, and end the thread after the buckets under way."""
        self._end()


_Queue = SimpleQueue[tuple[Future[Sent], Bucket, float] | None]


def _gradient_hook(buckets: weakref.ref[Buckets], number: int) -> Callable[[torch.Tensor], None]:
    """Return the hook of a parameter of bucket `number`."""

    def see(parameter: torch.Tensor) -> None:
        if (alive := buckets()) is not None:
            alive.see(parameter, number)

    return see


def _end(hooks: dict[torch.Tensor, RemovableHandle], queue: _Queue) -> None:
    for hook in hooks.values():
        hook.remove()
    hooks.clear()
    queue.put(None)


def _send(queue: _Queue) -> None:
    """Send buckets one after the other; main function of the thread.

    After an error it sends no further bucket: the error ends the training, and each other
    collective would wait for its whole timeout again.
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
