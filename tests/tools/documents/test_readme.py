"""README.md: each block of code as a reader would paste it, its size, and the rows it quotes."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from documents import blocks, link_tree, paste

pytestmark = pytest.mark.launch

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def block(language: str, words: str) -> str:
    """The only block of this language that has these words."""
    (found,) = (text for name, text in BLOCKS if name == language and words in text)
    return found


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with everything that this one has: what is written beside it stays there."""
    link_tree(tmp_path)
    return tmp_path


def test_it_is_one_page() -> None:
    assert len(README.split()) <= 1800  # its lines are counted with those of docs/


def test_there_is_no_block_that_is_not_run() -> None:
    run = {
        block("sh", "make demo"),
        block("python", "WAGMA("),
        block("sh", "srun --"),
        block("diff", "DistributedOptimizer"),
        block("python", "GroupAllreduce"),
        block("sh", "wagma advise"),
    }
    assert [text for _, text in BLOCKS if text not in run] == []


def test_the_targets_of_make_are_there(clone: Path) -> None:
    (clone / ".venv").unlink(missing_ok=True)
    activate = clone / ".venv/bin/activate"
    activate.parent.mkdir(parents=True)
    activate.touch()
    paste(clone, block("sh", "make demo").replace("make ", "make -n "))


def test_the_training_script_is_the_example() -> None:
    assert block("python", "WAGMA(") == (ROOT / "examples/train.py").read_text()


@pytest.mark.parametrize(
    "launcher",
    ["mpiexec", *(pytest.param(name, marks=pytest.mark.long) for name in ("torchrun", "srun"))],
)
def test_the_training_script_trains_one_model(clone: Path, launcher: str) -> None:
    (line,) = (line for line in block("sh", "srun --").splitlines() if line.startswith(launcher))
    printed = paste(clone, line)
    pattern = r"(\d) of 4: [\d.]+ s, accuracy ([\d.]+)%, a weight (-?\d\.\d{4})"
    assert re.search(f"`{pattern}`", README)
    found = re.findall(pattern, printed)
    assert sorted(rank for rank, _, _ in found) == ["0", "1", "2", "3"]
    assert len({weight for _, _, weight in found}) == 1
    assert all(float(accuracy) > 95 for _, accuracy, _ in found)


@pytest.mark.long
def test_advice_follows_from_a_profile(clone: Path) -> None:
    printed = paste(clone, block("sh", "wagma advise"))
    assert "DistributedDataParallel" in printed
    assert "1. " in printed
    assert "optimizer = wagma.DistributedOptimizer(" in printed


def test_the_lines_after_ddp_are_those_of_the_script() -> None:
    """They need DDP's script around them, which tests/tools/documents/test_migrating.py runs."""
    added = re.findall(r"^\+(.*)$", block("diff", "DistributedOptimizer"), re.MULTILINE)
    removed = re.findall(r"^-(.*)$", block("diff", "DistributedOptimizer"), re.MULTILINE)
    assert len(added) + len(removed) == 6
    algorithm = SimpleNamespace(rank=0, size=1)
    wagma = SimpleNamespace(
        WAGMA=lambda: algorithm, DistributedOptimizer=lambda *arguments, model: (*arguments, model)
    )
    names = {"wagma": wagma, "optimizer": "inner", "model": "model"}
    exec("\n".join(added), names)
    assert names["optimizer"] == ("inner", algorithm, "model")


def test_the_collective_prints_what_is_said(clone: Path) -> None:
    (clone / "collective.py").write_text(block("python", "GroupAllreduce"))
    printed = paste(clone, "mpiexec -n 4 python collective.py")
    assert sorted(printed.splitlines()) == ["all 1.5"] * 4 + ["group 0.5"] * 2 + ["group 2.5"] * 2
    assert "`group 0.5` and `group 2.5` twice each, and `all 1.5` four times" in README


@pytest.mark.long
def test_c_programs_are_built_and_run(clone: Path) -> None:
    (programs,) = (text for text in blocks("building.md", "sh") if "pkg-config" in text)
    printed = paste(clone, programs)
    models = re.findall(r"^rank \d .* model (\S+)$", printed, re.MULTILINE)
    assert len(models) == 8  # of four forked ranks, and of four over MPI
    assert len(set(models[:4])) == len(set(models[4:])) == 1


def test_quoted_results_are_those_of_the_page() -> None:
    page = (ROOT / "docs/results.md").read_text().splitlines()
    quoted = [line for line in README.splitlines() if re.match(r"\| .*\d [num]s \[", line)]
    assert 5 <= len(quoted) <= 8
    assert set(quoted) <= set(page)
