"""The checkpointer: saves and loads a training in a folder that all ranks share."""

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
from wagma.collectives.option_values import check_switch
from wagma.inject.checks import check_count
from wagma.launch.logs import RankLogger
from wagma.training.optimizer import DistributedOptimizer
from wagma.training.strategies.parameter_server import ParameterServerSGD
from wagma.units import size_text, time_text


class Checkpointer:
    """Save a training so that a crash at any moment leaves the last checkpoint complete.

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

    Each rank writes one file: the model, the states of the inner optimizer, the algorithm and the
    policy, the version, the random states of Python, numpy and torch, and the states of `extra`.
    Then it writes a manifest with the checksum. A file gets its name only when it is on the disk. A
    checkpoint is complete when the manifests of all ranks exist. ``docs/checkpoints.md`` tells how
    exactly a training resumes, also on another number of ranks.

    Creation is collective. Rank 0 locks the folder until `close`, or the end of its process.

    Args:
        directory: a folder that all ranks see; created if it is missing.
        optimizer: the open optimizer of the training.
        model: the model that it trains; None: save only the optimizer's parameters.
        every: versions from one save of `maybe_save` to the next; None: `maybe_save` never saves.
        keep: number of complete checkpoints to keep; older ones are removed.
        asynchronous: copy the state, return, and write in a thread. The memory of the copy stays
            allocated.
        extra: objects with ``state_dict()`` and ``load_state_dict()``, such as samplers and
            learning-rate schedulers: a dict by name, or a list, which names each by its class.

    Attributes:
        directory: path of the folder.
        started_version: version at which this run began, such as that of the loaded checkpoint.

    Raises:
        TypeError: an argument has a wrong type, or an object in `extra`, which the message names,
            lacks a method.
        ValueError: `directory` is empty; `every` or `keep` is below 1; parameters are not the
            model's; the ranks have different arguments; `every` with
            ParameterServerSGD, whose servers make one step.
        CheckpointError: the folder cannot be written or differs between the ranks, or another job
            uses it.
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
            if not isinstance(directory, str | os.PathLike) or not os.fspath(directory):
                raise (ValueError if directory == "" else TypeError)(
                    f"directory is {directory!r}: pass the path of a folder, such as '.'"
                )
            self.directory = Path(os.path.abspath(os.fspath(directory)))  # noqa: PTH100
            self.every = None if every is None else check_count("every", every, 1)
            self.keep = check_count("keep", keep, 1)
            check_switch("asynchronous", asynchronous)
            self._asynchronous = asynchronous
            if self.every is not None and isinstance(algorithm, ParameterServerSGD):
                raise ValueError(
                    f"every={self.every} with ParameterServerSGD, whose servers make one step for "
                    "all versions and cannot save in between: leave every out, and call save() "
                    "after synchronize()"
                )
            named = {"every": self.every, "keep": self.keep, "asynchronous": asynchronous}
            return {**named, "extra": list(self._parts.extra)}

        optimizer._check_call("Checkpointer()")
        with algorithm.meet() as meeting:
            meeting.agree(arguments, last=True)
        self._folder = Folder(self.directory)
        self._opened = OpenFolder(self._folder, algorithm, self._log)
        self._writer = Writer(asynchronous=self._asynchronous)
        self._cleaner = Writer(asynchronous=True)  # deleting a large file takes long
        self._copies = Copies()
        self._begin_at_version()

    def _begin_at_version(self) -> None:
        self.started_version = self._algorithm.version
        self._first_run = self._opened.run
        self._saved = 0 if self.every is None else self.started_version // self.every
        self._begun = -1  # latest version of this run that this rank began to save

    # ---- saving ----------------------------------------------------------------------------------
    def save(self) -> None:
        """Save now; collective, after the same step on all ranks.

        The checkpoint is numbered by the ranks' largest version, and replaces one of that number.
        With `asynchronous` the files may not exist yet when this returns: see `wait`.

        Raises:
            CheckpointError: a rank could not write, now or the last time; on every rank. Earlier
                checkpoints stay.
            TypeError: a state contains a value that could not be read back, which the message
                names; on every rank.
            RuntimeError: inside `join` or `no_sync`, after `close`, or in a forked process.
        """
        self._check("save()")
        with self._algorithm.meet() as meeting:
            pairs = meeting.exchange(lambda: (self._algorithm.version, self._begun), last=True)
        version = max(own for own, _ in pairs)
        if max(begun for _, begun in pairs) >= version:
            # In the same run a rank that dies would leave parts of two saves under one name.
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
        """Save if `version` has passed a multiple of `every` since the last save; local.

        Call it on each rank after each step; no rank waits for the others. If a checkpoint cannot
        be written, for example because the disk is full, an error is logged and the training goes
        on. With `asynchronous` the error is logged at the next save, which also waits for a write
        in progress.

        Returns:
            Whether this rank has saved, or started to.

        Raises:
            TypeError: a state contains a value that could not be read back, which the message
                names.
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
        """Log an error, if any; return whether there was none."""
        if error is None:
            return True
        if not isinstance(error, OSError):
            raise error
        self._log.error(
            "a checkpoint was not saved, the training goes on: %s", describe(error), exc_info=error
        )
        return False

    def _begin_save(self, place: Place) -> None:
        """Save this rank's part, or start the thread that does."""
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
        """Wait until all saved checkpoints are on the disk; collective.

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
        """Load the newest complete checkpoint; collective, at one version of all ranks.

        A warning names each damaged or incomplete checkpoint, and the one before is tried. Nothing
        changes until all ranks have read their files. No code from a file is run.

        Returns:
            Whether there was a checkpoint.

        Raises:
            CheckpointMismatchError: the checkpoint is of another training, or of another version of
                wagma; lists all differences.
            CheckpointError: the folder cannot be read, or the last checkpoint was not written.
            RuntimeError: as by `save`; the ranks are at different versions.
            what ``load_state_dict`` of a model or an object raises, or a WagmaError that quotes
            an exception of an unknown type; the state of the training is undefined then.
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
        """Begin at this version; if a rank has saved, as a new run with files of its own."""
        with self._algorithm.meet() as meeting:
            begun = meeting.exchange(lambda: self._begun, last=True)
        if max(begun) >= 0:
            self._opened.begin_run()
        self._begin_at_version()

    # ---- the rest --------------------------------------------------------------------------------
    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the average model to a safetensors file; collective, leaves the training unchanged.

        Trained parameters are averaged over the ranks; all other parameters and the buffers are
        those of rank 0. Tied weights are written once: the file's metadata maps each further name
        to the written one.

        Args:
            path: path of the file, which rank 0 writes completely or not at all.

        Raises:
            ImportError: safetensors is not installed on rank 0.
            CheckpointError: the file cannot be written.
            RuntimeError: as by `save`.
            All on every rank.
        """
        self._check("export()")
        export_mean(self._parts, Path(os.fspath(path)))

    def saved_since_start(self) -> bool:
        """Return whether this run has a complete checkpoint after `started_version`; local.

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

    @property
    def restarts(self) -> int:
        """Return the number of restarts of the job, as counted by `note_restart`; on all ranks."""
        return self._opened.restarts

    def note_restart(self) -> None:
        """Count a coming restart; call it on each rank, rank 0 writes the count.

        Raises:
            OSError: the count cannot be written; on rank 0.
        """
        self._opened.restarts += 1
        if self._algorithm.rank == 0:
            self._folder.write_restarts(self.restarts)

    def close(self) -> None:
        """Wait for writes in progress, and unlock the folder; local, may be called again.

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
        """Check that a collective call is possible."""
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
