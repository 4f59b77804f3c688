"""Compiles the explorer, the random simulation or a C test with a copy of the sources."""

import os
import re
import shlex
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
C_TESTS = HERE.parent / "engine"
ACTIVATION = "protocol/activation*.c"
ACTIVATION_ORACLE = "activation_*.c"
FLAGS = ("-std=gnu11", "-O3", "-Wall", "-Wextra", "-Werror")

# Beside the core: what the simulation of its ranks is made of.
SIMULATION = ("test_activation_random.c", "transport_sim*.c", ACTIVATION_ORACLE)
SIMULATED = ("base/error.c", "base/numbers.c", "protocol/topology.c")
ENGINE_FLAGS = ("-ffp-contract=off", "-fvisibility=hidden")


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "cc"))


def for_this_cpu() -> list[str]:
    """The option for which this compiler uses all instructions of this CPU, if it has it."""
    options = ["-march=native"]
    trial = subprocess.run(
        [*compiler(), *options, "-x", "c", "-", "-o", os.devnull],
        input="int main(void) { return 0; }",
        text=True,
        capture_output=True,
        check=False,
    )
    return options if trial.returncode == 0 else []


def compile_to(executable: Path, folders: list[Path], sources: list[Path], *flags: str) -> None:
    """Compiles `sources`, which include from `folders`.

    Raises:
        subprocess.CalledProcessError: the compiler refuses; its words are on stderr.
    """
    executable.parent.mkdir(parents=True, exist_ok=True)
    fresh = executable.with_name(f"{executable.name}.{os.getpid()}")  # another run may use the old
    subprocess.run(
        [
            *compiler(),
            *FLAGS,
            *(f"-I{folder}" for folder in folders),
            *map(str, sources),
            *flags,
            "-o",
            str(fresh),
        ],
        check=True,
    )
    fresh.replace(executable)


def build(csrc: Path, executable: Path, *options: str) -> None:
    """Compiles the explorer with the protocols of `csrc`; `options`: of the compiler, more."""
    sources = [
        *sorted(HERE.glob("*.c")),
        *sorted(C_TESTS.glob(ACTIVATION_ORACLE)),
        *sorted(csrc.glob(ACTIVATION)),
        csrc / "protocol/topology.c",
    ]
    compile_to(executable, [HERE, csrc, C_TESTS], sources, *options)


def build_simulation(csrc: Path, executable: Path) -> None:
    """Compiles tests/engine/test_activation_random.c with the activation core of `csrc`."""
    sources = [
        *(path for name in SIMULATION for path in sorted(C_TESTS.glob(name))),
        *sorted(csrc.glob(ACTIVATION)),
        *(csrc / name for name in SIMULATED),
    ]
    compile_to(executable, [csrc, C_TESTS], sources, "-pthread")


def engine_sources(csrc: Path) -> list[Path]:
    """Return the C files that the engine in `csrc` is made of."""
    engine_mk = (csrc / "engine.mk").read_text()
    patterns = re.findall("^ENGINE_SOURCES = (.*)$", engine_mk, re.MULTILINE)[0].split()
    return [path for p in patterns for path in sorted(csrc.parent.glob(p))]


def build_test(csrc: Path, executable: Path, name: str) -> None:
    """Compiles tests/engine/`name`.c with all of the engine in `csrc`, for the shortest build."""
    support = (p for p in C_TESTS.glob("*.c") if not p.name.startswith(("test_", "bench_")))
    sources = [C_TESTS / f"{name}.c", *sorted(support), *engine_sources(csrc)]
    compile_to(executable, [csrc, C_TESTS], sources, *ENGINE_FLAGS, "-O0", "-pthread", "-lm")
