"""csrc/engine.mk for Python: sources and flags that all builds share."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def read() -> dict[str, list[str]]:
    """Return the words of every `NAME = words` line."""
    lines = (ROOT / "csrc/engine.mk").read_text().splitlines()
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): words.split() for name, words in pairs}
