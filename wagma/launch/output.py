"""Printing where not every character can be printed."""

from __future__ import annotations

import codecs
import io
import sys

__all__ = ["print_anything"]

_HANDLER = "wagma.plain"
_PLAIN = {"±": "+/-"}  # what wagma itself prints beyond ASCII


def print_anything() -> None:
    """Let stdout and stderr print every text, whatever their encoding (PYTHONIOENCODING, LANG).

    What they cannot encode appears as an escape: a name of a file is no reason to lose results.
    """
    codecs.register_error(_HANDLER, _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    plain = (_PLAIN.get(each) or each.encode("ascii", "backslashreplace").decode() for each in text)
    return "".join(plain), error.end
