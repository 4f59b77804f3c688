"""Benchmarks of arrays on GPUs, which are simulated: what is measured is right, and named."""

import csv
import json
import re
import subprocess
import sys
from contextlib import nullcontext
from importlib import resources
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import jsonschema
import pytest
from simulated import ENVIRONMENT
from under_mpiexec import complete, in_turn

from wagma.benchmarks import gpu_table
from wagma.benchmarks.gpu import Rank, ResultError
from wagma.benchmarks.gpu_table import Asked, Row, collectives, table

pytestmark = pytest.mark.launch

PAGE = Path(__file__).resolve().parents[3] / "docs/gpu.md"
FEW = ("-i", "4", "-x", "1", "-m", "1024:1024", "--buffer", "cupy")
FINISH_S = 0.02
LINES = {
    "table": ("allreduce", "-c", "--baseline", "mpi,copy", "--format", "csv"),
    "document": ("group-allreduce", "-c", "--form", "out-of-place", "--format", "json"),
    "delivered": ("allreduce", "-c", "--quorum", "1", "--late", "carry", "--form", "out-of-place"),
    "posted": ("iallreduce", "-c", "-t", "1"),
    "wrong": ("allreduce", "-c", "--corrupt"),
    "slow": ("allreduce", "--baseline", "copy", "--format", "csv"),
    "no library": ("allreduce",),
    "no GPU": ("allreduce",),
    "messages": ("allreduce", "-c", "--transport", "mpi"),
}
VARIABLES = {
    "slow": {"SIMULATED_FINISH": str(FINISH_S)},
    "no library": {"WAGMA_DEVICE_LIBRARY": "/nowhere/libnone.so"},
    "no GPU": {"SIMULATED_GPUS": "0"},
}
REFUSED = {
    "no library": "/nowhere/libnone.so: cannot open shared object file",
    "no GPU": "cupy finds no GPU (none is visible): python -m wagma doctor",
}

Ended = dict[str, subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Each of LINES on two ranks."""
    lines = [[["bench", *words, *FEW]] * 2 for words in LINES.values()]
    variables = [{**ENVIRONMENT, **VARIABLES.get(name, {})} for name in LINES]
    folder = tmp_path_factory.mktemp("gpu")
    return dict(zip(LINES, in_turn(folder, lines, variables, **ENVIRONMENT), strict=True))


def series(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, str]]:
    """The lines of a CSV by series."""
    text = done.stdout[done.stdout.index("\nkind,") + 1 :].splitlines()
    return {line["series"]: line for line in csv.DictReader(text)}


def test_wagma_is_compared_with_mpi_and_a_copy(ended: Ended) -> None:
    done = ended["table"]
    assert done.returncode == 0, done.stderr
    found = series(done)
    assert list(found) == ["wagma in-place", "MPI_Allreduce host-copies", "copy on the GPU"]
    for line in found.values():
        assert (line["buffer"], line["gpu"], line["driver"]) == ("cupy", "simulation", "none")
        assert (int(line["wrong"]), int(line["checked"])) == (0, 2 * 5)
        assert float(line["ratio"]) > 0
    assert "# gpus: host " in done.stdout
    assert "; ranks 0-1; gpu simulation; driver none; cuda 13.0; arrays cupy" in done.stdout
    assert "# warnings: GPUs are simulated" in done.stdout


def test_the_document_names_the_gpu(ended: Ended) -> None:
    done = ended["document"]
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    schema = json.loads((resources.files("wagma.report") / "benchmark.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(document)
    assert document["settings"]["buffer"] == "cupy"
    (gpu,) = document["environment"]["gpus"]
    assert (gpu["ranks"], gpu["gpu"], gpu["cuda"]) == ("0-1", "simulation", "13.0")
    assert all(one["wrong"] == 0 for one in document["points"][0]["series"])


@pytest.mark.parametrize("case", ["delivered", "posted", "messages"])
def test_results_are_right(case: str, ended: Ended) -> None:
    done = ended[case]
    assert done.returncode == 0, done.stderr
    assert re.search(r"^1024 .* Pass\b", done.stdout, re.MULTILINE)
    assert "# wagma-CUDA " in done.stdout
    assert "# Ranks 0-1: simulation, driver none." in done.stdout


def test_a_falsified_result_is_noticed(ended: Ended) -> None:
    done = ended["wrong"]
    assert done.returncode == 1, done.stderr
    assert "1 of 10 results are wrong: wagma in-place, rank 1, result 1" in done.stderr


def test_times_include_the_completion_on_the_gpu(ended: Ended) -> None:
    done = ended["slow"]
    assert done.returncode == 0, done.stderr
    found = series(done)
    assert len(found) == 2
    for line in found.values():
        assert float(line["min_us"]) >= 1e6 * FINISH_S


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_missing_is_said_once(case: str, ended: Ended) -> None:
    done = ended[case]
    assert done.returncode == 2, done.stderr
    said = done.stdout + done.stderr
    assert said.count("python -m wagma bench allreduce: --buffer cupy: ") == 1
    assert REFUSED[case] in said


# ---- one GPU -------------------------------------------------------------------------------------

GPU = [sys.executable, "-m", "wagma.benchmarks.gpu"]
TINY = (
    *("--ranks", "2", "--sums", "4KiB", "--size", "64KiB", "--sizes", "1KiB", "--late", "20ms"),
    *("--rounds", "2", "--calls", "3", "--idle", "10ms"),
)


def test_the_benchmark_of_one_gpu(tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    done = complete([*GPU, *TINY, "--json", str(file)], **ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert "SIMULATED: these figures say nothing of a GPU" in done.stdout
    document = json.loads(file.read_text())
    assert (document["gpu"], document["simulated"], document["ranks"]) == ("simulation", True, 2)
    rows = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines()]
    assert [row["what"] for row in document["rows"]] == [
        row[1] for row in rows if len(row) > 1 and row[1] != "what" and row[1][0] != "-"
    ]
    for row in document["rows"]:
        assert min(row["values"]) > 0 or row["what"] == "CPU between calls", row


@pytest.mark.long
def test_the_benchmark_of_one_gpu_says_what_is_missing() -> None:
    done = complete([*GPU, *TINY], **ENVIRONMENT, SIMULATED_GPUS="0")
    assert done.returncode == 2
    assert "--buffer torch-cuda: torch finds no GPU (none is visible)" in done.stderr
    assert "--buffer cupy: cupy finds no GPU" in done.stderr
    done = complete([*GPU, *TINY], **ENVIRONMENT, PMI_RANK="0")
    assert done.returncode == 2
    assert "MPICH's mpiexec started it: start it alone" in done.stderr


@pytest.mark.parametrize(
    ("late", "says"),
    [
        (True, "rank 1 came 120 s late to call 3 of large arrays: leave the machine"),
        (False, "rank 1, 4 calls of large arrays: 2 of 2 elements are not 0.5"),
    ],
)
def test_a_wrong_result_names_the_rank_and_the_call(late: bool, says: str) -> None:
    rank = Rank.__new__(Rank)
    rank.rank, rank.asked = 1, Asked("cupy", 2, 1, 8, (), 0.3, 1e-3, 1, 1, 1.0)
    rank.gpu = Mock(array=lambda x: x, pinned=lambda x: x)
    rank._meeting = Mock(now=lambda: 0)
    coll = Mock(allreduce=lambda _: Mock(late=late, version=3))
    with (
        patch.object(Rank, "group", return_value=nullcontext(coll)),
        pytest.raises(ResultError, match=re.escape(says)),
    ):
        rank.large()


def test_sums_are_compared_with_a_copy() -> None:
    """Sums of 2 arrays at 95 and of 4 at 80 % of the copy's bandwidth: the slowest type decides."""
    share = {0: 1.0, 2: 0.95, 4: 0.95, 8: 0.95}

    def time_sums(dtype: str, _count: int, arrays: int, _queued: int) -> float:
        slow = 0.8 if (dtype, arrays) == ("int64", 4) else share[arrays]
        return (arrays + 1 if arrays else 2) / slow

    asked = Asked("cupy", 4, 64, 8, (), 0.3, 1e-3, 3, 2, 1.0)
    _, (_, two, four, _) = gpu_table.sums(asked, Mock(time_sums=time_sums))
    assert (two.goal, two.met, four.goal, four.met) == ("90%", True, "90%", False)


MS = 1_000_000


def figures(before: int = 0) -> list[Row]:
    """Rows of four ranks, whose first one calls first, and whose last one ends last."""
    large = [[(rank * MS, (8 + rank) * MS)] * 3 for rank in range(4)]  # 11 ms
    small = [[(0, MS), (0, 2 * MS), (0, 9 * MS)]] * 3 + [[(0, 400 * MS)] * 3]  # 2 ms
    one = {"large": {"out of place": large, "in place": large}, "posting": [20_000, 21_000, 1]}
    found = [
        {
            "large": {name: one["large"][name][rank] for name in ("out of place", "in place")},
            "small": {1024: small[rank]},
            "host": {"posting": one["posting"], "calling": 60_000, "idle": rank * MS},
            "idle before": rank * before,
        }
        for rank in range(4)
    ]
    asked = Asked("cupy", 4, 1, 100_000_000, (1024,), 0.3, 1e-3, 3, 2, 1.0)
    return collectives(asked, 100e9, found)


def test_figures_and_goals() -> None:
    """5 arrays of 100 MB at 100 GB/s take 5 ms, and 21 of them 21 ms."""
    rows = {row.what: row for row in figures()}
    out, in_ = (rows[f"allreduce of 4 ranks, 100 MB, {n}"] for n in ("out of place", "in place"))
    assert (out.measured, out.bound, out.met) == ("11.0 ms", "5.00 ms (5 arrays); 2.20x", False)
    assert (in_.bound, in_.goal, in_.met) == ("21.0 ms (21 arrays); 0.52x", "1.3x", True)
    late = rows["allreduce of 1 KiB, one rank 300 ms late"]
    assert (late.measured, late.goal, late.met) == ("2.00 ms", "2 ms", True)
    post = rows["host, to post a call"]
    assert (post.values, post.met) == ((2e-5,), True)
    assert rows["CPU time of a call"].values == (3e-5,)
    idle, little = rows["CPU between calls, of a core"], figures(before=MS)[-1]
    assert (idle.measured, idle.bound, idle.met) == ("0.30%", "0.00% before the first call", False)
    assert (little.bound, little.met) == ("0.30% before the first call", True)
    assert "| NO  |" in table(list(rows.values()))


def test_the_page_has_the_rows() -> None:
    text = PAGE.read_text()
    names = [f"allreduce of 4 ranks, 100 MB, {name}" for name in ("out of place", "in place")]
    names += [row.what for row in figures()[3:]]
    names += [f"sum of {n} arrays of {' / '.join(gpu_table.DTYPES)}" for n in gpu_table.SUMS]
    names += ["copy of 64 MiB", "allreduce of 1 KiB / 32 KiB / 1 MiB, one rank 300 ms late"]
    assert [name for name in names if f"\n| {name} |" not in text] == []
