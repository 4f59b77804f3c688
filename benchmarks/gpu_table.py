"""The table of `wagma.benchmarks.gpu`: what is compared with what, and the goals."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from wagma.collectives._engine import Device
from wagma.collectives.arrays import DTYPES
from wagma.units import size_text, time_text

SUMS = (2, 4, 8)  # arrays that are added up
QUEUED, ROUNDS = 50, 5  # sums that are timed together, and how often
COPIED = 0.9  # goal: of the bandwidth of a copy
FLOOR = 1.3  # goal: times of the copy of as many bytes
LATE_S = 1e-3  # goal: what a call takes beside grace while a rank is late
LAUNCH_S = 20e-6  # goal: posting a call
IDLE = 5e-4  # of a core: goal of the time between calls, beside that before the first call

Times = list[tuple[int, int]]  # ns at which calls began and ended


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    what: str
    measured: str
    values: tuple[float, ...]  # the same: seconds, bytes per second, or a share of a core
    bound: str = ""  # what it is compared with
    goal: str = ""
    met: bool | None = None  # None: there is no goal


@dataclass(frozen=True)
class Asked:
    """The command line."""

    buffer: str
    ranks: int
    sums: int  # bytes of the arrays of a sum
    size: int  # bytes of the large arrays
    sizes: tuple[int, ...]  # bytes of the small ones
    late: float  # seconds by which one rank is late
    grace: float  # seconds
    rounds: int
    calls: int  # small ones whose launch is timed
    idle: float  # seconds between two calls


def sums(asked: Asked, device: Device) -> tuple[float, list[Row]]:
    """Return the bandwidth of a copy, in bytes per second, and rows of it and of all sums."""
    nbytes = asked.sums

    def speed(dtype: str, arrays: int) -> float:
        count = nbytes // DTYPES[dtype].storage.itemsize
        times = [device.time_sums(dtype, count, arrays, QUEUED) for _ in range(ROUNDS)]
        return nbytes * QUEUED * (arrays + 1 if arrays else 2) / min(times)

    copied = speed("float32", 0)
    rows = [Row(f"copy of {size_text(nbytes)}", f"{copied / 1e9:.0f} GB/s", (copied,))]
    for arrays in SUMS:
        found = [speed(dtype, arrays) for dtype in DTYPES]
        rows.append(
            Row(
                f"sum of {arrays} arrays of {' / '.join(DTYPES)}",
                " / ".join(f"{one / 1e9:.0f}" for one in found) + " GB/s",
                tuple(found),
                " / ".join(f"{one / copied:.0%}" for one in found) + " of a copy",
                f"{COPIED:.0%}",
                min(found) >= COPIED * copied,
            )
        )
    return copied, rows


def collectives(asked: Asked, copied: float, found: list[dict[str, Any]]) -> list[Row]:
    """Return the rows of what the ranks measured.

    Args:
        asked: what was measured.
        copied: bytes per second of a copy, read and written.
        found: of each rank, see `on_rank`.
    """
    ranks, rows = asked.ranks, []
    summed = ranks + 1
    # In place each rank copies its array into the engine's memory, and the result out of it.
    for name, arrays in (("out of place", summed), ("in place", 2 * ranks + summed + 2 * ranks)):
        took = _median([rank["large"][name] for rank in found])
        bound = arrays * asked.size / copied
        rows.append(
            Row(
                f"allreduce of {ranks} ranks, {_megabytes(asked.size)}, {name}",
                time_text(took),
                (took,),
                f"{time_text(bound)} ({arrays} arrays); {took / bound:.2f}x",
                f"{FLOOR}x",
                took <= FLOOR * bound,
            )
        )
    small = [_median([rank["small"][nbytes] for rank in found[:-1]]) for nbytes in asked.sizes]
    sizes, late = " / ".join(map(size_text, asked.sizes)), time_text(asked.late, zeros=False)
    rows.append(
        _against(f"allreduce of {sizes}, one rank {late} late", small, LATE_S + asked.grace)
    )
    host = [rank["host"] for rank in found]
    posting = float(np.median([one["posting"] for one in host])) / 1e9
    calling = float(np.median([one["calling"] for one in host])) / 1e9 / asked.calls
    idle = max(one["idle"] for one in host) / 1e9 / asked.idle
    before = max(rank["idle before"] for rank in found) / 1e9 / asked.idle
    rows += [
        _against("host, to post a call", [posting], LAUNCH_S),
        Row("CPU time of a call", time_text(calling), (calling,)),
        Row(
            "CPU between calls, of a core",
            f"{idle:.2%}",
            (idle,),
            f"{before:.2%} before the first call",
            "0.0% more",
            idle - before < IDLE,
        ),
    ]
    return rows


def _against(what: str, took: list[float], goal: float) -> Row:
    """Return the row of times, in seconds, none of which should be longer than the goal."""
    times = " / ".join(map(time_text, took))
    return Row(what, times, tuple(took), "", time_text(goal, zeros=False), max(took) <= goal)


def _median(times: list[Times]) -> float:
    """Return seconds from the first beginning to the last end, the median of the rounds."""
    rounds = np.array(times)  # [ranks, rounds, 2]
    return float(np.median(rounds[:, :, 1].max(axis=0) - rounds[:, :, 0].min(axis=0))) / 1e9


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:g} MB"


def table(rows: list[Row]) -> str:
    """Return the rows in Markdown, with their columns aligned."""
    cells = [("what", "measured", "beside", "goal", "met")]
    for row in rows:
        met = "" if row.met is None else "yes" if row.met else "NO"
        cells.append((row.what, row.measured, row.bound, row.goal, met))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |"
        for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
