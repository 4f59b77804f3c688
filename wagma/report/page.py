"""The page: one file of HTML that needs nothing else. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from wagma.report.drawing import Drawn, draw
from wagma.report.glance import glance
from wagma.report.records import Found
from wagma.report.sections import sections
from wagma.report.sections.tables import warnings


@dataclass(frozen=True)
class Report:
    """A page and the plots in it; `plots`: by name, as they are in the page and as PNG."""

    html: str
    plots: Mapping[str, Drawn]


def report(found: Found, title: str, *, pictures: bool = True) -> Report:
    """Draw everything; the same files and title give the same bytes.

    Args:
        found: at least one source.
        title: of the page.
        pictures: somebody wants the plots as PNG.
    """
    shown = sections(found)
    plots = {
        part.plot.name: draw(part.plot, file=pictures)
        for section in shown
        for part in section.parts
        if part.plot is not None
    }
    here = files("wagma.report")
    # Texts of files are escaped; plots and style are of this package.
    template = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).from_string((here / "page.html").read_text(encoding="utf-8"))
    html = template.render(
        title=title,
        css=Markup((here / "page.css").read_text(encoding="utf-8")),
        what=_what(found),
        warnings=warnings(found),
        facts=glance(found),
        sections=shown,
        drawn={name: each.inline for name, each in plots.items()},
    )
    return Report(html, plots)


def _what(found: Found) -> str:
    """Return a line that counts the sources of the report."""
    kinds = Counter(source.kind for source in found.sources)
    counts = [
        (len(found.benchmarks), "benchmark", "benchmarks"),
        (len(found.goals), "table of goals", "tables of goals"),
        (len(found.simulations), "file of simulations", "files of simulations"),
        (sum(len(each.runs) for each in found.trainings), "training", "trainings"),
        (len(found.divisions), "heterogeneous cluster", "heterogeneous clusters"),
        (kinds["timeline"], "timeline", "timelines"),
        (kinds["merged timelines"], "file of merged timelines", "files of merged timelines"),
        (kinds["summary of timelines"], "summary of timelines", "summaries of timelines"),
    ]
    words = [f"{count} {one if count == 1 else many}" for count, one, many in counts if count]
    return f"Made of {', '.join(words)}"
