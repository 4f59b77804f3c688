"""Seeded faults: each patch breaks a protocol, and something has to find out.

A patch names its fault, the invariant that must catch it, and what is run: the configuration that
is explored, the seeds of the schedules that tests/engine/test_activation_random.c simulates, or a C
test (then the invariant is the words of its message). It is applied to a copy of csrc/, which must
compile; the unmutated source must pass the same run first. A fault that is caught in another way (a
crash, a time-out, another invariant) is not caught. Prints a table and `N passed, M failed`.
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
sys.path.insert(0, str(HERE.parent))

from build import ROOT, build, build_simulation, build_test  # noqa: E402

TIMEOUT = 300.0  # seconds for one search; the searches take a few


EXPLORED, SIMULATED, TESTED = "Explored", "Simulated", "Tested"


@dataclass(frozen=True, order=True)
class Run:
    """What is run, with a fault and without: kind and arguments."""

    kind: str
    arguments: str

    def build(self, csrc: Path, executable: Path) -> None:
        """Compiles what is run with the engine in `csrc`.

        Raises:
            subprocess.CalledProcessError: the compiler refuses.
        """
        if self.kind == TESTED:
            build_test(csrc, executable, self.arguments)
        elif self.kind == SIMULATED:
            build_simulation(csrc, executable)
        else:
            build(csrc, executable)

    def execute(self, executable: Path) -> tuple[int, str]:
        """Returns the exit status and what was printed."""
        command = [str(executable)]
        if self.kind != TESTED:
            command += self.arguments.split()
        if self.kind == EXPLORED:
            command += ["--table", "24"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            return -1, "not done in time"
        return done.returncode, done.stdout + done.stderr

    def violation(self, output: str, invariant: str) -> tuple[str, str]:
        """The invariant that was violated, or "", and how."""
        if self.kind == TESTED:
            words = re.search(f"^.*{re.escape(invariant)}.*$", output, re.MULTILINE)
            return (invariant, words[0].strip()) if words else ("", "")
        violated = re.search(r"^VIOLATED ([\w-]+): (.*)$", output, re.MULTILINE)
        steps = len(re.findall(r"^    rank", output, re.MULTILINE))
        if not violated:
            return "", ""
        return violated[1], f"{violated[1]} in {steps} steps: {violated[2]}" if steps else ""


@dataclass(frozen=True)
class Mutant:
    """One seeded fault."""

    name: str
    patch: Path
    fault: str
    invariant: str
    run: Run

    @classmethod
    def read(cls, patch: Path) -> "Mutant":
        """Reads the three lines at the top of a patch."""
        kinds = f"{EXPLORED}|{SIMULATED}|{TESTED}"
        lines = re.findall(f"^(Fault|Caught by|{kinds}): (.*)$", patch.read_text(), re.MULTILINE)
        (_, fault), (_, invariant), (kind, arguments) = lines
        return cls(patch.stem, patch, fault, invariant, Run(kind, arguments))


def mutate(mutant: Mutant, folder: Path) -> Path:
    """Applies the patch to a copy of csrc/ in `folder` and builds what has to find it.

    Raises:
        subprocess.CalledProcessError: the patch does not apply, or the result does not compile.
    """
    shutil.copytree(ROOT / "csrc", folder / "csrc")
    command = ["git", "apply", "--whitespace=nowarn", str(mutant.patch)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    executable = folder / "mutated"
    mutant.run.build(folder / "csrc", executable)
    return executable


def judge(mutant: Mutant) -> tuple[str, str]:
    """Returns the verdict on a mutant and the counterexample."""
    with tempfile.TemporaryDirectory() as name:
        try:
            executable = mutate(mutant, Path(name))
        except subprocess.CalledProcessError as error:
            return f"does not apply or compile: {error.stderr or error}", ""
        status, output = mutant.run.execute(executable)
    violated, detail = mutant.run.violation(output, mutant.invariant)
    if status != 1 or not violated:
        return f"SURVIVED (exit status {status})", output
    if violated != mutant.invariant:
        return f"caught by {violated} instead: {detail}", output
    return "caught", detail


def originals(runs: list[Run]) -> dict[Run, Path]:
    """Builds what the unmutated source is run with: one executable for each kind, or test."""
    built: dict[Run, Path] = {}
    for run in runs:
        name = run.arguments if run.kind == TESTED else run.kind.lower()
        built[run] = ROOT / "build/mutants" / name
        if built[run] not in [path for other, path in built.items() if other != run]:
            run.build(ROOT / "csrc", built[run])
    return built


def main() -> int:
    """Judges every mutant and prints the table; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="mutants (all)")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (2)")
    parser.add_argument("--show", action="store_true", help="print the counterexamples")
    options = parser.parse_args()
    mutants = [Mutant.read(p) for p in sorted(HERE.glob("*.patch"))]
    mutants = [m for m in mutants if not options.names or m.name in options.names]
    runs = sorted({m.run for m in mutants})
    unmutated = originals(runs)
    failed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        tried = pool.map(lambda run: run.execute(unmutated[run]), runs)
        for run, (status, output) in zip(runs, tried, strict=True):
            if status != 0:
                failed += 1
                print(f"the unmutated source fails {run.arguments}:\n{output}", flush=True)
        for mutant, (verdict, detail) in zip(mutants, pool.map(judge, mutants), strict=True):
            ok = verdict == "caught" and bool(detail)
            failed += not ok
            shown = detail if ok else verdict
            print(f"{'ok' if ok else 'FAILED':6} {mutant.name:26} {shown}", flush=True)
            if options.show and not ok:
                print(detail)
    print(f"{len(mutants) + len(runs) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
