"""Import of scipy, an optional package, with a remedy if it is missing."""

from importlib import import_module
from typing import Any


def scipy(part: str) -> Any:
    """Return a module of scipy, such as scipy.stats for "stats".

    Raises:
        ImportError: it cannot be imported; says what to do.
    """
    try:
        return import_module(f"scipy.{part}")
    except ImportError as error:
        raise ImportError(
            f"this formula needs scipy ({error}): python -m pip install scipy, or wagma with its "
            "extra theory"
        ) from error
