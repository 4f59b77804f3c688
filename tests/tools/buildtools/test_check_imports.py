"""The lint check of imports: what it finds in files of wagma/, and what it lets pass."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "buildtools"))
import check_imports

IN_A_FUNCTION = "def later():\n    {}"
FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {}"


@pytest.mark.parametrize("where", ["{}", IN_A_FUNCTION, FOR_TYPES])
@pytest.mark.parametrize(
    "statement",
    [
        "import wagma.benchmarks.settings",
        "from wagma import benchmarks",
        "from wagma.benchmarks import settings",
        "from ..benchmarks.settings import LARGE_BYTES",
    ],
)
def test_only_the_command_line_imports_benchmarks(statement: str, where: str) -> None:
    source = where.format(statement)
    (found,) = check_imports.violations("wagma/doctor/probe.py", source)
    line = source.count("\n") + 1
    assert found.startswith(f"wagma/doctor/probe.py:{line}: imports wagma.benchmarks"), found
    assert list(check_imports.violations("wagma/cli.py", source)) == []


@pytest.mark.parametrize(
    "statement", ["import torch.nn", "from mpi4py import MPI", "from wagma import collectives"]
)
@pytest.mark.parametrize(
    "room", ["wagma/data/x.py", "wagma/inject/x.py", "wagma/logs/x.py", "wagma/theory/x.py"]
)
def test_rooms_without_torch_and_mpi(room: str, statement: str) -> None:
    (found,) = check_imports.violations(room, f"try:\n    {statement}\nexcept ImportError: pass")
    assert found.startswith(f"{room}:2: imports "), found
    for where in (IN_A_FUNCTION, FOR_TYPES):
        assert list(check_imports.violations(room, where.format(statement))) == []
    assert list(check_imports.violations("wagma/doctor/probe.py", statement)) == []


def test_rooms_import_what_is_theirs() -> None:
    source = "import os.path\nimport numpy as np\nfrom .checks import check_rank"
    assert list(check_imports.violations("wagma/inject/draws.py", source)) == []
    (found,) = check_imports.violations("wagma/inject/draws.py", "import numpy_financial")
    assert "imports numpy_financial" in found
