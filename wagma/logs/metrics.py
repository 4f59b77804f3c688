"""The metrics of a training, in one file of JSON lines per rank."""

from __future__ import annotations

import logging
import os
import socket
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from wagma.launch.environment import restart_count
from wagma.logs.board import Board, is_wanted
from wagma.logs.lines import LineFile, open_on_all, rank_file
from wagma.logs.numbers import NOT_FINITE, as_number, dump
from wagma.logs.reading import latest_run
from wagma.logs.summary import Summary, own_figures, summarize, table

if TYPE_CHECKING:
    from wagma.training.optimizer import DistributedOptimizer

_OWN = {"event", "rank", "run", "time", "version", NOT_FINITE}  # reserved names
_log = logging.getLogger("wagma")


class MetricsWriter:
    """Append a line of JSON per step to this rank's file: ``DIRECTORY/rank-00003.jsonl``.

    A line has the time, the version, the numbers of ``optimizer.stats()`` and those of the loop.
    The first line of each run describes host, process and algorithm. Runs are numbered: if a
    resumed training repeats versions, their lines have a larger "run". `read_metrics` merges them.

    Creation is collective over the ranks of the optimizer, and so is the end of the with block,
    which logs a `summary`; `log` and `close` are local. A later error of the disk is logged once,
    and the training goes on.

    Args:
        directory: folder for the files of all ranks; created if it is missing.
        optimizer: optimizer whose stats are written.
        every: write a line when the version passes a multiple of it; other calls are ignored. 1:
            write a line in each call.
        tensorboard: also write scalars for TensorBoard to ``DIRECTORY/tensorboard/rank-00003``;
            "auto": if it is installed.
        flush_seconds: a call writes lines that have waited for longer. 0: write each line at once.
        summary: log a summary at the end of the with block; False: the end is then local.

    Raises:
        TypeError, ValueError: an argument is wrong.
        ImportError: tensorboard=True, and TensorBoard is not installed.
        OSError: a file cannot be created.
        All on every rank.

    Not thread-safe.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        optimizer: DistributedOptimizer,
        *,
        every: int = 1,
        tensorboard: bool | Literal["auto"] = "auto",
        flush_seconds: float = 5.0,
        summary: bool = True,
    ) -> None:
        algorithm = optimizer.algorithm
        self._optimizer = optimizer
        self._rank = algorithm.rank
        self._directory = Path(directory)
        self._every = every
        self._flush_s = flush_seconds
        self._summary = summary
        self._board: Board | None = None
        self._first: tuple[int, float] | None = None  # version and time of the first line
        self._last = (0, 0.0)
        self._closed = False
        path = rank_file(self._directory, self._rank, "jsonl")
        opened: list[LineFile] = []

        def open_file() -> int:
            if type(every) is not int or every < 1:
                raise ValueError(f"every is {every!r}: it has to be a whole number from 1")
            if not flush_seconds >= 0:
                raise ValueError(f"flush_seconds is {flush_seconds!r}: it has to be 0 or more")
            self._wants_board = is_wanted(tensorboard)
            self._directory.mkdir(parents=True, exist_ok=True)
            run = latest_run(path)
            opened.append(LineFile(path, flush_seconds))
            return run

        try:
            with algorithm.meet() as meeting:
                self.run = max(open_on_all(meeting, open_file)) + 1
        except BaseException:
            for file in opened:
                file.close()
            raise
        self._file = opened[0]
        # Without close() the waiting lines are written when the interpreter ends.
        self._end = weakref.finalize(self, self._file.close)
        self._event(
            "start",
            restarts=restart_count(os.environ),
            host=socket.gethostname(),
            rank=self._rank,
            size=algorithm.size,
            algorithm=type(algorithm).__name__,
        )
        self._file.flush()

    def log(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Write a line: ``metrics.log(loss=loss, lr=0.1)`` or ``metrics.log({"eval/loss": loss})``.

        Args:
            values: numbers by name; also tensors and arrays without dimensions. The call waits for
                a tensor on a GPU.
            named: more numbers.

        Raises:
            TypeError: a value is no number.
            ValueError: a name is reserved, or that of an optimizer's number.
        """
        version = self._optimizer.version
        if (
            self._first is not None
            and self._every > 1
            and version // self._every == self._last[0] // self._every
        ):
            return
        given = {**(values or {}), **named}
        own = {name: as_number(name, value) for name, value in given.items()}
        stats = self._stats()
        taken = _OWN & own.keys() or stats.keys() & own.keys()
        if taken:
            name = min(taken)
            raise ValueError(f"a line has {name!r} already: give yours another name")
        now = time.monotonic()
        if self._first is None:
            self._first = (version, now)
            if self._wants_board:
                folder = self._directory / "tensorboard" / f"rank-{self._rank:05d}"
                self._board = Board(folder, version if self.run else None, self._flush_s)
        self._last = (version, now)
        self._file.add(
            dump({"run": self.run, "time": time.time(), "version": version, **stats, **own})
        )
        if self._board is not None:
            of_stats = {f"wagma/{name}": value for name, value in stats.items()}
            self._board.add(version, {**own, **of_stats})

    def flush(self) -> None:
        """Write waiting lines."""
        self._file.flush()

    def summary(self) -> Summary:
        """Compare the ranks; collective. Rank 0 logs the table.

        Returns:
            On every rank, for "steps", "versions_per_second", "late_share" and "waited_seconds":
            "min", "median" and "max" over the ranks, and "ranks", the figures of all.

        Raises:
            PeerError, StallError: another rank has failed, or does not arrive.
        """
        self._file.flush()  # so that after the summary the lines of all ranks can be read
        begun = self._last if self._first is None else self._first
        versions, seconds = self._last[0] - begun[0], self._last[1] - begun[1]
        own = own_figures(self._optimizer.stats(), versions, seconds)
        with self._optimizer.algorithm.meet() as meeting:
            summary = summarize(meeting.exchange(lambda: own, last=True))
        if self._rank == 0:
            _log.info("%s", table(summary, self._optimizer.version))
        return summary

    def close(self) -> None:
        """Write waiting lines and close the files; local. May be called again."""
        if self._closed:
            return
        self._closed = True
        self._event("end", version=self._optimizer.version, **self._stats())
        self._end()
        if self._board is not None:
            self._board.close()

    def _stats(self) -> dict[str, int | float]:
        stats = self._optimizer.stats()
        return {
            name: value
            for name, value in stats.items()
            if isinstance(value, (int, float)) and name != "version"
        }

    def _event(self, name: str, **content: Any) -> None:
        self._file.add(dump({"event": name, "run": self.run, "time": time.time(), **content}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None and self._summary:
                self.summary()
        finally:
            self.close()
