"""Plots as SVG for a page, and as PNG. Deterministic: the same plot gives the same bytes."""

from __future__ import annotations

import base64
import io
import re
import warnings
from dataclasses import dataclass
from xml.etree import ElementTree

import matplotlib.style as mpl_style
from matplotlib.figure import Figure
from PIL import Image

from wagma.report.document import Plot
from wagma.report.style import RC

__all__ = ["Drawn", "draw"]

WIDTH, WIDE = 5.0, 10.6  # inches
PNG_DPI = 160
COLOURS = 128  # of a PNG
SVG_LIMIT = 100_000  # bytes; above, the smaller one of SVG and PNG is taken

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
REFERENCE = re.compile(r"#([\w.-]+)")


@dataclass(frozen=True)
class Drawn:
    """A plot.

    Attributes:
        inline: an element for a page: <svg> or <img> with the picture inside.
        png: the same as a file; None: neither the page nor anybody else wants one.
    """

    inline: str
    png: bytes | None


def draw(plot: Plot, *, file: bool = True) -> Drawn:
    """Draws; the text of `plot` becomes attributes and text, never elements.

    Args:
        plot: what is drawn.
        file: a PNG is wanted also where the page has none.
    """
    with mpl_style.context(["default", RC]), warnings.catch_warnings():
        # Of names in letters that the font has not: pages have them all the same.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure = Figure(figsize=(WIDE if plot.wide else WIDTH, plot.height), layout="constrained")
        plot.draw(figure)
        vector = io.BytesIO()
        figure.savefig(vector, format="svg", metadata={"Date": None, "Creator": None})
        svg = _inline_svg(vector.getvalue(), plot)
        large = len(svg.encode()) > SVG_LIMIT
        png = _png(figure) if file or large else None
    if png is not None and large:
        svg = min(svg, _inline_png(png, plot), key=len)
    return Drawn(svg, png)


def _png(figure: Figure) -> bytes:
    """Of a figure that has been drawn."""
    pixels = io.BytesIO()
    figure.set_layout_engine(None)  # it stays as it was found, and need not be drawn twice for that
    figure.savefig(pixels, format="png", dpi=PNG_DPI, pil_kwargs={"compress_level": 0})
    image = Image.open(pixels).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small = io.BytesIO()
    image.save(small, format="PNG", optimize=True)
    return small.getvalue()


def _inline_png(png: bytes, plot: Plot) -> str:
    image = ElementTree.Element(
        "img", src=f"data:image/png;base64,{base64.b64encode(png).decode()}", alt=plot.alt
    )
    return ElementTree.tostring(image, encoding="unicode", method="html")


def _inline_svg(data: bytes, plot: Plot) -> str:
    """Without what only a file needs; its ids begin with the plot's name, fonts are the page's."""
    root = ElementTree.fromstring(data)
    for element in root.findall(f"{{{SVG}}}metadata"):
        root.remove(element)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    used = {
        reference
        for element in root.iter()
        for value in element.attrib.values()
        for reference in REFERENCE.findall(value)
    }
    for element in root.iter():
        _shorten(element, plot.name, used)
    title = ElementTree.Element(f"{{{SVG}}}title", id=f"{plot.name}-title")
    title.text = plot.alt
    root.insert(0, title)
    root.set("role", "img")
    root.set("aria-labelledby", f"{plot.name}-title")
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    text = ElementTree.tostring(root, encoding="unicode")
    return re.sub(r">\s*\n\s*<", "><", text)


def _shorten(element: ElementTree.Element, name: str, used: set[str]) -> None:
    attributes = element.attrib
    if "id" in attributes:
        if attributes["id"] in used:
            attributes["id"] = f"{name}-{attributes['id']}"
        else:
            del attributes["id"]
    for key in ("clip-path", f"{{{XLINK}}}href"):
        if key in attributes:
            attributes[key] = REFERENCE.sub(rf"#{name}-\1", attributes[key])
    style = attributes.get("style")
    if style and element.tag == f"{{{SVG}}}text":
        size = re.search(r"([\d.]+)px", style)
        bold = "font-weight: bold; " if " 700 " in style or "bold" in style else ""
        rest = "; ".join(
            part.strip() for part in style.split(";") if not part.strip().startswith("font")
        )
        attributes["style"] = f"{bold}font-size: {size[1] if size else 9}px; {rest}"
    if not attributes.get("transform", "x"):
        del attributes["transform"]
