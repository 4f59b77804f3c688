"""Explores the protocols: every state of many small configurations, then random walks.

`--short` is part of `make test`, `--quick` of `make test-all`, and `--full` is `make explore`. A
row passes only when no invariant is violated and every state was seen. Prints a table and
`N passed, M failed`.
"""

import argparse
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import activation_rows
import quorum_all_rows

from build import ROOT, build, for_this_cpu

EXECUTABLE = ROOT / "build/explore/explore"
FIGURES = re.compile(r"(\w+)=([\d.]+)")


@dataclass(frozen=True)
class Row:
    """One configuration: options of the explorer, and log2 of the entries of its table.

    With `second` it is searched once more with that option, and the figures in SAME must be equal.
    With `violates` both have to find that this invariant is violated.
    """

    arguments: str
    bits: int = 22
    second: str = ""
    violates: str = ""


DFS = "--dfs"
SINGLE_STEPS = "--no-collapse"
SAME = {DFS: ("states", "transitions", "terminal", "alone"), SINGLE_STEPS: ("terminal",)}
ROOM = {DFS: 2, SINGLE_STEPS: 10}  # entries of the second search's table, for a state of the first

QUICK = (
    # groups of one
    Row("--ranks 1 --group 1 --programs nsd", second=DFS),
    Row("--ranks 2 --group 1 --programs nnd", second=DFS),
    # two ranks: many versions, slots that are reused, slices, quorum, departure
    Row("--ranks 2 --group 2 --programs nn", second=DFS),
    Row("--ranks 2 --group 2 --programs nnn", second=SINGLE_STEPS),
    Row("--ranks 2 --group 2 --programs nnn --window 1 --slices 2", second=DFS),
    Row("--ranks 2 --group 2 --programs nnnn,nnd"),
    Row("--ranks 2 --group 2 --programs nnnn --window 1", bits=23),
    Row("--ranks 2 --group 2 --programs nnnd --quorum 2", second=DFS),
    Row("--ranks 2 --group 2 --programs nnnd,nnd --quorum 2"),
    Row("--ranks 2 --group 2 --programs nnnd,nnd"),
    # sync versions: periodic, the first, the last
    Row("--ranks 2 --group 2 --programs nsns", second=DFS),
    Row("--ranks 2 --group 2 --programs nnsd,nd"),
    Row("--ranks 2 --group 2 --programs snn", second=DFS),
    Row("--ranks 3 --group 2 --programs ns"),
    Row("--ranks 3 --group 3 --programs s", second=DFS),
    # ranks that disagree about the sync version: nobody hangs, and somebody is told
    Row("--ranks 2 --group 2 --programs nnn,nsn", second=SINGLE_STEPS),
    Row("--ranks 3 --group 2 --programs sn,sn,nn"),
    Row("--ranks 3 --group 2 --programs ns,nn,nd"),
    # three ranks: groups whose composition changes, and all in one
    Row("--ranks 3 --group 2 --programs n --slices 2", second=SINGLE_STEPS),
    Row("--ranks 3 --group 2 --programs nn"),
    Row("--ranks 3 --group 3 --programs n"),
    Row("--ranks 3 --group 3 --programs nn --quorum 3"),
    # four ranks
    Row("--ranks 4 --group 2 --programs n --quorum 2"),
    Row("--ranks 4 --group 2 --programs nd,n,d,n"),
    # fewer buffers and rounds than the bounds, as with little shared memory
    Row("--ranks 2 --group 2 --programs nnnd --rounds 1 --buffers 2 --limited", second=DFS),
    Row("--ranks 3 --group 2 --programs nnd --rounds 1 --buffers 2 --limited", bits=23),
    # what only runs alone can show, by notes and step by step
    Row(
        "--ranks 2 --group 2 --programs nn --quorum 2 --no-waits",
        second=DFS,
        violates="I3-run-alone",
    ),
    # rounds of all ranks
    Row("--ranks 2 --group 2 --programs nnn --world", second=DFS),
    Row("--ranks 2 --group 2 --programs nnnn --world --window 1"),
    Row("--ranks 2 --group 1 --programs nsnd,nsd --world", second=SINGLE_STEPS),
    Row("--ranks 3 --group 2 --programs n --world --slices 2"),
    Row("--ranks 3 --group 2 --programs nd,n,n --world --quorum 2", second=DFS),
    # a drawn member starts the version
    Row("--ranks 2 --group 2 --programs nnnd --majority", second=DFS),
    Row("--ranks 2 --group 2 --programs nsn,nsd --majority", second=SINGLE_STEPS),
    Row("--ranks 3 --group 2 --programs nn --majority"),
    Row("--ranks 3 --group 3 --programs n,n,d --majority", second=DFS),
    # every result for every rank, in order
    Row("--ranks 2 --group 2 --programs nnn --ordered"),
    Row("--ranks 2 --group 2 --programs nnn --ordered --window 1 --slices 2"),
    Row("--ranks 2 --group 2 --programs nnsnd,nnsd --ordered"),
    Row("--ranks 2 --group 2 --programs nnnd --ordered --rounds 2 --limited"),
    Row("--ranks 3 --group 2 --programs nd,nn,n --ordered"),
    Row("--ranks 3 --group 3 --programs n --ordered --quorum 2"),
    # a quorum that changes from version to version, and ranks that disagree about it
    Row("--ranks 2 --group 2 --programs nnn --ordered --quorums 121", second=SINGLE_STEPS),
    Row("--ranks 2 --group 2 --programs nnnd --ordered --quorums 121 --rounds 2 --limited"),
    Row("--ranks 2 --group 2 --programs nnn --ordered --quorums 121,112", second=DFS),
    Row("--ranks 2 --group 2 --programs nnn --ordered --quorums 112,122 --window 1", second=DFS),
    Row("--ranks 2 --group 2 --programs nnsn,nnsd --ordered --quorums 12,1"),
    Row("--ranks 3 --group 3 --programs n --ordered --quorums 1,2,3", second=DFS),
    # on after the version merged
    Row("--ranks 2 --group 2 --programs nnn --forward"),
    Row("--ranks 2 --group 2 --programs nnn --forward --window 1 --slices 2"),
    Row("--ranks 2 --group 2 --programs nnsn --forward --world"),
    Row("--ranks 2 --group 2 --programs nnnd,nnd --forward --majority", second=SINGLE_STEPS),
    Row("--ranks 3 --group 2 --programs nd,nd,nnd --forward", second=DFS),
    # out of place: a buffer that is reserved, a result that is looked at; weights of 0
    Row("--ranks 2 --group 2 --programs oon"),
    Row("--ranks 2 --group 2 --programs pod,opn", second=SINGLE_STEPS),
    Row("--ranks 2 --group 2 --programs ozo,zno --window 1"),
    Row("--ranks 2 --group 2 --programs ppod --rounds 1 --buffers 3 --limited", second=DFS),
    # from the rank's array, whose memory is published while it shows another buffer; if all are
    # there, into all arrays
    Row("--ranks 2 --group 2 --programs xxx"),
    Row("--ranks 2 --group 2 --programs xx", second=SINGLE_STEPS),
    Row("--ranks 2 --group 2 --programs xx --slices 2", second=DFS),
    Row("--ranks 2 --group 2 --programs xyx --slices 2"),
    Row("--ranks 2 --group 2 --programs xxx,xyx"),
    Row("--ranks 2 --group 2 --programs xxd --majority", second=DFS),
    Row("--ranks 2 --group 2 --programs xxd,xnd --forward", second=DFS),
    Row("--ranks 2 --group 2 --programs xxxd --rounds 1 --buffers 3 --limited --spare"),
    Row("--ranks 3 --group 3 --programs x"),
    Row("--ranks 3 --group 2 --programs x,x,xx", second=DFS),
    Row("--ranks 2 --group 2 --programs xxod,oxn --window 1"),
    Row("--ranks 2 --group 2 --programs nxd,xzx --ordered", second=SINGLE_STEPS),
    Row("--ranks 2 --group 2 --programs xx --world", second=DFS),
    Row("--ranks 2 --group 2 --programs xxxd --rounds 1 --buffers 3 --limited", second=DFS),
    Row("--ranks 2 --group 2 --programs pxod --rounds 1 --buffers 4 --limited", second=DFS),
    Row("--ranks 3 --group 3 --programs x,x,n"),
    # groups that stay, and pairs
    Row("--ranks 3 --group 2 --programs nd,n,nn --fixed"),
    Row("--ranks 3 --group 2 --programs nd,n,nn --pairs"),
    # store buffers, as on x86
    Row("--ranks 2 --group 2 --programs nn --tso", second=DFS),
    Row("--ranks 2 --group 2 --programs nnn --tso", bits=24),
    Row("--ranks 2 --group 2 --programs nn --world --tso", second=DFS),
    Row("--ranks 2 --group 2 --programs nn --ordered --tso", second=DFS),
    Row("--ranks 2 --group 2 --programs nn --forward --tso", second=DFS),
    Row("--ranks 2 --group 2 --programs oo --tso", second=DFS),
    Row("--ranks 2 --group 2 --programs xx --tso", second=DFS),
    # beyond: random walks
    Row("--ranks 3 --group 2 --programs nnnnnnnn --window 3 --slices 2 --walks 1000"),
    Row("--ranks 3 --group 3 --programs nnnnnnsd --window 3 --slices 3 --walks 1000"),
    Row("--ranks 4 --group 2 --programs nnnsnnnd --window 2 --slices 2 --walks 650"),
    Row("--ranks 4 --group 4 --programs nnnnnnnn --window 2 --slices 2 --walks 650"),
    Row("--ranks 4 --group 4 --programs nnnnnn --window 1 --quorum 3 --walks 650"),
    Row("--ranks 4 --group 3 --programs nnnnnn,nnnd,nnnnnn --window 3 --walks 650"),
    Row("--ranks 5 --group 3 --programs nnnnnnnn --window 3 --slices 2 --walks 300"),
    Row("--ranks 5 --group 5 --programs nnnnnsnn --window 2 --slices 4 --walks 300"),
    Row("--ranks 4 --group 2 --programs nnnnsnnnnnd --rounds 1 --buffers 2 --limited --walks 650"),
    Row("--ranks 4 --group 4 --programs nnnnsnnnnnd --rounds 2 --buffers 3 --limited --walks 650"),
    Row("--ranks 4 --group 2 --programs nnnsnnnn --world --window 2 --walks 300"),
    Row("--ranks 5 --group 3 --programs nnnnnnnd --world --window 3 --quorum 2 --walks 150"),
    Row("--ranks 4 --group 2 --programs nnnsnnd --world --buffers 3 --limited --walks 150"),
    Row("--ranks 4 --group 2 --programs nnnnnnnn,nnnd,nnnnnnnn --majority --window 2 --walks 300"),
    Row("--ranks 5 --group 5 --programs nnnnnsnn --majority --window 3 --walks 150"),
    Row("--ranks 4 --group 4 --programs nnnnsnnnnn --ordered --window 2 --quorum 2 --walks 300"),
    Row("--ranks 5 --group 3 --programs nnnnnnnnnd --ordered --window 3 --slices 2 --walks 150"),
    Row("--ranks 4 --group 2 --programs nnnnsnnnd --ordered --rounds 1 --limited --walks 150"),
    Row("--ranks 3 --group 3 --programs nnnnnn --ordered --quorums 123 --walks 300"),
    Row("--ranks 4 --group 4 --programs nnnnnn --ordered --quorums 123432 --window 2 --walks 300"),
    Row("--ranks 4 --group 4 --programs nnnsnd --ordered --quorums 123,123,123,122 --walks 300"),
    Row("--ranks 4 --group 2 --programs nnnnsnnnnn --forward --window 2 --slices 2 --walks 300"),
    Row("--ranks 5 --group 3 --programs nnnnnnnd --forward --window 3 --quorum 2 --walks 150"),
    Row("--ranks 5 --group 3 --programs nnnnnnnd --forward --majority --world --walks 150"),
    Row("--ranks 4 --group 2 --programs oponzsonpo --window 2 --slices 2 --walks 300"),
    Row("--ranks 5 --group 5 --programs oonpzonpod --forward --window 3 --walks 150"),
    Row("--ranks 4 --group 2 --programs xoxnzsxxpx --window 2 --slices 2 --walks 300"),
    Row("--ranks 4 --group 4 --programs xxxxyxxx --window 2 --slices 3 --walks 650"),
    Row("--ranks 5 --group 3 --programs xxxxyxxxd --window 2 --slices 4 --walks 300"),
    Row("--ranks 4 --group 2 --programs xxxxyxxxd --forward --window 2 --slices 2 --walks 300"),
    Row("--ranks 4 --group 4 --programs xxyxd --buffers 4 --limited --spare --walks 300"),
    Row("--ranks 5 --group 3 --programs xxnxoxxd --world --window 3 --quorum 2 --walks 150"),
    Row("--ranks 5 --group 2 --programs nnnnsnnn --pairs --window 2 --walks 150"),
    Row("--ranks 5 --group 3 --programs nnnnsnnn --fixed --window 2 --walks 150"),
)

# Those that take too long for `make test-all`, or are searched once more here; then, depth first,
# the large ones: the table alone takes memory, 2 GiB at 28 bits, 4 GiB at 29.
FULL = (
    Row("--ranks 3 --group 2 --programs nd,nnd,nn"),
    Row("--ranks 2 --group 2 --programs xxx", second=SINGLE_STEPS),
    Row("--ranks 3 --group 3 --programs x --slices 2"),
    Row("--ranks 2 --group 2 --programs nnn --forward", second=SINGLE_STEPS),
    Row("--ranks 2 --group 2 --programs nnn --ordered", second=SINGLE_STEPS),
    Row("--ranks 2 --group 2 --programs nnnn --window 3", bits=23),
    Row("--ranks 3 --group 2 --programs sn"),
    Row("--ranks 3 --group 3 --programs n --quorum 2 --slices 2"),
    Row("--ranks 4 --group 2 --programs n", bits=23),
    Row("--ranks 3 --group 2 --programs nn --forward"),
    Row("--ranks 3 --group 3 --programs o,o,z"),
    Row("--ranks 2 --group 2 --programs nnnnn --window 1 --dfs", bits=28),
    Row("--ranks 2 --group 2 --programs nnnn --window 3 --slices 2 --dfs", bits=26),
    Row("--ranks 2 --group 2 --programs nnnn --window 1 --tso --dfs", bits=28),
    Row("--ranks 3 --group 2 --programs nnn --window 1 --dfs", bits=28),
    Row("--ranks 3 --group 3 --programs nn,nn,n --dfs", bits=29),
    Row("--ranks 4 --group 2 --programs nn --quorum 2 --dfs", bits=28),
    Row("--ranks 4 --group 4 --programs nn --quorum 4 --dfs", bits=28),
    Row("--ranks 2 --group 2 --programs nnnn --world --dfs", bits=27),
    Row("--ranks 3 --group 2 --programs nn --world --window 1 --dfs", bits=28),
    Row("--ranks 2 --group 2 --programs nnnn --majority --dfs", bits=26),
    Row("--ranks 3 --group 3 --programs nn --majority --dfs", bits=29),
    Row("--ranks 2 --group 2 --programs nnnn --ordered --dfs", bits=28),
    Row("--ranks 3 --group 3 --programs nn --ordered --quorum 2 --dfs", bits=29),
    Row("--ranks 2 --group 2 --programs nnnn --ordered --quorums 1221"),
    Row("--ranks 3 --group 3 --programs nn --ordered --quorums 23 --window 1", bits=25),
    Row("--ranks 3 --group 3 --programs nn --ordered --quorums 12,12,22 --window 1", bits=25),
    Row("--ranks 2 --group 2 --programs nnnn --forward --dfs", bits=28),
    Row("--ranks 3 --group 2 --programs nnn --forward --window 1 --dfs", bits=28),
    Row("--ranks 3 --group 3 --programs on,n,n --dfs", bits=28),
    Row("--ranks 2 --group 2 --programs xxxx --window 1 --dfs", bits=26),
    Row("--ranks 3 --group 2 --programs xx,xn,nx --dfs", bits=28),
    Row("--ranks 4 --group 4 --programs nnnnnnnn --window 3 --slices 2 --walks 100000"),
    Row("--ranks 5 --group 3 --programs nnnnnnnn --window 3 --slices 2 --walks 50000"),
    Row("--ranks 5 --group 5 --programs nnnnnsnnd --window 2 --slices 4 --walks 50000"),
    Row("--ranks 5 --group 3 --programs nnnnnnnd --world --window 3 --walks 50000"),
    Row("--ranks 5 --group 3 --programs nnnnnnnnnd --ordered --window 3 --walks 50000"),
    Row("--ranks 5 --group 3 --programs nnnnnnnd --forward --majority --walks 50000"),
    Row("--ranks 5 --group 5 --programs oonpzonpod --forward --window 3 --walks 50000"),
)


for protocol, rows in (("--quorum-all", quorum_all_rows), ("--activation", activation_rows)):
    QUICK += tuple(
        Row(f"{protocol} {arguments}", second=DFS if second else "")
        for arguments, second in rows.QUICK
    )
    FULL += tuple(Row(f"{protocol} {arguments}", bits=26) for arguments in rows.FULL)


# Some of every protocol, the small rows of quorums that change, and the row whose invariant has to
# be found violated.
SMALL = ("nnn --ordered --quorums 121", "n --ordered --quorums 1,2,3", "nnd --ordered --quorums")
SHORT = tuple(
    row
    for number, row in enumerate(QUICK)
    if number % 12 == 0 or row.violates or any(words in row.arguments for words in SMALL)
)


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
    """Explores a row, twice where two searches are compared; returns verdict, line, output.

    The second table has room for what is expected; to clear more would take longer than many rows.
    """
    verdict, figures, output = explore(row.arguments, row.bits)
    note = ""
    if row.violates:
        other = explore(f"{row.arguments} {row.second}", row.bits)[2]
        found = all(f"VIOLATED {row.violates}:" in each for each in (output, other))
        verdict = "ok" if found else f"NOT FOUND: {row.violates}"
        note = f" violates {row.violates}"
    elif verdict == "ok" and row.second:
        bits = int(ROOM[row.second] * figures["states"] + 255).bit_length()
        verdict, other, output = explore(f"{row.arguments} {row.second}", bits)
        unequal = [name for name in SAME[row.second] if figures[name] != other[name]]
        note = f" {row.second}: {other['states']:.0f} states, same {', '.join(SAME[row.second])}"
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
    size.add_argument("--short", action="store_true", help="what `make test` runs")
    size.add_argument("--quick", action="store_true", help="what `make test-all` runs")
    size.add_argument("--full", action="store_true", help="the large rows as well")
    parser.add_argument("--jobs", type=int, default=2, help="rows at a time (2)")
    options = parser.parse_args()
    rows = SHORT if options.short else QUICK + FULL if options.full else QUICK
    build(ROOT / "csrc", EXECUTABLE, *for_this_cpu())
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
