"""Plots as SVG for a page, and as PNG. Deterministic: the same plot gives the same bytes."""

import base64
import io
import re
import warnings
from dataclasses import dataclass
from typing import Any

import matplotlib.style as mpl_style
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image

from wagma.report.document import Plot
from wagma.report.style import RC

WIDTH, WIDE = 5.0, 10.6  # inches
PNG_DPI = 160
COLOURS = 128  # of a PNG
SVG_LIMIT = 100_000  # bytes; above, the smaller one of SVG and PNG is taken

# Groups have names such as "axes_1" in every plot; nothing refers to them.
GROUP = re.compile(r'<g id="[^"]*"')
START = re.compile(r'<svg [^>]*viewBox="([^"]*)"[^>]*>')


@dataclass(frozen=True)
class Drawn:
    """A plot."""

    inline: Markup  # an element for a page: <svg> or <img> with the picture inside
    png: bytes | None  # the same as a file; None: neither the page nor anybody else wants one


def draw(plot: Plot, *, file: bool = True) -> Drawn:
    """Draw; the text of `plot` becomes attributes and text, never elements.

    Args:
        plot: what is drawn.
        file: a PNG is wanted also where the page has none.
    """
    # The salt is in the names to which an SVG refers: those of plots in one page differ.
    rc = {**RC, "svg.hashsalt": plot.name}
    with mpl_style.context(["default", rc]), warnings.catch_warnings():
        # The font may lack letters of a name; the page still shows them.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure = Figure(figsize=(WIDE if plot.wide else WIDTH, plot.height), layout="constrained")
        plot.draw(figure)
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        svg = _inline_svg(_saved(figure, format="svg", metadata=nothing).decode(), plot)
        large = len(svg.encode()) > SVG_LIMIT
        figure.set_layout_engine(None)  # it stays as it was found, and is not laid out twice
        png = _png(figure) if file or large else None
    if png is not None and large:
        svg = min(svg, _inline_png(png, plot), key=len)
    return Drawn(svg, png)


def _saved(figure: Figure, **options: Any) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, **options)
    return content.getvalue()


def _png(figure: Figure) -> bytes:
    """Return a PNG with a palette, which takes a third of the bytes of one in true colour."""
    pixels = _saved(figure, format="png", dpi=PNG_DPI, pil_kwargs={"compress_level": 0})
    image = Image.open(io.BytesIO(pixels)).convert("RGB")
    content = io.BytesIO()
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(content, format="PNG", optimize=True)
    return content.getvalue()


def _inline_png(png: bytes, plot: Plot) -> Markup:
    data = base64.b64encode(png).decode()
    return Markup('<img src="data:image/png;base64,{}" alt="{}">').format(data, plot.alt)


def _inline_svg(text: str, plot: Plot) -> Markup:
    """Return the element, as wide as its place in the page, with a title for the blind."""
    start = START.search(text)
    assert start is not None
    title = Markup(
        '<svg viewBox="{0}" role="img" aria-labelledby="{1}-title" '
        'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
        '<title id="{1}-title">{2}</title>'
    ).format(start[1], plot.name, plot.alt)
    drawn = re.sub(r">\s*\n\s*<", "><", text[start.end() :])
    return title + Markup(GROUP.sub("<g", drawn).rstrip())
