"""Sections of tables alone: divisions, goals, where and with what was measured, files. Pure."""

from collections.abc import Mapping

from wagma.report.document import Part, Row, Section, table
from wagma.report.records import Found
from wagma.report.remarks import facts
from wagma.units import NONE

WARNINGS = "warnings"


def divisions(found: Found) -> Section:
    """Show the table of ``python -m wagma bench heterogeneous``."""
    parts = []
    for each in found.divisions:
        head, *rows = each.table
        shown = table("Divisions of the batch", tuple(head), map(tuple, rows))
        parts.append(Part(each.what, tuple(each.notes), tables=(shown,), files=(each.path,)))
    return Section("divisions", "Heterogeneous clusters", tuple(parts))


def goals(found: Found) -> Section:
    """Show what ``python -m wagma bench table`` measured beside its goals."""
    head = ("what", "ranks", "goal", "measured", "verdict", "median [p10, p90]")
    parts = [
        Part(
            "Measured beside its goals",
            tables=(table("Goals", head, [tuple(row.values()) for row in each.rows]),),
            files=(each.path,),
        )
        for each in found.goals
    ]
    text = ("wagma beside every MPI of the machine, by python -m wagma bench table.",)
    return Section("goals", "Goals", tuple(parts), text)


def warnings(found: Found) -> list[str]:
    """Return what the files warn of, each once."""
    every: dict[str, None] = {}
    for source in found.sources:
        given = source.environment.get(WARNINGS)
        if isinstance(given, list):
            every.update(dict.fromkeys(str(each) for each in given))
    return list(every)


def environment(found: Found) -> Section:
    """Show what is the same for all files, and what is not."""
    known = {
        source.path: _facts(source.environment) for source in found.sources if source.environment
    }
    names = list(dict.fromkeys(name for each in known.values() for name in each))
    same = [name for name in names if len({each.get(name) for each in known.values()}) == 1]
    others = [name for name in names if name not in same]
    tables = []
    if same:
        path, common = next(iter(known.items()))
        what = "of all files" if len(known) > 1 else f"of {path}"
        rows: list[Row] = [(name, common[name]) for name in same]
        tables.append(table(f"Environment {what}", ("", "value"), rows))
    if others:
        rows = [(path, *(each.get(name, NONE) for name in others)) for path, each in known.items()]
        tables.append(table("Where files differ", ("file", *others), rows))
    parts = (Part("", tables=tuple(tables)),) if known else ()
    return Section("environment", "Environment", parts)


def _facts(environment: Mapping[str, object]) -> dict[str, str]:
    """Return facts by name, with all values of a name; without the warnings."""
    found: dict[str, str] = {}
    for name, value in facts({k: v for k, v in environment.items() if k != WARNINGS}):
        found[name] = f"{found[name]}; {value}" if name in found else value
    return found


def files(found: Found) -> Section:
    """Show what the report is made of, and what it could not use."""
    read: list[Row] = [(each.path, each.kind) for each in found.sources]
    commands: list[Row] = [(each.path, each.command) for each in found.sources if each.command]
    skipped: list[Row] = [(each.path, each.why) for each in found.skipped]
    parts = [
        Part(title, tables=(table(caption, ("file", what), rows),))
        for title, caption, what, rows in (
            ("Files", "What the report is made of", "what", read),
            ("Command lines", "What made them", "command line", commands),
            ("Not used", "Not used", "why", skipped),
        )
        if rows
    ]
    return Section("files", "Files", tuple(parts))
