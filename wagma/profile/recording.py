"""Recording of what the ranks of a training do."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self, TypeVar

from wagma.launch.files import check_writable
from wagma.profile.files import save
from wagma.profile.merging import merge, pack
from wagma.profile.steps import LOOP, Steps
from wagma.profile.watch import Watch
from wagma.units import plural

if TYPE_CHECKING:
    import torch

    from wagma.collectives.rendezvous.meeting import Comm, Meeting

T = TypeVar("T")

PATIENCE_S = 10.0  # for other ranks, after an exception of the loop
_log = logging.getLogger("wagma")
_recording: Profile | None = None  # in this process


class Profile:
    """Record what each rank of a training does in each step, within a with block.

    ::

        with wagma.Profile(comm, "profile.json") as profile:
            for inputs, targets in profile.batches(loader):
                opt.zero_grad()
                loss(model(inputs), targets).backward()
                opt.step()

    Steps end with each step of a `wagma.DistributedOptimizer` or, without one, of the first torch
    optimizer that makes a step; in other loops with `step`. A step's time is divided into input,
    compute, communication and wait, see `wagma.profile.TrainingProfile`. Compute ends when the rank
    arrives at a collective: at those of `wagma.DistributedOptimizer`; at the end of the last
    gradient with DistributedDataParallel, which averages within ``backward()``; at `communication`
    blocks; without any of these at the last gradient before the step of a torch optimizer, if the
    ranks wait for each other in between.

    Entering and leaving the block are collective; nothing is sent in between. At the end rank 0
    writes the file, also after an exception if all ranks come within 10 s. Times are those of the
    thread that enters the block, on the CPU.

    Args:
        comm: the ranks that train together, as for an algorithm: an mpi4py intracommunicator,
            "auto" or None; see `wagma.collectives.PartialAllreduce`.
        path: file to write, in a folder that exists.
        warmup: number of steps at the beginning to leave out, 1 or more.
        model: the model, if it is or has a DistributedDataParallel; None: all such modules of the
            process are watched.

    Raises:
        TypeError, ValueError: an argument is wrong.
        OSError: rank 0 cannot write the file.
        MismatchError: `path` or `warmup` differ between the ranks.
        RuntimeError: another profile is recorded; at the end of the block: no step was recorded.
        All on every rank, on entering the block but for the last. What `PartialAllreduce` raises
        for a wrong `comm`.

    Not thread-safe.
    """

    def __init__(
        self,
        comm: Comm,
        path: str | os.PathLike[str],
        *,
        warmup: int = 3,
        model: torch.nn.Module | None = None,
    ) -> None:
        self._comm = comm
        self._path = path
        self._warmup = warmup
        self._model = model
        self._steps: Steps | None = None
        self._watch: Watch | None = None
        self._thread = 0

    def __enter__(self) -> Self:
        global _recording
        from wagma.collectives.rendezvous.meeting import Meeting
        from wagma.collectives.rendezvous.patience import Patience

        with Meeting(self._comm, Patience(name="Profile")) as meeting:

            def check() -> dict[str, object]:
                self._check()
                return {"path": os.fspath(self._path), "warmup": self._warmup}

            meeting.agree(check)
            self._on_rank_0(meeting, lambda: check_writable(Path(self._path)))
        self._thread = threading.get_ident()
        self._steps = Steps(self._warmup)
        self._watch = Watch(self._steps, self._model)
        _recording = self
        return self

    def _check(self) -> None:
        from wagma.inject.checks import check_count

        if _recording is not None:
            raise RuntimeError(
                f"a Profile is recorded already, into {_recording._path}: profiles cannot be "
                "nested, so end that block first"
            )
        if self._steps is not None:
            raise RuntimeError("this Profile was recorded already: make another one")
        if not isinstance(self._path, str | os.PathLike):
            raise TypeError(f"path is {self._path!r}: give a file to write, as 'profile.json'")
        self._warmup = check_count("warmup", self._warmup, 1)
        if self._model is not None:
            torch = sys.modules.get("torch")
            if torch is None or not isinstance(self._model, torch.nn.Module):
                raise TypeError(
                    f"model is a {type(self._model).__name__}: give a torch.nn.Module, or None"
                )

    # ---- the loop --------------------------------------------------------------------------------
    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """Yield the batches of `loader`, and record the time in which the loop waits for each."""
        steps = self._recorded("batches()")
        began = perf_counter()
        batches = iter(loader)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            steps.add_input(perf_counter() - began)
            yield batch
            began = perf_counter()

    def communication(self, nbytes: int) -> Communication:
        """Return a with block around a collective that wagma does not see, such as an Allreduce.

        ::

            with profile.communication(gradients.nbytes):
                comm.Allreduce(MPI.IN_PLACE, gradients)

        All ranks make the same ones in a step. A block inside another one, or in another thread,
        is not recorded.

        Args:
            nbytes: bytes of this rank's contribution, 0 or more.

        Raises:
            TypeError, ValueError: `nbytes` is no such number.
            RuntimeError: outside of the with block of the profile.
        """
        from wagma.inject.checks import check_count

        began = perf_counter()
        steps = self._recorded("communication()")
        block = Communication(steps, self._thread, check_count("nbytes", nbytes, 0))
        steps.hook_seconds += perf_counter() - began
        return block

    def step(self) -> None:
        """End a step; for loops without a torch optimizer, or in which a step has several.

        From the first call on optimizers end no steps.

        Raises:
            RuntimeError: outside of the with block of the profile.
        """
        now = perf_counter()
        steps = self._recorded("step()")
        steps.end(now, LOOP, self)
        steps.hook_seconds += perf_counter() - now

    def _recorded(self, call: str) -> Steps:
        if self._steps is None or _recording is not self:
            raise RuntimeError(f"{call} outside of the profile's with block: call it inside")
        return self._steps

    # ---- the end ---------------------------------------------------------------------------------
    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        global _recording
        _recording = None
        assert self._watch is not None
        self._watch.close()
        try:
            self._write(error)
        except Exception as failed:
            if error is None:
                raise
            _log.warning("the profile %s was not written: %s", self._path, failed)

    def _write(self, error: BaseException | None) -> None:
        from wagma.collectives.rendezvous.meeting import Meeting
        from wagma.collectives.rendezvous.patience import Patience

        patience = Patience(name="Profile")
        if error is not None:
            patience = patience._replace(timeout=PATIENCE_S)
        with Meeting(self._comm, patience) as meeting:
            records = meeting.gather(self._record)
            self._on_rank_0(meeting, lambda: save(merge(records or ()), self._path))

    def _on_rank_0(self, meeting: Meeting, write: Callable[[], None]) -> None:
        """Call `write` on rank 0; an error of the disk is raised on every rank."""
        from wagma.logs.lines import open_on_all

        def written() -> None:
            try:
                if meeting.rank == 0:
                    write()
            except OSError as error:
                error.filename = os.fspath(self._path)  # not the file that would replace it
                raise

        open_on_all(meeting, written)

    def _record(self) -> dict[str, Any]:
        """Return what this rank recorded."""
        steps, watch = self._steps, self._watch
        assert steps is not None and watch is not None
        if not steps.rows:
            raise RuntimeError(self._nothing(steps.seen))
        return {
            "host": socket.gethostname(),
            "rows": pack(steps.rows),
            "calls": pack(steps.calls),
            "gaps": pack(steps.gaps),
            "passes": pack(steps.passes),
            "hook_seconds": steps.hook_seconds,
            "model_bytes": watch.model_bytes,
            "method": watch.method,
        }

    def _nothing(self, seen: int) -> str:
        """Say why no step was recorded."""
        if seen:
            return (
                f"Profile recorded no step: the loop made {plural(seen, 'step')}, and the first "
                f"{self._warmup} are left out (warmup): make more steps, or set warmup=1"
            )
        return (
            "Profile recorded no step: no optimizer of torch or wagma made one in the with block; "
            "call profile.step() at the end of each step, and import torch before the block"
        )


class Communication:
    """A collective that is recorded; see `Profile.communication`."""

    __slots__ = ("_arrived", "_size", "_steps", "_thread")
    _inside = False

    def __init__(self, steps: Steps, thread: int, size: int) -> None:
        self._steps = steps
        self._thread = thread
        self._size = size
        self._arrived: float | None = None

    def __enter__(self) -> None:
        if not Communication._inside and threading.get_ident() == self._thread:
            Communication._inside = True
            self._arrived = perf_counter()

    def __exit__(self, *_: object) -> None:
        if self._arrived is not None:
            now = perf_counter()
            Communication._inside = False
            self._steps.add_call(self._arrived, now, self._size)
            self._arrived = None
            self._steps.hook_seconds += perf_counter() - now
