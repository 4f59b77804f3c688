"""Packages that a command needs and that wagma can do without. Pure."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["missing"]

# What a package is called in the index, where that is not the name that is imported.
_DISTRIBUTIONS = {"sklearn": "scikit-learn"}


def missing(*names: str) -> str:
    """Return which of these are not installed and the command that installs them; "" if all are."""
    absent = [_DISTRIBUTIONS.get(name, name) for name in names if find_spec(name) is None]
    if not absent:
        return ""
    verb = "is" if len(absent) == 1 else "are"
    return f"{' and '.join(absent)} {verb} not installed: python -m pip install {' '.join(absent)}"
