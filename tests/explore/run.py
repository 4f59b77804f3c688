"""Explores the round protocol: every state of many small configurations, then random walks.

`--quick` is part of `make test`, `--full` is `make explore`. A row passes only when no invariant is
violated and every state was seen. Prints a table and `N passed, M failed`.
"""

import argparse
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from build import ROOT, build

EXECUTABLE = ROOT / "build/explore/explore"
FIGURES = re.compile(r"(\w+)=([\d.]+)")


@dataclass(frozen=True)
class Row:
    """One configuration; `bits`: log2 of the table's entries; `same`: compare with another search."""

    arguments: str
    bits: int = 22
    same: tuple[str, ...] = ()  # figures of a second search that must be equal
    second: str = ""  # how the second search differs


DFS = {"same": ("states", "transitions", "terminal"), "second": "--dfs"}
SINGLE_STEPS = {"same": ("terminal",), "second": "--no-collapse"}

QUICK = (
    # groups of one
    Row("--ranks 1 --group 1 --programs nsd", **DFS),
    Row("--ranks 2 --group 1 --programs nnd", **DFS),
    # two ranks: many versions, slot reuse (window 1 and 2), slices, quorum, departure
    Row("--ranks 2 --group 2 --programs nn", **DFS),
    Row("--ranks 2 --group 2 --programs nnn", **SINGLE_STEPS),
    Row("--ranks 2 --group 2 --programs nnnn --window 3", bits=23),
    Row("--ranks 2 --group 2 --programs nnn --window 1 --slices 2", **DFS),
    Row("--ranks 2 --group 2 --programs nnnn --window 2 --slices 2", bits=23),
    Row("--ranks 2 --group 2 --programs nnnd --quorum 2", **DFS),
    Row("--ranks 2 --group 2 --programs nnnd,nnd --quorum 2"),
    Row("--ranks 2 --group 2 --programs nnnd,nnd,nnd"),
    # sync versions, periodic and at the end
    Row("--ranks 2 --group 2 --programs nsns", **DFS),
    Row("--ranks 2 --group 2 --programs nnsd,nd"),
    Row("--ranks 3 --group 2 --programs ns", bits=23),
    Row("--ranks 3 --group 3 --programs sn", bits=23),
    # ranks that disagree about the sync version: everybody is told or goes on
    Row("--ranks 2 --group 2 --programs nnn,nsn", **SINGLE_STEPS),
    Row("--ranks 3 --group 2 --programs sn,sn,nn"),
    Row("--ranks 3 --group 2 --programs ns,nn,nn"),
    # three ranks: groups whose composition changes, and all in one
    Row("--ranks 3 --group 2 --programs n --slices 2", **SINGLE_STEPS),
    Row("--ranks 3 --group 2 --programs nn", **DFS),
    Row("--ranks 3 --group 2 --programs nd", bits=23),
    Row("--ranks 3 --group 3 --programs n", bits=22, **DFS),
    Row("--ranks 3 --group 3 --programs n --slices 2", bits=23),
    Row("--ranks 3 --group 3 --programs nn --quorum 2", bits=25),
    Row("--ranks 3 --group 3 --programs nnd --quorum 3"),
    # four ranks
    Row("--ranks 4 --group 2 --programs n", bits=24),
    # store buffers (x86)
    Row("--ranks 2 --group 2 --programs nn --tso", **DFS),
    Row("--ranks 2 --group 2 --programs nnn --tso", bits=24),
    # beyond: random walks
    Row("--ranks 3 --group 2 --programs nnnnnnnn --window 2 --slices 2 --walks 20000"),
    Row("--ranks 3 --group 3 --programs nnnnnnsd --window 3 --slices 3 --walks 10000"),
    Row("--ranks 4 --group 2 --programs nnnsnnnd --window 2 --slices 2 --walks 10000"),
    Row("--ranks 4 --group 4 --programs nnnnnnnn --window 2 --slices 2 --walks 10000"),
    Row("--ranks 4 --group 4 --programs nnnnnn --window 1 --quorum 3 --walks 10000"),
    Row("--ranks 4 --group 3 --programs nnnnnn,nnnd,nnnnnn --window 3 --walks 10000"),
    Row("--ranks 5 --group 3 --programs nnnnnnnn --window 3 --slices 2 --walks 5000"),
    Row("--ranks 5 --group 5 --programs nnnnnsnn --window 2 --slices 4 --walks 5000"),
)

FULL = ()


def explore(arguments: str, bits: int) -> tuple[str, dict[str, float], str]:
    """Runs one search; returns its verdict, its figures and all that it printed."""
    command = [str(EXECUTABLE), *arguments.split(), "--table", str(bits)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    last = output.rstrip().rpartition("\n")[2]
    figures = {name: float(value) for name, value in FIGURES.findall(last)}
    verdicts = {0: "ok", 1: "VIOLATED", 3: "TRUNCATED"}
    return verdicts.get(done.returncode, f"exit status {done.returncode}"), figures, output


def run_row(row: Row) -> tuple[str, str, str]:
    """Explores a row, twice where two searches are compared; returns verdict, line, output."""
    verdict, figures, output = explore(row.arguments, row.bits)
    note = ""
    if verdict == "ok" and row.same:
        bits = row.bits + (3 if "collapse" in row.second else 0)
        verdict, other, output = explore(f"{row.arguments} {row.second}", bits)
        unequal = [name for name in row.same if figures[name] != other[name]]
        note = f" {row.second}: {other['states']:.0f} states, same {', '.join(row.same)}"
        if verdict == "ok" and unequal:
            verdict = f"UNEQUAL {', '.join(unequal)}"
    line = "{states:10.0f} {transitions:11.0f} {depth:6.0f} {cpu:7.1f} {mib:6.0f}".format(
        **dict.fromkeys(("states", "transitions", "depth", "cpu", "mib"), 0.0) | figures
    )
    return verdict, f"{line}  {row.arguments}{note}", output


def main() -> int:
    """Runs the rows and prints the table; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--quick", action="store_true", help="what `make test` runs")
    size.add_argument("--full", action="store_true", help="the large rows as well")
    parser.add_argument("--jobs", type=int, default=2, help="rows at a time (2)")
    options = parser.parse_args()
    rows = QUICK + FULL if options.full else QUICK
    build(ROOT / "csrc", EXECUTABLE)
    print(f"{'states':>10} {'transitions':>11} {'depth':>6} {'CPU s':>7} {'MiB':>6}  configuration")
    failed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for verdict, line, output in pool.map(run_row, rows):
            print(f"{line}  {verdict}", flush=True)
            if verdict != "ok":
                failed += 1
                print(output, flush=True)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
