"""Blocks of pages of docs/, as a reader would run them."""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from documents import DOCS, all_blocks, blocks, link_tree, paste
from launched import finished

pytestmark = pytest.mark.launch

MPIEXEC = os.environ.get("WAGMA_TEST_MPIEXEC", str(Path(sys.executable).with_name("mpiexec")))
NUMBER = r"\d\.\d+"
PRINTED = {
    "dropcompute": (
        r"accuracy 9\d\.\d%, \d+\.\d s\nthreshold [\d.einf]+ s, dropped \d+\.\d%, speed-up "
        rf"({NUMBER}|nan), expected {NUMBER}\n"
    ),
    "cannikin": (
        rf"(96 = \d+ \+ \d+ samples, learning, measured {NUMBER} s\n){{2}}"
        rf"(96 = \d+ \+ \d+ samples, predicted {NUMBER} s, measured {NUMBER} s\n){{3}}"
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PRINTED)
def test_the_page_runs(name: str, tmp_path: Path) -> None:
    program = tmp_path / "page.py"
    program.write_text(blocks(f"{name}.md", "python")[0])
    done = finished([*shlex.split(MPIEXEC), "-n", "2", sys.executable, str(program)], 100.0)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(PRINTED[name], done.stdout), done.stdout


SHELL = {
    "launching-mpiexec": ("launching.md", 0),
    "launching-torchrun": ("launching.md", 1),
    "timeline": ("timeline.md", 0),
}


@pytest.mark.long
@pytest.mark.parametrize(("page", "number"), SHELL.values(), ids=SHELL)
def test_the_shell_block_runs(page: str, number: int, tmp_path: Path) -> None:
    link_tree(tmp_path)
    (tmp_path / "train.py").symlink_to(tmp_path / "examples/train.py")
    found = [block for block in all_blocks(DOCS / page) if block.language == "sh"]
    paste(tmp_path, found[number].text)
