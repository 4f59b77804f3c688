"""Optional packages that a command needs. Pure."""

from importlib.util import find_spec

# Names on PyPI of packages that are imported under another name.
_DISTRIBUTIONS = {"sklearn": "scikit-learn", "cupy": "cupy-cuda13x[ctk]"}


def missing(*names: str) -> str:
    """Return which packages are missing and the command that installs them; "": none."""
    absent = [_DISTRIBUTIONS.get(name, name) for name in names if find_spec(name) is None]
    if not absent:
        return ""
    verb = "is" if len(absent) == 1 else "are"
    return f"{' and '.join(absent)} {verb} not installed: python -m pip install {' '.join(absent)}"
