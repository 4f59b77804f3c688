"""The pages of this repository, and the fenced blocks of code in them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    text: str


def pages() -> list[Path]:
    """Return README.md, CONTRIBUTING.md and every page of docs/."""
    return [*ROOT.glob("*.md"), *sorted(DOCS.glob("*.md"))]


def all_blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    return [Block(language, text) for _, language, text in FENCE.findall(page.read_text())]


def blocks(name: str, language: str) -> list[str]:
    """Return the texts of the blocks of docs/NAME that are in `language`, in order."""
    return [block.text for block in all_blocks(DOCS / name) if block.language == language]
