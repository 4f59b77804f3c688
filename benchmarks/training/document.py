"""The results as one JSON document; training.schema.json describes it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wagma.launch.files import write_file

from .settings import Settings

if TYPE_CHECKING:
    from wagma.inject import Injector

__all__ = ["document", "write"]


def document(
    settings: Settings,
    environment: dict[str, Any],
    imbalance: Injector,
    measures: tuple[str, bool],
    runs: list[dict[str, Any]],
    interrupted: bool,
) -> dict[str, Any]:
    """What is reported.

    Args:
        settings: of the benchmark.
        environment: of `environment.surroundings`.
        imbalance: of the first seed, for its description.
        measures: what the task's measure is called, and whether it is a share.
        runs: of `measured.figures`.
        interrupted: not all trainings were finished.
    """
    return {
        "benchmark": "training",
        "environment": environment,
        "settings": {key: _plain(value) for key, value in asdict(settings).items()},
        "imbalance": imbalance.describe(),
        "measures": {"name": measures[0], "in_percent": measures[1]},
        "interrupted": interrupted,
        "runs": runs,
    }


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def write(path: Path, result: dict[str, Any]) -> None:
    """Writes the document, and makes its folder; OSError if that cannot be done."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, json.dumps(result, allow_nan=False) + "\n")
