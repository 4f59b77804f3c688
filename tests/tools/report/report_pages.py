"""Pages of reports, as tests read them."""

from html.parser import HTMLParser
from pathlib import Path

from wagma.report.page import Report, report
from wagma.report.reading import read


class Page(HTMLParser):
    """Checks that elements end in the order in which they began, and keeps what tests ask for."""

    VOID = frozenset({"meta", "img", "br", "link", "input", "hr"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][-1].append("")
        elif tag == "small":
            self.tables[-1][-1][-1] += " "

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1] == tag, (self.open, tag, self.getpos())
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self.open and self.open[-1] in ("th", "td", "small"):
            self.tables[-1][-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def row(self, head: str, *begins: str) -> list[str]:
        """Return the row that begins so, in the first table that has this head."""
        table = next(rows for rows in self.tables if head in rows[0])
        return next(row for row in table if tuple(row[: len(begins)]) == begins)


def report_of(
    folder: Path, title: str = "A title", *, pictures: bool = False
) -> tuple[Page, Report]:
    """`pictures`: also the plots as PNG, which take a third of the time."""
    shown = report(read(folder), title, pictures=pictures)
    return Page(shown.html), shown
