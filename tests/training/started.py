"""Starts the benchmark as users do."""

import json
import os
import shlex
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
from launched import clean_environment

LIVENESS_S = 200.0
ENVIRONMENT = {
    **clean_environment(),
    **{name: value for name, value in os.environ.items() if name.startswith("OMPI_ALLOW_RUN_AS")},
    "OMP_NUM_THREADS": "1",
}


def command(ranks: int, *options: str) -> list[str]:
    """The command line on that many ranks, 0: without a launcher."""
    mpiexec = os.environ.get("WAGMA_TEST_MPIEXEC", str(Path(sys.executable).with_name("mpiexec")))
    launcher = [*shlex.split(mpiexec), "-n", str(ranks)] if ranks else []
    return [*launcher, sys.executable, "-m", "wagma", "bench", "training", *options]


def training(folder: Path, ranks: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs it to its end."""
    return subprocess.run(
        command(ranks, *options),
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
    document = json.loads((folder / "result.json").read_text())
    validator().validate(document)
    words = shlex.split(document["environment"]["command"])
    assert words[1:] == command(0, "--json", "result.json", *options)[1:]
    return document, done.stdout


def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads((resources.files("wagma.benchmarks") / "training.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)
