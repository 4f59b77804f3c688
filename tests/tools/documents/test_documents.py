"""README.md, CONTRIBUTING.md and docs/: lengths, links, paths, and what executes each block.

Python blocks are executed by the tests that EXECUTED names. Shell blocks are parsed here, and the
commands in them have to be accepted: those of wagma by its parser, the others by what they name.
"""

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from documents import DOCS, FENCE, ROOT, all_blocks, pages

from wagma.cli import COMMANDS, Ended, build_parser
from wagma.slurm.shell import Command, parse

LINES = 150

README, PAGES, TRAINING, MIGRATING, COLLECTIVES, TESTING, TIMELINE = (
    "tests/tools/documents/test_readme.py",
    "tests/tools/documents/test_pages.py",
    "tests/training/test_training_documents.py",
    "tests/tools/documents/test_migrating.py",
    "tests/tools/documents/test_docs.py",
    "tests/training/strategies/test_testing.py",
    "tests/collectives/test_trace_exit.py",
)
SIMULATE = "tests/simulate/test_command.py"
SAMPLES = "tests/tools/bench/test_bench_documents.py"

# What executes each block that is neither a shell's nor text, in the order of the page.
EXECUTED = {
    "README.md": [README] * 3,
    "docs/algorithms.md": [TRAINING],
    "docs/benchmark-figures.md": [SAMPLES],
    "docs/cannikin.md": [PAGES],
    "docs/checkpoints.md": [TRAINING] * 3,
    "docs/clipping.md": [TRAINING] * 2,
    "docs/collectives.md": [COLLECTIVES] * 3,
    "docs/dropcompute.md": [PAGES, TRAINING],
    "docs/gpu.md": ["tests/gpu/test_collectives_gpu.py"],
    "docs/inject.md": [COLLECTIVES],
    "docs/ksync.md": [TRAINING],
    "docs/logs.md": [TRAINING],
    "docs/migrating.md": [MIGRATING, *[TRAINING] * 4],
    "docs/neighbors.md": [COLLECTIVES],
    "docs/parameter-server.md": [TRAINING],
    "docs/parameters.md": [TRAINING],
    "docs/preemption.md": [TRAINING],
    "docs/profile.md": ["tests/tools/profile/test_profile_ranks.py"] * 3,
    "docs/simulation.md": [SIMULATE],
    "docs/timeline.md": [TIMELINE],
    "docs/training.md": [TRAINING] * 4,
    "docs/writing-an-algorithm.md": [TESTING] * 2,
}

named = pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)


@named
def test_a_page_is_short(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= LINES


@named
def test_a_page_is_no_diary(page: Path) -> None:
    text = page.read_text()
    assert re.findall(r"\b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,40}\b", text) == []
    diary = r"no longer(?! than)|nowadays|formerly|previously|originally|today|used to be"
    assert re.findall(rf"\b(?:{diary})\b", text, re.IGNORECASE) == []


MEASURED = {"README", "results", *(page.stem for page in DOCS.glob("reproduction*.md"))}


@named
def test_measured_figures_have_their_pages(page: Path) -> None:
    """A machine is named where figures of it are: in results.md, README's quotes, reproductions."""
    found = re.findall(r"AMD EPYC|Xeon|virtual machine", page.read_text())
    assert found == [] or page.stem in MEASURED


def test_every_page_is_in_the_list() -> None:
    listed = (DOCS / "README.md").read_text()
    missing = [page.name for page in DOCS.glob("*.md") if f"({page.name})" not in listed]
    assert missing == ["README.md"]


def anchors(page: Path) -> set[str]:
    """Return what links into the page may name, by GitHub's rule."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in headings}


@named
def test_every_link_leads_somewhere(page: Path) -> None:
    for path, anchor in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", page.read_text()):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


FOLDERS = "csrc|collectives|wagma|benchmarks|tests|docs|slurm|examples|buildtools"
PATH = re.compile(rf"(?<![\w./~-])(?:{FOLDERS})/[\w./*-]*[\w/*]")
PAGE = re.compile(r"\bdocs/[\w-]+\.md\b")
SOURCES = [
    *("csrc/**/*.[ch]", "tests/**/*.[ch]", "tests/**/*.py", "tests/explore/mutants/*.patch"),
    *(
        "wagma/**/*.py",
        "collectives/**/*.py",
        "collectives/*.p[yx][xi]",
        "benchmarks/**/*.py",
        "slurm/**/*.s*",
    ),
]
ELSEWHERE = {"wagma/tune.json", "wagma/NAME/command.py"}  # in the user's cache; a pattern


@named
def test_every_path_is_there(page: Path) -> None:
    paths = set(PATH.findall(page.read_text())) - ELSEWHERE
    assert [path for path in paths if not list(ROOT.glob(path.rstrip("/")))] == []


def test_sources_name_pages_that_are_there() -> None:
    sources = [path for ends in SOURCES for path in ROOT.glob(ends)]
    assert len(sources) > 500
    named = {name for path in sources for name in PAGE.findall(path.read_text())}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@named
def test_every_block_is_executed(page: Path) -> None:
    languages = [block.language for block in all_blocks(page)]
    assert set(languages) <= {"python", "diff", "sh", "text"}
    executed = EXECUTED.get(str(page.relative_to(ROOT)), [])
    assert len([one for one in languages if one in ("python", "diff")]) == len(executed)
    for test in set(executed):
        assert page.stem in (ROOT / test).read_text()


REDIRECTION = re.compile(r" \d?>>? *[^\s;&|]+")


def commands(page: Path) -> Iterator[Command]:
    """Yield the commands of the shell blocks of a page, after bash has parsed each block."""
    for block in all_blocks(page):
        if block.language == "sh":
            done = subprocess.run(
                ["bash", "-n"], input=block.text, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{done.stderr}\n{block.text}"
            yield from parse(REDIRECTION.sub("", block.text))


def arguments_of_wagma(words: list[str]) -> list[str] | None:
    """Return the arguments of wagma in a command, which a launcher may stand before; or None."""
    for place, word in enumerate(words):
        if word == "wagma" and words[place + 1] in COMMANDS:
            return words[place + 1 :]
    return None


def test_shell_blocks_are_accepted() -> None:
    checked = 0
    for page in pages():
        for command in commands(page):
            text = " ".join(command.words)
            if (arguments := arguments_of_wagma(command.words)) is not None:
                accept(arguments, f"{page.name}: {text}")
                checked += 1
            for module in re.findall(r"-m (wagma[.\w]*)", text):
                assert importlib.util.find_spec(module), module
    assert checked > 30


CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)


def test_commands_in_sentences_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    package = SimpleNamespace(SlowMomentum=lambda _comm: None)
    monkeypatch.setitem(sys.modules, "my_package", package)
    checked = 0
    for page in pages():
        text = all_text(page)
        for _, code in CODE.findall(text):
            if "wagma " not in code:
                continue
            arguments = arguments_of_wagma(shlex.split(code))
            if arguments is not None and not re.search(r"\.\.\.|\b[A-Z]{3,}\b|\bN\b|\bX\b", code):
                accept(arguments, f"{page.name}: {code}", whole=False)
                checked += 1
    assert checked > 10


def all_text(page: Path) -> str:
    """Return the page without its fenced blocks."""
    return FENCE.sub("", page.read_text())


def accept(arguments: list[str], where: str, *, whole: bool = True) -> None:
    """Parse the arguments as wagma does; not `whole`: some may be left out."""
    try:
        _, unknown = build_parser(arguments[0]).parse_known_args(arguments)
    except Ended as end:
        if whole or not end.said.startswith("the following arguments are required"):
            pytest.fail(f"{where}: {end.said}")
        return
    assert unknown == [], where
