"""Preemption: end a training in time, save it, and continue in another job."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, Self, SupportsIndex

from wagma.inject.checks import check_count
from wagma.launch.environment import job_end, job_number, restart_count
from wagma.launch.logs import RankLogger
from wagma.preemption.requeue import EXIT_RESTART, requeue
from wagma.preemption.signals import Handlers

if TYPE_CHECKING:
    from wagma.collectives.rendezvous.meeting import Comm
    from wagma.training.optimizer import DistributedOptimizer

SIGNALS = (signal.SIGUSR2, signal.SIGTERM)  # NCCL takes SIGUSR1


class Saver(Protocol):
    """The part of `wagma.checkpoint.Checkpointer` that `Preemption` needs.

    Attributes:
        restarts: number of restarts of the job.
        started_version: version at which this run began.
    """

    @property
    def restarts(self) -> int:  # noqa: D102 (above)
        ...

    @property
    def started_version(self) -> int:  # noqa: D102 (above)
        ...

    def save(self) -> None:
        """Save a checkpoint; collective."""

    def wait(self) -> None:
        """Wait until the checkpoint is on the disk of all ranks; collective."""

    def saved_since_start(self) -> bool:
        """Return whether this run has a complete checkpoint after `started_version`; local."""

    def note_restart(self) -> None:
        """Count a restart."""

    def close(self) -> None:
        """Unlock the folder."""


class Preemption:
    """After a signal to any rank end the training on all ranks, save it, and restart the job.

    ::

        with wagma.DistributedOptimizer(inner, wagma.WAGMA(), model=model) as opt:
            saver = Checkpointer("checkpoints", opt, model=model, every=100)
            with Preemption(optimizer=opt, checkpointer=saver) as preemption:
                saver.load()
                while opt.version < steps and not preemption.stopping:
                    ...
                    opt.step()
                    saver.maybe_save()
                preemption.finish()
            opt.synchronize()

    A signal handler only requests the end of the training, and calls the handler that was installed
    before. The next versions carry the request, see `DistributedOptimizer.request_stop`, and
    `stopping` becomes true on all ranks after the same version. `finish` then saves, and has Slurm
    requeue this job; without Slurm the program ends with exit code 85, which asks its batch script
    to restart it.

    Create it before the optimizer to catch signals during that creation::

        with Preemption() as preemption:
            with wagma.DistributedOptimizer(...) as opt:
                saver = Checkpointer("checkpoints", opt, model=model)
                preemption.attach(opt, saver)

    Creation with an optimizer is collective, and so is `attach`. Handlers are installed in the main
    thread only, not in forked processes, and removed at the end of the with block.

    Args:
        comm: the ranks of the optimizer's algorithm; "auto": take them from the algorithm.
        signals: signals that end the training.
        optimizer: optimizer of the training; None: see `attach`.
        checkpointer: saves in `finish`; None: the program saves by itself.
        max_restarts: number of restarts after which `finish` gives up, with exit status 1.
        margin: seconds before the end of a Slurm job, by SLURM_JOB_END_TIME, at which this rank
            requests the end without a signal; `stopping` checks the time. None: never.
        every: see `DistributedOptimizer.watch_stops`.

    Raises:
        TypeError, ValueError: an argument is wrong.
        what `watch_stops` does.

    Attributes:
        received: the caught signals, in order.
    """

    def __init__(
        self,
        comm: Comm = "auto",
        signals: Iterable[int] = SIGNALS,
        *,
        optimizer: DistributedOptimizer | None = None,
        checkpointer: Saver | None = None,
        max_restarts: SupportsIndex = 100,
        margin: float | None = None,
        every: SupportsIndex | None = None,
    ) -> None:
        self.received: list[signal.Signals] = []
        self._comm = comm
        self._max_restarts = check_count("max_restarts", max_restarts, 0)
        self._every = every
        self._deadline = _deadline(margin)
        self._requested = False
        self._optimizer: DistributedOptimizer | None = None
        self._saver: Saver | None = None
        self._began = 0
        self._handlers = Handlers(signals, self._receive)
        if optimizer is None:
            return
        try:
            self.attach(optimizer, checkpointer)
        except BaseException:
            self.close()
            raise

    def attach(self, optimizer: DistributedOptimizer, checkpointer: Saver | None = None) -> None:
        """Serve this training; collective. Signals caught before count."""
        algorithm = optimizer.algorithm
        if self._comm != "auto":
            from wagma.collectives.rendezvous.meeting import rank_and_size

            given, used = rank_and_size(self._comm), (algorithm.rank, algorithm.size)
            if given != used:
                raise ValueError(
                    f"comm has this process as rank {given[0]} of {given[1]}, and {algorithm!r} as "
                    f"{used[0]} of {used[1]}: leave comm out, or pass the same one to both"
                )
        algorithm.stops.wanted |= self._requested
        optimizer.watch_stops(self._every)
        self._began = optimizer.version
        self._saver = checkpointer
        self._optimizer = optimizer
        log = RankLogger(__name__, algorithm.rank, algorithm.size)
        if not self._handlers.installed:
            log.warning(
                "signals are not caught: Preemption was made in a thread, and Python runs handlers "
                "in the main one"
            )
        if self._deadline is not None and not math.isfinite(self._deadline):
            log.warning("SLURM_JOB_END_TIME is not set: margin has no effect")
        if self._requested:
            optimizer.request_stop()

    def _receive(self, number: signal.Signals) -> None:
        self.received.append(number)
        self.request_stop()

    def request_stop(self) -> None:
        """Request the end of the training, as a signal does."""
        self._requested = True
        if self._optimizer is not None:
            self._optimizer.request_stop()

    @property
    def stopping(self) -> bool:
        """Whether all ranks end the training here; test it in every step."""
        if (
            not self._requested
            and self._deadline is not None
            and time.monotonic() >= self._deadline
        ):
            self.request_stop()
        return self._optimizer is not None and self._optimizer.stopping

    def finish(self) -> None:
        """If the ranks are `stopping`, save and restart the job; otherwise do nothing.

        Collective; call it after the loop. Rank 0 has Slurm requeue the job, or this task of an
        array. Without Slurm, or if Slurm refuses, exit code `EXIT_RESTART`, 85, tells the batch
        script to restart the job. The optimizer and the checkpointer are closed.

        Raises:
            SystemExit: always if `stopping`. 0: the job is requeued. 85: see above. 1: the job was
                restarted too often, or has made no step since its start and never would.
            what ``checkpointer.save`` raises if this job has saved nothing since its start: it is
                not restarted. Otherwise the error is logged, and the job restarts from its last
                checkpoint.
            RuntimeError: there is no optimizer.
        """
        optimizer, saver = self._optimizer, self._saver
        if optimizer is None:
            raise RuntimeError(
                "finish() of a Preemption without an optimizer: pass one, or attach()"
            )
        if not self.stopping:
            return
        algorithm = optimizer.algorithm
        if not algorithm.joins:  # servers hold the parameters
            optimizer.synchronize()
        log = RankLogger(__name__, algorithm.rank, algorithm.size)
        error = None if saver is None else _save(saver, log)
        progress = optimizer.version > (self._began if saver is None else saver.started_version)
        restarts = max(restart_count(os.environ), 0 if saver is None else saver.restarts)

        def decide() -> int | None:
            if algorithm.rank != 0:
                return None
            if error is not None:
                if not _has_saved(saver):
                    return None
                log.error(
                    "version %d was not saved: %s. The training goes on from an earlier checkpoint "
                    "of this run",
                    *(optimizer.version, error),
                )
            return self._start_again(log, restarts, progress=progress)

        with algorithm.meet() as meeting:
            status = meeting.exchange(decide, last=True)[0]
        if error is not None and status is None:
            raise error
        if saver is not None:
            _close(saver, log)
        optimizer.close()
        self._handlers.ignore()  # Slurm may signal twice: the exit status would be lost
        raise SystemExit(status)

    def _start_again(self, log: RankLogger, restarts: int, *, progress: bool) -> int:
        """Try to restart the job from rank 0, and return the exit status."""
        assert self._optimizer is not None
        if not progress:
            log.error(
                "no step was made since the job started at version %d, and it is not started "
                "again, because it would get no further. Give it more time, or stop it later "
                "(--signal, margin)",
                self._optimizer.version,
            )
            return 1
        if restarts >= self._max_restarts:
            log.error(
                "the job was started again %d times, and max_restarts=%d: it is saved, and not "
                "started again",
                *(restarts, self._max_restarts),
            )
            return 1
        names = ", ".join(number.name for number in self.received)
        reason = names or "another rank got a signal, or request_stop() was called"
        log.info("stops at version %d (%s)", self._optimizer.version, reason)
        if self._saver is not None:
            try:
                self._saver.note_restart()
            except OSError as error:
                log.warning("the restart cannot be counted: %s", error)
        job = job_number(os.environ)
        if job is None:
            log.info("there is no Slurm job: start the program again (exit code %d)", EXIT_RESTART)
            return EXIT_RESTART
        return 0 if requeue(job, log) else EXIT_RESTART

    def close(self) -> None:
        """Remove the handlers; may be called again."""
        self._handlers.restore()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _save(saver: Saver, log: RankLogger) -> OSError | None:
    """Save, and try again after an error; return the second error.

    The first error may be that of an earlier save.
    """
    for last in (False, True):
        try:
            saver.save()
            saver.wait()
        except OSError as error:  # on every rank
            if last:
                return error
            log.warning("saving is tried again: %s", error)
        else:
            break
    return None


def _has_saved(saver: Saver | None) -> bool:
    try:
        return saver is not None and saver.saved_since_start()
    except OSError:  # its folder cannot be read
        return False


def _close(saver: Saver, log: RankLogger) -> None:
    """Close the checkpointer, whose latest save may have failed."""
    try:
        saver.close()
    except OSError as error:
        log.error("%s", error)


def _deadline(margin: float | None) -> float | None:
    """Return the time.monotonic at which to stop; infinity: the end of the job is not known."""
    if margin is None:
        return None
    if isinstance(margin, (str, bool)) or not isinstance(margin, (int, float)):
        raise TypeError(f"margin={margin!r} must be a number of seconds, or None")
    if not 0 <= margin < math.inf:
        raise ValueError(f"margin={margin} must be 0 or more seconds")
    end = job_end(os.environ)
    return math.inf if end is None else time.monotonic() + (end - time.time()) - margin
