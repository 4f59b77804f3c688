"""What is wrong with a file that is none of those that the report is made of. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, NoReturn

__all__ = ["FormatError", "check_schema", "finite", "loads"]


class FormatError(Exception):
    """Why a file cannot be used."""


def loads(data: bytes) -> Any:
    """JSON values.

    Raises:
        FormatError: it is no JSON, or has what JSON does not know.
    """
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse)
    except UnicodeDecodeError:
        raise FormatError("broken JSON: it is no text in UTF-8") from None
    except json.JSONDecodeError as error:
        raise FormatError(
            f"broken JSON at line {error.lineno}, column {error.colno} ({error.msg}); was the file "
            "cut off while it was written or copied?"
        ) from None
    except RecursionError:
        raise FormatError("its JSON is nested too deeply") from None


def _refuse(constant: str) -> NoReturn:
    raise FormatError(f"broken JSON: {constant} is no number of JSON")


def check_schema(content: Any, package: str, name: str) -> None:
    """Compares JSON values with a schema that lies beside the code.

    Args:
        content: the values.
        package: where the schema is.
        name: of its file.

    Raises:
        FormatError: says where the values differ, and how.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    schema = json.loads((files(package) / name).read_text(encoding="utf-8"))
    error = best_match(Draft202012Validator(schema).iter_errors(content))
    if error is not None:
        message = error.message if len(error.message) < 200 else f"{error.message[:200]}..."
        raise FormatError(f"{error.json_path} is not as {name} says: {message}")
    if any(not math.isfinite(number) for number in _numbers(content)):
        raise FormatError("it has numbers that are too large")


def _numbers(content: Any) -> Iterator[float]:
    """Of JSON values; text for text."""
    if isinstance(content, dict):
        content = list(content.values())
    if isinstance(content, list):
        for one in content:
            yield from _numbers(one)
    elif isinstance(content, float):
        yield content


def finite(value: Any) -> float:
    """A number of JSON as a float.

    Raises:
        TypeError: it is no number.
        ValueError: it is too large for one.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is no number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number
