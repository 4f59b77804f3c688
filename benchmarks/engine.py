"""Measures the engine beside MPI_Allreduce, in the same processes and in the same run.

Ranks are started under every MPI that is there. In each launch, blocks of calls of wagma and of
MPI_Allreduce alternate; before every call each rank rewrites its array and all start at the same
moment; every result is checked. A time is the maximum over the ranks; medians and percentiles are
over iterations. A ratio compares with the fastest MPI at the same number of ranks, and with wagma's
time in the same launch. docs/performance.md derives every figure.

The exit status is 1 if a result was wrong or a launch failed, and 0 if goals were missed: they
depend on the machine and on what else it does.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import alone
import host
import launch
import plan
import report
import rows

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = (ROOT / ".venv", ROOT / ".venv-openmpi")
MIB = 1 << 20


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    names = "; ".join(f"{name}: {what}" for name, what in plan.ROWS.items())
    add(
        "--rows",
        type=_rows,
        default=tuple(plan.ROWS),
        metavar="NAMES",
        help=f"comma-separated, default all. {names}".replace("%", "%%"),
    )
    add("--quick", action="store_true", help="few iterations: to see that it works")
    add(
        "--environment",
        type=Path,
        action="append",
        metavar="FOLDER",
        help="virtual environment with wagma and an MPI, may be repeated (default: .venv and "
        ".venv-openmpi beside this folder; `make environment MPI=openmpi` makes the latter)",
    )
    add(
        "--ranks",
        type=_numbers,
        default=(2, 4),
        metavar="N,N",
        help="numbers of ranks of large arrays and of iallreduce; the last one is that of the "
        "scenarios (default: 2,4)",
    )
    add(
        "--small-sizes",
        type=_sizes,
        default=plan.SMALL_SIZES,
        metavar="SIZES",
        help="default: 4,1KiB,4KiB,16KiB",
    )
    add(
        "--large-sizes",
        type=_sizes,
        default=plan.LARGE_SIZES,
        metavar="SIZES",
        help="default: 1MiB,16MiB,100MiB",
    )
    add("--timeout", type=float, default=600, metavar="S", help="of a launch (default: 600)")
    add("--json", type=Path, metavar="FILE", help="write raw samples and the table's rows there")
    add(
        "--from",
        dest="source",
        type=Path,
        metavar="FILE",
        help="print the table of such a file, and measure nothing",
    )
    add("--markdown", action="store_true", help="print the table for README.md")
    add(
        "--corrupt",
        choices=("wagma", "mpi"),
        help="falsify one result of each series, which the check has to notice",
    )
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Runs everything that was asked for."""
    environments, left_out = launch.environments(options.environment or ENVIRONMENTS)
    result: dict[str, Any] = {
        "environment": host.header(),
        "rows": options.rows,
        "ranks": options.ranks,
        "small": options.small_sizes,
        "large": options.large_sizes,
        "scenario": asdict(plan.scenario(options.quick)),
        "iallreduce": asdict(plan.overlap(options.quick)),
        "k-of-p": asdict(plan.fastest(options.quick)),
        "left_out": left_out,
        "failed": [],
        "launches": [],
        "alone": {},
    }
    _measure_alone(options, result)
    scenarios = [name for name in ("grace", "straggler", "k-of-p") if name in options.rows]
    beside_mpi = ["iallreduce"] if "iallreduce" in options.rows else []
    for ranks in options.ranks:
        bound = ranks <= host.cores()
        # MPICH spins: with more ranks than cores a collective can take seconds.
        usable = [e for e in environments if bound or e.mpi != "mpich"]
        left_out += [
            f"{ranks} ranks, MPICH: it spins, which takes seconds with {host.cores()} cores"
            for e in environments
            if e not in usable
        ]
        pending = scenarios if ranks == options.ranks[-1] else []
        # Without another MPI the scenarios of wagma alone can run under MPICH.
        for environment in usable or environments[:1]:
            levels = ["multiple"]
            compared = not plan.COMPARED.keys().isdisjoint(options.rows)
            if environment.mpi == "mpich" and environment in usable and compared:
                levels.append("single")
            for level in levels:
                with_mpi = environment in usable
                here = pending + (beside_mpi if level == "multiple" else [])
                _launch(options, result, environment, ranks, level, here, bound, with_mpi)
                pending = []
    if not environments:
        result["failed"].append("no MPI was found: " + "; ".join(left_out))
    return result


def _launch(
    options: argparse.Namespace,
    result: dict[str, Any],
    environment: launch.Environment,
    ranks: int,
    level: str,
    scenarios: list[str],
    bound: bool,
    with_mpi: bool,
) -> None:
    """One launch, if there is anything to measure in it."""
    cases, left_out = plan.cases(
        options.rows,
        ranks,
        options.small_sizes,
        options.large_sizes,
        with_mpi=with_mpi,
        quick=options.quick,
        room=host.room(),
    )
    result["left_out"] += [reason for reason in left_out if reason not in result["left_out"]]
    if not cases and not scenarios:
        return
    _progress(f"{ranks} ranks, {environment.mpi}, THREAD_{level.upper()}")
    task = {
        "cases": [asdict(case) for case in cases],
        "scenarios": scenarios,
        "scenario": result["scenario"],
        "iallreduce": result["iallreduce"],
        "k-of-p": result["k-of-p"],
        "with_mpi": with_mpi,
        "bound": bound,
        "corrupt": options.corrupt,
    }
    try:
        by_rank = launch.run(environment, ranks, bound, level, task, options.timeout)
    except launch.LaunchError as error:
        result["failed"].append(str(error))
        return
    result["launches"].append(
        {
            "mpi": environment.mpi,
            "ranks": ranks,
            "bound": bound,
            "cases": task["cases"],
            "by_rank": by_rank,
        }
    )


def _measure_alone(options: argparse.Namespace, result: dict[str, Any]) -> None:
    """The rows that need no MPI; 4 ranks, or the most that were asked for."""
    size, found = max(options.ranks), result["alone"]
    try:
        if "passive" in options.rows:
            _progress("passivity")
            found["passive"] = alone.passive(0.5 if options.quick else 2.0)
        if "memory" in options.rows:
            _progress("memory")
            bytes_ = (1 if options.quick else 16) * MIB
            found["memory"] = {
                'quorum="all"': alone.memory(bytes_, size, quorum_all=True),
                "quorum=1": alone.memory(bytes_, size, quorum_all=False),
            }
        if "binding" in options.rows:
            _progress("binding")
            found["binding"] = alone.binding(10 if options.quick else 100, 2000)
    except (RuntimeError, OSError) as error:
        result["failed"].append(f"without MPI: {error}")


def _progress(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


# ---- arguments -----------------------------------------------------------------------------------


def _rows(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in plan.ROWS]:
        raise argparse.ArgumentTypeError(f"no such row: {', '.join(unknown)}")
    return names


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(word) for word in text.split(","))
    if min(numbers) < 2:
        raise argparse.ArgumentTypeError("at least 2 ranks")
    return numbers


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(_size(word) for word in text.split(","))


def _size(word: str) -> int:
    for suffix, unit in (("KiB", 1 << 10), ("MiB", MIB), ("", 1)):
        if word.endswith(suffix) and word.removesuffix(suffix).isdecimal():
            size = int(word.removesuffix(suffix)) * unit
            if size > 0 and size % 4 == 0:
                return size
    raise argparse.ArgumentTypeError(
        f"{word!r} is not a size: a multiple of 4 bytes, as in 4, 16KiB, 100MiB"
    )


def main() -> int:
    """Measures or reads, prints, and returns the exit status."""
    options = parse()
    result = json.loads(options.source.read_text()) if options.source else measure(options)
    table = rows.assemble(result)
    failures = rows.failures(result)
    report.show(result, table, sys.stdout, markdown=options.markdown)
    if options.json:
        content = {**result, "table": [asdict(row) for row in table]}
        options.json.write_text(json.dumps(content))
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
