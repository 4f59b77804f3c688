"""The table of ``python -m wagma bench table``: what was measured beside its goals. Pure."""

from __future__ import annotations

from wagma.report.document import Part, Section, table
from wagma.report.records import Found

__all__ = ["goals"]


def goals(found: Found) -> Section | None:
    """A table for each file."""
    head = ("what", "ranks", "goal", "measured", "verdict", "median [p10, p90]")
    parts = [
        Part(
            "Measured beside its goals",
            (),
            None,
            (table("Goals", head, [tuple(row.values()) for row in each.rows]),),
            (each.path,),
        )
        for each in found.goals
    ]
    if not parts:
        return None
    text = ("wagma beside every MPI of the machine, by python -m wagma bench table.",)
    return Section("goals", "Goals", tuple(parts), text)
