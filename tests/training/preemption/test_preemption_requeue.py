"""Which job is started again, by Slurm or by its batch script."""

import logging
from pathlib import Path

import pytest

from wagma.launch.environment import job_number, restart_count
from wagma.launch.logs import RankLogger
from wagma.preemption.requeue import requeue

LOG = RankLogger("wagma.preemption", 0, 1)


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "12"}, "12"),
        ({"SLURM_JOB_ID": "14", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "2"}, "12_2"),
        ({"SLURM_JOB_ID": "12", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "0"}, "12_0"),
        ({"SLURM_JOB_ID": "13", "SLURM_HET_JOB_ID": "12"}, "12"),
    ],
)
def test_job(environ: dict[str, str], job: str | None) -> None:
    assert job_number(environ) == job


@pytest.mark.parametrize(("text", "count"), [(None, 0), ("", 0), ("3", 3), ("what", 0)])
def test_restarts(text: str | None, count: int) -> None:
    assert restart_count({} if text is None else {"SLURM_RESTART_COUNT": text}) == count


def fake(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a scontrol alone on PATH; return where it notes its arguments."""
    program, noted = folder / "scontrol", folder / "noted"
    program.write_text(f'#!/bin/sh\necho "$@" >> {noted}\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return noted


def test_this_job_alone_is_requeued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = fake(tmp_path, "exit 0", monkeypatch)
    assert requeue("12_2", LOG)
    assert noted.read_text() == "requeue 12_2\n"


def test_a_refusal_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake(tmp_path, "echo 'Requested operation is presently disabled' >&2; exit 1", monkeypatch)
    with caplog.at_level(logging.WARNING):
        assert not requeue("12", LOG)
    assert "Requested operation is presently disabled; exit code 85" in caplog.text
    assert "--requeue" in caplog.text


def test_a_program_that_cannot_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "scontrol").write_bytes(b"\x7fELF nothing")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert not requeue("12", LOG)
    assert "exit code 85" in caplog.text


def test_no_scontrol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert not requeue("12", LOG)
    assert "scontrol is not found, and job 12 is not requeued: exit code 85" in caplog.text


@pytest.mark.parametrize(
    ("squeue", "requeued"),
    [
        ("echo COMPLETING", False),
        ("printf 'COMPLETING\\nCOMPLETING\\n'", False),  # a heterogeneous job
        ("echo RUNNING", True),
        ("exit 1", True),
    ],
)
def test_what_scancel_ends_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, squeue: str, requeued: bool
) -> None:
    noted = fake(tmp_path, "exit 0", monkeypatch)
    (tmp_path / "squeue").write_text(f"#!/bin/sh\n[ \"$*\" = '-h -j 12_2 -o %T' ] && {squeue}\n")
    (tmp_path / "squeue").chmod(0o755)
    assert requeue("12_2", LOG) == requeued
    assert noted.exists() == requeued


def test_a_scontrol_that_ends_with_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, "kill -TERM $$", monkeypatch)
    assert requeue("12", LOG)
