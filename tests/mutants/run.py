"""Seeded faults: each patch breaks the round protocol, and the explorer has to find out.

A patch names its fault, the invariant that must catch it, and the configuration that is explored.
It is applied to a copy of csrc/, which must compile; the unmutated source must pass the same
configuration first. A fault that is caught in another way (a crash, a time-out, another invariant)
is not caught. Prints a table and `N passed, M failed`.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "explore"))

from build import ROOT, build  # noqa: E402

TIMEOUT = 300.0  # seconds for one search; the searches take a few


@dataclass(frozen=True)
class Mutant:
    """One seeded fault."""

    name: str
    patch: Path
    fault: str
    invariant: str
    arguments: str

    @classmethod
    def read(cls, patch: Path) -> "Mutant":
        """Reads the three lines at the top of a patch."""
        text = patch.read_text()
        fields = dict(re.findall(r"^(Fault|Caught by|Explored): (.*)$", text, re.MULTILINE))
        return cls(patch.stem, patch, fields["Fault"], fields["Caught by"], fields["Explored"])


def explore(executable: Path, arguments: str) -> tuple[int, str]:
    """Runs one search; returns its exit status and what it printed."""
    command = [str(executable), *arguments.split(), "--table", "24"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return -1, "not done in time"
    return done.returncode, done.stdout + done.stderr


def mutate(mutant: Mutant, folder: Path) -> Path:
    """Applies the patch to a copy of csrc/ in `folder` and builds the explorer with it.

    Raises:
        subprocess.CalledProcessError: the patch does not apply, or the result does not compile.
    """
    shutil.copytree(ROOT / "csrc", folder / "csrc")
    command = ["git", "apply", "--whitespace=nowarn", str(mutant.patch)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    executable = folder / "explore"
    build(folder / "csrc", executable)
    return executable


def judge(mutant: Mutant) -> tuple[str, str]:
    """Returns the verdict on a mutant and the explorer's counterexample."""
    with tempfile.TemporaryDirectory() as name:
        try:
            executable = mutate(mutant, Path(name))
        except subprocess.CalledProcessError as error:
            return f"does not apply or compile: {error.stderr or error}", ""
        status, output = explore(executable, mutant.arguments)
    violated = re.search(r"^VIOLATED ([\w-]+): (.*)$", output, re.MULTILINE)
    if status != 1 or not violated:
        return f"SURVIVED (exit status {status})", output
    if violated[1] != mutant.invariant:
        return f"caught by {violated[1]} instead: {violated[2]}", output
    steps = len(re.findall(r"^    rank", output, re.MULTILINE))
    return "caught", f"{violated[1]} in {steps} steps: {violated[2]}" if steps else ""


def main() -> int:
    """Judges every mutant and prints the table; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="mutants (all)")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (2)")
    parser.add_argument("--show", action="store_true", help="print the counterexamples")
    options = parser.parse_args()
    mutants = [Mutant.read(p) for p in sorted(HERE.glob("*.patch"))]
    mutants = [m for m in mutants if not options.names or m.name in options.names]
    original = ROOT / "build/explore/explore"
    build(ROOT / "csrc", original)
    failed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = sorted({m.arguments for m in mutants})
        for row, (status, output) in zip(
            rows, pool.map(lambda row: explore(original, row), rows), strict=True
        ):
            if status != 0:
                failed += 1
                print(f"the unmutated source fails {row}:\n{output}", flush=True)
        for mutant, (verdict, detail) in zip(mutants, pool.map(judge, mutants), strict=True):
            ok = verdict == "caught" and bool(detail)
            failed += not ok
            shown = detail if ok else verdict
            print(f"{'ok' if ok else 'FAILED':6} {mutant.name:26} {shown}", flush=True)
            if options.show and not ok:
                print(detail)
    print(f"{len(mutants) + len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
