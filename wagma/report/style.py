"""Colours, lines and markers of algorithms, and how plots look. Pure.

Whoever sees few colours tells neighbours apart by lightness, dashes and markers.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

INK, GRID, FAINT = "#1f2933", "#e3e7eb", "#616e7c"
COMPUTING, IN_CALL, WAITING, REDUCING = "#c9d0d6", "#8793a0", "#e08a00", "#16324f"

BLUE, SKY, VERMILION, GREEN = "#0068a9", "#46a6e0", "#c94f00", "#008f66"
PURPLE, AMBER, BLACK, BROWN = "#b0568c", "#d19a00", "#22272e", "#7a4a1e"

# By the beginning of a name; the first one that fits.
COLOURS = {
    "MPI_Allreduce of groups": AMBER,
    "MPI_Allreduce": VERMILION,
    "MPI_Iallreduce": VERMILION,
    "gloo": GREEN,
    "NCCL": PURPLE,
    "wagma-ff": SKY,
    "wagma-nosync": SKY,
    "wagma": BLUE,
    "allreduce": VERMILION,
    "dropcompute-local": PURPLE,
    "dropcompute": VERMILION,
    "anytime": VERMILION,
    "auto": GREEN,
    "local": PURPLE,
    "diloco": PURPLE,
    "dpsgd": GREEN,
    "sgp": BROWN,
    "eager": BLACK,
    "adpsgd": AMBER,
}
OTHERS = (FAINT, SKY, BROWN, GREEN)  # of names that are none of these, in turn
DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)))
HATCHES = ("", "////", "....", "xxxx")
MARKERS = "osD^vPX*"
FORM = re.compile(r" (in-place|two-buffers|private|out-of-place)$")

# Beside matplotlib's defaults.
RC: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "text.parse_math": False,  # names come from files
    "svg.fonttype": "none",
}


@dataclass(frozen=True)
class Look:
    """How a series or an algorithm is drawn, in every plot."""

    colour: str
    dashes: Any
    marker: str
    hatch: str


Looks: TypeAlias = Mapping[str, Look]


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return a look for each name: relatives share a colour and differ in dashes and hatching."""
    found: dict[str, Look] = {}
    counts: dict[str, int] = {}
    unknown = 0
    for name in dict.fromkeys(names):
        family = next((known for known in COLOURS if name.startswith(known)), None)
        if family is None:
            colour = OTHERS[unknown % len(OTHERS)]
            unknown += 1
        else:
            colour = COLOURS[family]
        place = counts.get(colour, 0)
        counts[colour] = place + 1
        marker = MARKERS[(list(COLOURS.values()).index(colour) if family else 7) % len(MARKERS)]
        variant = place % len(DASHES)
        found[name] = Look(colour, DASHES[variant], marker, HATCHES[variant])
    return found


def without_form(name: str) -> str:
    """Return the name of a series without the form of its arrays."""
    return FORM.sub("", name)
