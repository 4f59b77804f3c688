"""What is wrong with a file that is none of those that the report is made of. Pure."""

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, NoReturn

# Control characters and halves of characters; in JSON's text they are escaped, but for a few.
FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
ESCAPED = re.compile(r"\\u|[\x7f-\x9f\ufffe\uffff]")
LARGEST = 1e30  # nothing that is measured comes near, and plots can have it
TOO_LARGE = "it has numbers that are too large"


class FormatError(Exception):
    """Why a file cannot be used."""


def loads(data: bytes) -> Any:
    """Return the JSON values in `data`.

    Raises:
        FormatError: it is no JSON, or has what JSON does not know.
    """
    try:
        text = data.decode("utf-8")
        content = json.loads(text, parse_constant=_refuse)
        return _clean(content) if ESCAPED.search(text) else content
    except UnicodeDecodeError:
        raise FormatError("broken JSON: it is no text in UTF-8") from None
    except json.JSONDecodeError as error:
        raise FormatError(
            f"broken JSON at line {error.lineno}, column {error.colno} ({error.msg}); was the file "
            "cut off while it was written or copied?"
        ) from None
    except RecursionError:
        raise FormatError("its JSON is nested too deeply") from None


def clean(text: str) -> str:
    """Return the text without characters that HTML and SVG cannot have."""
    return FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)


def _clean(content: Any) -> Any:
    if isinstance(content, dict):
        return {clean(key): _clean(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_clean(value) for value in content]
    return clean(content) if isinstance(content, str) else content


def _refuse(constant: str) -> NoReturn:
    raise FormatError(f"broken JSON: {constant} is no number of JSON")


def check_schema(content: Any, package: str, name: str) -> None:
    """Compare JSON values with a schema that lies beside the code.

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
        where = "it" if error.json_path == "$" else error.json_path
        raise FormatError(
            f"{where} is not as {name} says: {message}; was the file edited, or written "
            "by another version of wagma?"
        )
    if any(abs(number) > LARGEST for number in _numbers(content)):
        raise FormatError(TOO_LARGE)


def _numbers(content: Any) -> Iterator[int | float]:
    """Yield all numbers in JSON values."""
    if isinstance(content, dict):
        content = list(content.values())
    if isinstance(content, list):
        for one in content:
            yield from _numbers(one)
    elif isinstance(content, (int, float)):
        yield content


def finite(value: Any) -> float:
    """Return a number of JSON as a float.

    Raises:
        TypeError: it is no number.
        ValueError: it is too large to be drawn.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is no number")
    if abs(value) > LARGEST:
        raise ValueError(TOO_LARGE)
    return float(value)
