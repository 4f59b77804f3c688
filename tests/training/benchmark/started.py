"""Starts the benchmark as users do."""

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
from under_mpiexec import CLEAN, in_turn, launcher

LIVENESS_S = 200.0
ENVIRONMENT = {**CLEAN, "OMP_NUM_THREADS": "1"}


def wagma(ranks: int, *words: str) -> list[str]:
    """A command line on that many ranks, 0: without a launcher."""
    mpiexec = [*launcher(), "-n", str(ranks)] if ranks else []
    return [*mpiexec, sys.executable, "-m", "wagma", *words]


def command(ranks: int, *options: str) -> list[str]:
    """That of the training benchmark."""
    return wagma(ranks, "bench", "training", *options)


def training(folder: Path, ranks: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs it to its end."""
    return ended(folder, command(ranks, *options))


def ended(folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(
        words,
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=LIVENESS_S,
        check=False,
    )


def result(folder: Path, ranks: int, *options: str) -> tuple[dict[str, Any], str]:
    """The JSON document of a run that succeeds, which is what the schema says, and its output."""
    done = training(folder, ranks, "--json", "result.json", *options)
    assert done.returncode == 0, done.stderr
    document = read(folder / "result.json")
    words = shlex.split(document["environment"]["command"])
    assert words[1:] == command(0, "--json", "result.json", *options)[1:]
    return document, done.stdout


def results(
    folder: Path, ranks: int, lines: Sequence[Sequence[str]]
) -> list[tuple[dict[str, Any], str]]:
    """Return document and output of several runs, made in turn in the same processes."""
    files = [folder / f"{number}.json" for number in range(len(lines))]
    words = [
        ["bench", "training", "--json", str(file), *line]
        for file, line in zip(files, lines, strict=True)
    ]
    done = in_turn(folder, [[line] * ranks for line in words], timeout=LIVENESS_S * len(lines))
    for one in done:
        assert one.returncode == 0, one.stderr
    return [(read(file), one.stdout) for file, one in zip(files, done, strict=True)]


def read(file: Path) -> dict[str, Any]:
    """A JSON document, which is what the schema says."""
    document: dict[str, Any] = json.loads(file.read_text())
    validator().validate(document)
    return document


def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads((resources.files("wagma.report") / "training.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)
