"""Checkpoints of a distributed training in a folder that all ranks share."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self, SupportsIndex

import torch

from wagma.checkpoint.asynchronous import Copies, Writer
from wagma.checkpoint.contents import compact, snapshot
from wagma.checkpoint.errors import CheckpointError, describe, together
from wagma.checkpoint.export import export_mean
from wagma.checkpoint.folder import Folder
from wagma.checkpoint.names import Place
from wagma.checkpoint.opening import OpenFolder
from wagma.checkpoint.parts import Parts, Stateful
from wagma.checkpoint.reading import read_newest, resume
from wagma.collectives.options import check_switch
from wagma.inject.checks import check_count
from wagma.launch.logs import RankLogger
from wagma.training.optimizer import DistributedOptimizer
from wagma.training.strategies.parameter_server import ParameterServerSGD
from wagma.units import size_text, time_text

__all__ = ["Checkpointer"]


class Checkpointer:
    """Saves a training so that a crash at any moment leaves the last checkpoint whole.

    ::

        with wagma.DistributedOptimizer(inner, wagma.WAGMA(), model=model) as opt:
            saver = Checkpointer(
                "checkpoints", opt, model=model, every=100, extra={"sampler": sampler}
            )
            saver.load()
            while opt.version < steps:
                ...
                opt.step()
                saver.maybe_save()

    Each rank writes a file of its own: the model, the inner optimizer's state, that of algorithm
    and policy with the version, the random numbers of Python, numpy and torch, and the states of
    `extra`. Then it writes a manifest with the checksum. Each file is on the disk before it
    gets its name. A checkpoint counts when the manifests of all ranks are there.
    ``docs/checkpoints.md`` says how exactly a training resumes, and on another number of ranks.

    Creation is collective. Rank 0 locks the folder, for as long as its process lives or until
    `close`.

    Args:
        directory: a folder that all ranks see; created if it is missing.
        optimizer: the training's, open.
        model: the one that it trains; None: only the optimizer's parameters are saved.
        every: versions from one save of `maybe_save` to the next; None: it never saves.
        keep: whole checkpoints that stay; older ones are removed.
        asynchronous: saving copies the state and returns; a thread writes. Takes memory for one
            copy, which stays.
        extra: objects with ``state_dict()`` and ``load_state_dict()``, such as samplers and
            learning-rate schedulers: a dict of them by name, or a list, where each has the name of
            its class.

    Attributes:
        directory: its path.
        restarts: how often the job was restarted, as `note_restart` has counted; on all ranks.
        started_version: version at which this run began, as that of the checkpoint it loaded.

    Raises:
        TypeError: an argument is not what it should be; objects in `extra` without both methods
            are named.
        ValueError: `every` or `keep` is below 1; parameters are not the model's; the ranks have
            different arguments; `every` with ParameterServerSGD, whose servers make one step.
        CheckpointError: the folder cannot be written or is not the same on all ranks, or another
            job uses it.
        All on every rank.

    Not thread-safe: use it in the optimizer's thread. A forked process cannot use it.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        optimizer: DistributedOptimizer,
        *,
        model: torch.nn.Module | None = None,
        every: SupportsIndex | None = None,
        keep: SupportsIndex = 2,
        asynchronous: bool = False,
        extra: Mapping[str, Stateful] | Iterable[Stateful] = (),
    ) -> None:
        if not isinstance(optimizer, DistributedOptimizer):
            raise TypeError(
                f"optimizer is a {type(optimizer).__name__}: it has to be a "
                "wagma.DistributedOptimizer"
            )
        self._algorithm = algorithm = optimizer.algorithm
        self._log = RankLogger(__name__, algorithm.rank, algorithm.size)
        self._process = os.getpid()
        self.directory = Path()
        self.every: int | None = None
        self.keep = 1
        self._asynchronous = False

        def arguments() -> dict[str, object]:
            self._parts = Parts(optimizer, model, extra)
            self.directory = Path(os.path.abspath(os.fspath(directory)))  # noqa: PTH100
            self.every = None if every is None else check_count("every", every, 1)
            self.keep = check_count("keep", keep, 1)
            check_switch("asynchronous", asynchronous)
            self._asynchronous = asynchronous
            if self.every is not None and isinstance(algorithm, ParameterServerSGD):
                raise ValueError(
                    f"every={self.every} with ParameterServerSGD, whose servers make one step for "
                    "all versions and cannot save in between: leave it out, and call save() after "
                    "synchronize()"
                )
            named = {"every": self.every, "keep": self.keep, "asynchronous": asynchronous}
            return {**named, "extra": list(self._parts.extra)}

        optimizer._check_call("Checkpointer()")
        with algorithm.meet() as meeting:
            meeting.agree(arguments, last=True)
        self._folder = Folder(self.directory)
        self._opened = OpenFolder(self._folder, algorithm, self._log)
        self.restarts: int = self._opened.restarts
        self._writer = Writer(asynchronous=self._asynchronous)
        self._cleaner = Writer(asynchronous=True)  # deleting a large file takes long
        self._copies = Copies()
        self._begin_at_version()

    def _begin_at_version(self) -> None:
        self.started_version = self._algorithm.version
        self._first_run = self._opened.run
        self._saved = 0 if self.every is None else self.started_version // self.every
        self._begun = -1  # the latest version of this run that this rank has begun to save

    # ---- saving ----------------------------------------------------------------------------------
    def save(self) -> None:
        """Save now; collective, all ranks call it at the same boundary.

        The checkpoint has the number of the largest of their versions, and replaces that of the
        same number. With `asynchronous` the files are not there yet when this returns: see
        `wait`.

        Raises:
            CheckpointError: a rank could not write, now or the last time; on every rank. The
                checkpoints before it stay.
            TypeError: a state has something that could not be read back, which is named; on every
                rank.
            RuntimeError: inside `join` or `no_sync`, after `close`, or in a forked process.
        """
        self._check("save()")
        with self._algorithm.meet() as meeting:
            told = meeting.exchange(lambda: (self._algorithm.version, self._begun), last=True)
        version = max(own for own, _ in told)
        if max(begun for _, begun in told) >= version:
            # A rank that dies would leave parts of two saves under one name.
            self._opened.begin_run()
        place = Place(self._opened.run, version)

        def write() -> None:
            error = self._writer.wait()
            self._begin_save(place)
            for raised in (error, None if self._asynchronous else self._writer.wait()):
                if raised is not None:
                    raise raised

        together(self._algorithm, write, f"save {place}")

    def maybe_save(self) -> bool:
        """Save if `version` has passed a multiple of `every` since the last time; local.

        Each rank calls it after each of its steps: nobody waits for the others. A checkpoint that
        could not be written, because the disk is full, is logged as an error, and the training goes
        on. With `asynchronous` that is told at the next call, which also waits for the writing that
        is under way when the next save begins.

        Returns:
            Whether this rank has saved, or begun to.

        Raises:
            TypeError: a state has something that could not be read back, which is named.
            RuntimeError: after `close`, or in a forked process.
        """
        self._check_process("maybe_save()")
        passed = 0 if self.every is None else self._algorithm.version // self.every
        if self.every is None or passed <= self._saved:
            return False
        self._log_failure(self._writer.wait())
        self._begin_save(Place(self._opened.run, passed * self.every))
        if not self._asynchronous:
            return self._log_failure(self._writer.wait())
        return True

    def _log_failure(self, error: Exception | None) -> bool:
        """Log an error; return whether there is none."""
        if error is None:
            return True
        if not isinstance(error, OSError):
            raise error
        self._log.error(
            "a checkpoint was not saved, the training goes on: %s",
            describe(error),
            exc_info=error,
        )
        return False

    def _begin_save(self, place: Place) -> None:
        """Save this rank's part, or begin to."""
        began = time.perf_counter()
        algorithm = self._algorithm
        if self.every is not None:
            self._saved = max(self._saved, algorithm.version // self.every)
        state, version = self._parts.state(), algorithm.version
        training = self._parts.training(state["model"])
        copied = self._copies.copy(state) if self._asynchronous else snapshot(state, compact)
        self._begun = place.version

        def job() -> None:
            size = self._folder.write(
                place,
                copied,
                rank=algorithm.rank,
                size=algorithm.size,
                token=self._opened.token,
                version=version,
                training=training,
            )
            seconds = time.perf_counter() - began
            if algorithm.rank == 0:
                self._log.info(
                    "saved %s: %s by this rank in %s, %s/s",
                    *(place, size_text(size), time_text(seconds), size_text(size / seconds)),
                )
                self._cleaner.wait()
                self._cleaner.start(self._prune)

        self._writer.start(job)

    def _prune(self) -> None:
        try:
            self._folder.prune(self.keep, self._opened.run)
        except OSError as error:
            self._log.warning("an old checkpoint cannot be removed: %s", describe(error))

    def wait(self) -> None:
        """Wait until everything that was saved is on the disk of all ranks; collective.

        Raises:
            CheckpointError: a rank could not write; on every rank.
            RuntimeError: as by `save`.
        """
        self._check("wait()")

        def finish() -> None:
            error = self._writer.wait()
            self._cleaner.wait()
            if error is not None:
                raise error

        together(self._algorithm, finish, f"save checkpoints in {self.directory}")

    # ---- loading ---------------------------------------------------------------------------------
    def load(self) -> bool:
        """Load the newest checkpoint that is whole on all ranks; collective, at one version.

        One that is damaged, or that a job was killed in, is named in a warning, and the one before
        is taken. Nothing is changed before all ranks have read theirs. No code in a file is run.

        Returns:
            Whether there was one.

        Raises:
            CheckpointMismatchError: it is of another training; lists what does not match.
            CheckpointError: the folder cannot be read, or the last checkpoint was not written.
            RuntimeError: as by `save`; the ranks are at different versions.
            what ``load_state_dict`` of a model or an object raises, or a WagmaError that quotes
            it where wagma does not know its type; then the training is undefined.
            All on every rank.
        """
        self._check("load()")
        self.wait()
        read = read_newest(self._folder, self._parts, self._log)
        if read is not None:
            resume(self._parts, read, self._log)
        self._begin_again()
        return read is not None

    def _begin_again(self) -> None:
        """Begin at this version; another run where one has saved, whose files stay apart."""
        with self._algorithm.meet() as meeting:
            told = meeting.exchange(lambda: self._begun, last=True)
        if max(told) >= 0:
            self._opened.begin_run()
        self._begin_at_version()

    # ---- the rest --------------------------------------------------------------------------------
    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the average model as one safetensors file; collective, the training is unchanged.

        Parameters are the mean of the ranks'; those that the optimizer does not have, and buffers,
        are rank 0's. Weights that are tied are written once: the file's metadata has the names of
        the others, each with the name that it is the same as.

        Args:
            path: of the file, which rank 0 writes, at once or not at all.

        Raises:
            ImportError: safetensors is not installed on rank 0.
            CheckpointError: the file cannot be written.
            RuntimeError: as by `save`.
            All on every rank.
        """
        self._check("export()")
        export_mean(self._parts, Path(os.fspath(path)))

    def saved_since_start(self) -> bool:
        """Return whether this run has a whole checkpoint beyond `started_version`; local.

        Raises:
            OSError: the folder cannot be read.
        """
        self._cleaner.wait()
        return any(
            place.run >= self._first_run
            and place.version > self.started_version
            and self._folder.is_whole(place)
            for place in self._folder.places()
        )

    def note_restart(self) -> None:
        """Count a restart that is about to happen; each rank calls it, and rank 0 writes.

        Raises:
            OSError: on rank 0: it cannot be written.
        """
        self.restarts += 1
        if self._algorithm.rank == 0:
            self._folder.write_restarts(self.restarts)

    def close(self) -> None:
        """Wait for the writing, and let other jobs into the folder; local, may be called again.

        Raises:
            CheckpointError: the last checkpoint of this rank was not written.
        """
        error = self._writer.wait()
        self._cleaner.wait()
        self._opened.release()
        self._closed = True
        if error is not None:
            if isinstance(error, OSError):
                raise CheckpointError(
                    f"the last checkpoint was not saved: {describe(error)}"
                ) from error
            raise error

    _closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self, call: str) -> None:
        """Check that all ranks can meet."""
        self._check_process(call)
        self._parts.optimizer._check_call(call)

    def _check_process(self, call: str) -> None:
        if self._process != os.getpid():
            raise RuntimeError(
                f"{call} in a forked process: only the process that trains saves checkpoints"
            )
        if self._closed:
            raise RuntimeError(f"{call} after close(): make a new Checkpointer")
        self._algorithm.check_open(call)
