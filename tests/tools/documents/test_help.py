"""What `help()` shows of packages that users import: the reference that docs/README.md names."""

import pydoc
import re
from importlib import import_module

import pytest

THEORY = [f"wagma.theory.{name}" for name in ("cannikin", "dropcompute", "fastest_k", "ksync")]


def shown(name: str) -> str:
    return pydoc.render_doc(import_module(name), renderer=pydoc.plaintext)


@pytest.mark.parametrize("name", ["wagma", "wagma.checkpoint", "wagma.data", *THEORY])
def test_types_are_shown_as_they_are_written(name: str) -> None:
    spelt_out = r".*(?:numpy\._typing|numpy\.ndarray\[|<class 'Supports).*"
    assert re.findall(spelt_out, shown(name)) == []


def test_functions_of_the_engine_are_shown() -> None:
    assert "\n    group_of(rank, size, group_size, version" in shown("wagma.collectives.topology")
