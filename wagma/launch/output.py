"""Printing to streams that cannot encode every character."""

import codecs
import io
import sys

_HANDLER = "wagma.plain"
_PLAIN = {"±": "+/-"}  # characters beyond ASCII that wagma prints


def print_anything() -> None:
    """Make stdout and stderr print any text, whatever their encoding (PYTHONIOENCODING, LANG).

    Characters that they cannot encode are escaped, so that a file name does not cost results.
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
