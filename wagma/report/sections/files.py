"""The files that the report is made of, and those that it could not use. Pure."""

from __future__ import annotations

from wagma.report.document import Cell, Part, Section, table
from wagma.report.records import Found

__all__ = ["files"]


def files(found: Found) -> Section:
    """Always there: a report is made of files."""
    read: list[tuple[str | Cell, ...]] = [(each.path, each.kind) for each in found.sources]
    parts = [
        Part("Files", (), None, (table("What the report is made of", ("file", "what"), read),))
    ]
    commands: list[tuple[str | Cell, ...]] = [
        (each.path, each.command) for each in found.sources if each.command
    ]
    if commands:
        listed = table("What made them", ("file", "command line"), commands)
        parts.append(Part("Command lines", (), None, (listed,)))
    if found.skipped:
        skipped: list[tuple[str | Cell, ...]] = [(each.path, each.why) for each in found.skipped]
        parts.append(Part("Not used", (), None, (table("Not used", ("file", "why"), skipped),)))
    return Section("files", "Files", tuple(parts))
