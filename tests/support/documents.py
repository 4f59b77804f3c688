"""The pages of this repository, the fenced blocks of code in them, and a shell to run these in."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MPIEXEC = os.environ.get("WAGMA_TEST_MPIEXEC", str(Path(sys.executable).with_name("mpiexec")))

# What a reader has on the path, or a test has in its place.
COMMANDS = {
    "mpiexec": f'exec {MPIEXEC} "$@"',
    "srun": f'while [[ $1 == --* ]]; do shift; done; exec {MPIEXEC} "$@"',
    "pkg-config": f'exec {shlex.quote(sys.executable)} -m pkgconf "$@"',
}

FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    text: str


def pages() -> list[Path]:
    """Return README.md, CONTRIBUTING.md and every page of docs/."""
    return [*ROOT.glob("*.md"), *sorted(DOCS.glob("*.md"))]


def all_blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    return [Block(language, text) for _, language, text in FENCE.findall(page.read_text())]


def blocks(name: str, language: str) -> list[str]:
    """Return the texts of the blocks of docs/NAME that are in `language`, in order."""
    return [block.text for block in all_blocks(DOCS / name) if block.language == language]


def link_tree(folder: Path) -> None:
    """Link everything of the root into a folder: what is written beside the links stays there."""
    for entry in ROOT.iterdir():
        if entry.name != ".git":
            (folder / entry.name).symlink_to(entry)


def paste(folder: Path, text: str) -> str:
    """Run the lines in a folder, as a reader pastes them; return what they print."""
    commands = folder / "commands"
    commands.mkdir()
    for name, script in COMMANDS.items():
        (commands / name).write_text(f"#!/bin/bash\n{script}\n")
        (commands / name).chmod(0o755)
    path = f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        # Unbuffered, Python writes a line and its end apart, and another rank's may come between.
        env={**os.environ, "PATH": path, "HOME": str(folder / "home"), "PYTHONUNBUFFERED": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
