"""Compiles the explorer with a copy of the protocols' sources."""

import os
import shlex
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROTOCOL = ("round.c", "inplace.c", "topology.c")
FLAGS = ("-std=gnu11", "-O3", "-Wall", "-Wextra", "-Werror")


def build(csrc: Path, executable: Path) -> None:
    """Compiles the explorer with PROTOCOL of `csrc` into `executable`.

    Raises:
        subprocess.CalledProcessError: the compiler refuses; its words are on stderr.
    """
    executable.parent.mkdir(parents=True, exist_ok=True)
    fresh = executable.with_name(f"{executable.name}.{os.getpid()}")  # another run may use the old
    sources = sorted(HERE.glob("*.c"))
    subprocess.run(
        [
            *shlex.split(os.environ.get("CC", "cc")),
            *FLAGS,
            '-DROUND_MEMORY_H="explore_memory.h"',
            '-DINPLACE_MEMORY_H="inplace_explore_memory.h"',
            f"-I{HERE}",
            f"-I{csrc}",
            *map(str, sources),
            *(str(csrc / name) for name in PROTOCOL),
            "-o",
            str(fresh),
        ],
        check=True,
    )
    fresh.replace(executable)
