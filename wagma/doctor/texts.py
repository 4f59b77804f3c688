"""Small texts: the content of files of the kernel, and exceptions in one line."""

from __future__ import annotations

from pathlib import Path

__all__ = ["one_line", "text_of"]


def one_line(error: BaseException) -> str:
    """An exception's text, with its type where that says more."""
    text = " ".join(str(error).split())
    known = isinstance(error, (ImportError, RuntimeError, OSError)) and text
    return text if known else f"{type(error).__name__}: {text}".removesuffix(": ")


def text_of(path: str | Path) -> str:
    """A small file's content; empty if it cannot be read."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
