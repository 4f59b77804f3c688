"""`python -m wagma bench` as users start it: what it prints, its exit status, and Ctrl-C."""

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from bench_command import FEW, Ended, bench, command, one_after_the_other, rows
from under_mpiexec import CLEAN, LIVENESS_S, complete, launcher

from wagma.cli import main

pytestmark = pytest.mark.launch


@pytest.mark.long
def test_the_default_output_is_read_by_those_who_read_osu() -> None:
    done = bench(2, "allreduce", "-m", "4:16", *FEW)
    assert done.returncode == 0, done.stderr
    blank, title, datatype, header, *table = done.stdout.splitlines()
    assert blank == ""
    assert re.fullmatch(r"# wagma Allreduce Latency Test v\S+", title)
    assert datatype == "# Datatype: MPI_FLOAT."
    assert header == "# Size       Avg Latency(us)"
    assert [len(line) for line in table] == [28] * 3
    (latency,) = re.findall(r"^8\s+(\S+)", done.stdout, re.MULTILINE)
    assert float(latency) > 0
    # Where it was measured is said beside it.
    for name in ("mpi.library", "mpi.thread_level", "versions.wagma", "simd", "loop", "binding"):
        assert re.search(rf"^# {re.escape(name)}: .", done.stderr, re.MULTILINE), done.stderr


@pytest.mark.long
def test_json_is_one_document_and_samples_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "samples.npz"
    options = ("--format", "json", "-c", "--arrival", "ramp:100us", "--samples", str(file))
    done = bench(2, "group-allreduce", "-m", "4096:16384", *FEW, *options)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    schema = json.loads((resources.files("wagma.report") / "benchmark.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(document)
    words = shlex.split(document["environment"]["command"])
    assert words[1:5] == ["-m", "wagma", "bench", "group-allreduce"]
    assert words[-2:] == ["--samples", str(file)]
    assert [point["size"] for point in document["points"]] == [4096, 8192, 16384]
    loops = {series["loop"] for point in document["points"] for series in point["series"]}
    assert loops == {"c", "python"}
    for point in document["points"]:
        assert point["series"][0]["library"] == "wagma"
        assert any(series["name"] == "MPI_Allreduce in-place" for series in point["series"])
        assert all(series["wrong"] == 0 < series["checked"] for series in point["series"])
    with np.load(file) as arrays:
        assert arrays["0/0/began"].shape == (20, 2)


@pytest.mark.long
def test_skew_has_a_line_for_each_time() -> None:
    options = ("--format", "csv", "--skews", "0,20ms", "--baseline", "none")
    done = bench(2, "skew", "-m", "8:8", *FEW, *options)
    assert done.returncode == 0, done.stderr
    table = list(csv.DictReader(line for line in done.stdout.splitlines() if line[0] != "#"))
    assert [float(line["amplitude_us"]) for line in table] == [0, 20_000]
    # Half of the iterations have one of two ranks late, by far more than grace.
    assert float(table[1]["late_percent"]) > 0


# ---- wrong results -------------------------------------------------------------------------------

QUORUMS = {
    "all, in C": ("allreduce", "-m", "8:8"),
    "all, from Python": ("allreduce", "-m", "8:8", "--loop", "python"),
    "1, in C": ("group-allreduce", "-m", "8:8", "--arrival", "one-late:1ms"),
    "1, from Python": ("group-allreduce", "-m", "16384:16384", "--arrival", "one-late:1ms"),
}


@pytest.fixture(scope="module")
def falsified(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Each of QUORUMS with a result of wagma's falsified."""
    options = {case: (*words, *FEW, "-c", "--corrupt", "wagma") for case, words in QUORUMS.items()}
    return one_after_the_other(tmp_path_factory, options)


@pytest.mark.long
@pytest.mark.parametrize("case", QUORUMS)
def test_a_falsified_result_fails(case: str, falsified: Ended) -> None:
    done = falsified[case]
    assert done.returncode == 1, done.stderr
    (cells,) = rows(done.stdout).values()
    assert "Fail" in cells
    assert "DATA VALIDATION ERROR" in done.stdout
    assert re.search(r"1 of \d+ results are wrong: wagma in-place, rank 1, result 1", done.stderr)


@pytest.mark.long
def test_a_falsified_result_of_the_baseline_fails() -> None:
    done = bench(2, "allreduce", "-m", "8:8", *FEW, "-c", "--baseline", "mpi", "--corrupt", "mpi")
    assert done.returncode == 1, done.stderr
    assert "wrong: MPI_Allreduce in-place, rank 1, result 1" in done.stderr


def test_right_results_pass() -> None:
    done = bench(2, "group-allreduce", "-m", "8:16384", "-c", *FEW, "--arrival", "one-late:200us")
    assert done.returncode == 0, done.stderr
    assert all("Pass" in cells for cells in rows(done.stdout).values())
    assert len(rows(done.stdout)) == 12


def test_help_needs_no_launcher(capsys: pytest.CaptureFixture[str]) -> None:
    done = bench(0, "--help")
    assert done.returncode == 0
    for kind in ("allreduce", "group-allreduce", "iallreduce", "overlap", "skew", "bandwidth"):
        assert re.search(rf"^    {kind}\b", done.stdout, re.MULTILINE)
    with pytest.raises(SystemExit) as end:
        main(["bench", "skew", "--help"])
    assert end.value.code == 0
    assert "--skews" in capsys.readouterr().out


@pytest.mark.long
def test_one_rank_is_not_measured() -> None:
    done = bench(0, "allreduce")
    assert done.returncode == 2
    assert "mpiexec -n 2" in done.stderr


@pytest.mark.long
def test_more_ranks_than_cores_are_measured_with_a_warning() -> None:
    core = {min(os.sched_getaffinity(0))}
    done = bench(2, "allreduce", "-m", "8:8", "-i", "5", "-x", "1", "-c", cores=core)
    assert done.returncode == 0, done.stderr
    assert "2 ranks share 1 cores" in done.stderr
    assert rows(done.stdout)[8][-1] == "Pass"


def test_a_rank_that_fails_ends_all() -> None:
    done = bench(2, "allreduce", "-m", "8:8", "--timeout", "4s", "--arrival", "one-late:60s:1")
    assert done.returncode not in (0, 2, 130)
    assert re.search(r"rank 0: StallError: rank 0 .*has waited \d+\.\d s at version", done.stderr)
    assert "Traceback" not in done.stderr


# ---- Ctrl-C --------------------------------------------------------------------------------------

# A second for each size: it is interrupted long before the end.
LONG = ("allreduce", "-m", "8:1M", "-i", "1000", "-x", "0", "--arrival", "ramp:1ms")


@contextmanager
def running(*options: str) -> Iterator[subprocess.Popen[str]]:
    """Two ranks that have printed the first line of their table."""
    with subprocess.Popen(
        command(2, *options),
        env={**CLEAN, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell makes its background jobs ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def ranks_of(parent: int) -> list[int]:
    """Processes of the benchmark below `parent`, by their numbers."""
    found = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            arguments = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            is_rank = arguments[:2] == [sys.executable.encode(), b"-m"]
            found += [child] if is_rank else ranks_of(child)
    return sorted(found)


@pytest.mark.long
@pytest.mark.parametrize("rank", [0, 1])
def test_ctrl_c_of_a_rank_stops_all_and_prints_what_there_is(rank: int) -> None:
    with running(*LONG) as process:
        assert process.stdout is not None
        before = ""
        for line in iter(process.stdout.readline, ""):
            before += line
            if line.startswith("8 "):
                break
        processes = ranks_of(process.pid)
        os.kill(processes[rank], signal.SIGINT)
        after, errors = process.communicate(timeout=LIVENESS_S)
    assert process.returncode == 130, errors
    measured = rows(before + after)
    assert 1 <= len(measured) < 18
    assert "interrupted: what is above is not all" in errors
    wait_for_end(processes)


def wait_for_end(processes: list[int]) -> None:
    """Open MPI's launcher does not wait for its ranks."""
    end = time.monotonic() + LIVENESS_S
    while left := [number for number in processes if Path(f"/proc/{number}").exists()]:
        assert time.monotonic() < end, left
        time.sleep(0.01)


@pytest.mark.long
def test_ctrl_c_of_the_launcher_stops_all() -> None:
    """MPICH's passes it on; Open MPI's ends the ranks, of which nothing more is heard then."""
    with running(*LONG) as process:
        assert process.stdout is not None
        for line in iter(process.stdout.readline, ""):
            if line.startswith("8 "):
                break
        processes = ranks_of(process.pid)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LIVENESS_S)
    assert process.returncode != 0
    assert len(processes) == 2
    wait_for_end(processes)
    assert "Traceback" not in errors


@pytest.mark.long
def test_ctrl_c_leaves_a_json_document_and_samples(tmp_path: Path) -> None:
    file = tmp_path / "samples.npz"
    with running(*LONG, "--format", "json", "--samples", str(file)) as process:
        os.kill(listening(process)[1], signal.SIGINT)
        output, errors = process.communicate(timeout=LIVENESS_S)
    assert process.returncode == 130, errors
    assert json.loads(output)["interrupted"] is True
    with np.load(file) as arrays:
        assert json.loads(str(arrays["report"]))["interrupted"] is True


@pytest.mark.long
def test_ctrl_c_of_the_launcher_leaves_a_document_where_it_waits_for_the_ranks() -> None:
    with running(*LONG, "--format", "json") as process:
        processes = listening(process)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=LIVENESS_S)
    wait_for_end(processes)
    if of_open_mpi():
        assert process.returncode not in (0, 2)
    else:
        assert process.returncode == 130, errors
        own = [line for line in output.splitlines() if not line.startswith("[mpiexec@")]
        assert json.loads("\n".join(own))["interrupted"] is True


def listening(process: subprocess.Popen[str]) -> list[int]:
    """The ranks, once all would note a signal and not die of it."""
    while len(found := ranks_of(process.pid)) < 2 or not all(map(notes, found)):
        assert process.poll() is None
        time.sleep(0.01)
    return found


def notes(process: int) -> bool:
    """Whether it has a handler of SIGTERM."""
    (mask,) = re.findall(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{process}/status").read_text(), re.M)
    return bool(int(mask, 16) >> signal.SIGTERM - 1 & 1)


def of_open_mpi() -> bool:
    return "Open MPI" in complete([*launcher(), "--version"]).stdout


@pytest.mark.long
def test_a_second_ctrl_c_ends_a_rank_inside_a_call() -> None:
    """Without the patience that ranks have after the first."""
    with running("allreduce", "-m", "8:8", "--arrival", "one-late:60s:1") as process:
        assert process.stdout is not None
        for line in iter(process.stdout.readline, ""):
            if line.startswith("# Size"):
                break
        rank = listening(process)[0]
        time.sleep(3)  # until it is inside a call
        os.kill(rank, signal.SIGINT)
        time.sleep(1)  # sooner it would be the first one's echo
        assert process.poll() is None
        until = time.monotonic() + 30
        while Path(f"/proc/{rank}").exists():  # a rank that lost its core may see two as one
            assert time.monotonic() < until
            with suppress(ProcessLookupError):
                os.kill(rank, signal.SIGINT)
            time.sleep(1)
        _, errors = process.communicate(timeout=LIVENESS_S)
    assert process.returncode == 130, errors
    assert "did not end" not in errors
