"""Where and with what was measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from wagma.report.document import Cell, Part, Section, table
from wagma.report.records import Found
from wagma.report.remarks import facts
from wagma.report.sections.words import NONE

__all__ = ["environment", "warnings"]

WARNINGS = "warnings"


def warnings(found: Found) -> list[str]:
    """What the files warn of, each once."""
    every: dict[str, None] = {}
    for source in found.sources:
        given = source.environment.get(WARNINGS)
        if isinstance(given, list):
            every.update(dict.fromkeys(str(each) for each in given))
    return list(every)


def environment(found: Found) -> Section | None:
    """What is the same for all files, and what is not."""
    known = {
        source.path: _facts(source.environment) for source in found.sources if source.environment
    }
    if not known:
        return None
    names = list(dict.fromkeys(name for each in known.values() for name in each))
    same = [name for name in names if len({each.get(name) for each in known.values()}) == 1]
    common = next(iter(known.values()))
    shared: list[tuple[str | Cell, ...]] = [(name, common[name]) for name in same]
    others = [name for name in names if name not in same]
    tables = []
    if shared:
        what = "of all files" if len(known) > 1 else f"of {next(iter(known))}"
        tables.append(table(f"Environment {what}", ("", "value"), shared))
    if others:
        rows: list[tuple[str | Cell, ...]] = [
            (path, *(each.get(name, NONE) for name in others)) for path, each in known.items()
        ]
        tables.append(table("Where files differ", ("file", *others), rows))
    return Section("environment", "Environment", (Part("", (), None, tuple(tables)),))


def _facts(environment: Mapping[str, object]) -> dict[str, str]:
    """By name; values of one name are put together. Warnings stand at the top of the page."""
    found: dict[str, str] = {}
    for name, value in facts({k: v for k, v in environment.items() if k != WARNINGS}):
        found[name] = f"{found[name]}; {value}" if name in found else value
    return found
