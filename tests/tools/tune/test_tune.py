"""Schedules are measured by all ranks together, and handles use what rank 0 finds."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from wagma.cli import Ended, main
from wagma.collectives import PartialAllreduce, tuning
from wagma.collectives.rendezvous import meeting
from wagma.collectives.tuning import Schedule
from wagma.simulate import Network
from wagma.simulate.tuned import network

pytestmark = pytest.mark.mpi(min_size=2)

MEASURED = Schedule(
    schedule_switch=12345, schedule_chunk=4096, schedule_part=1000, schedule_direct=3
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a folder for this rank."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_handles_use_what_rank_0_finds(
    comm: MPI.Intracomm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))  # of this rank
    if comm.rank == 0:
        tuning.write(tuning.cache_file(), tuning.key(comm.size, comm.size), MEASURED)
    else:
        tuning.write(tuning.cache_file(), tuning.key(comm.size, comm.size), Schedule(1, 256, 1, 1))
    seen: list[dict[str, Any]] = []
    real = meeting.Channel

    def channel(options: dict[str, Any], capsule: object) -> object:
        seen.append(options)
        return real(options, capsule)

    monkeypatch.setattr(meeting, "Channel", channel)
    x = np.full(100_000, comm.rank + 1.0)
    with PartialAllreduce(comm, x, transport="mpi") as coll:
        coll.allreduce(x)
    assert np.all(x == (comm.size + 1) / 2)
    (options,) = seen
    assert {name: options[name] for name in MEASURED.options()} == MEASURED.options()


@pytest.mark.parametrize("dry", [False, True])
def test_tune_writes_what_handles_find(
    comm: MPI.Intracomm,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    dry: bool,
) -> None:
    if comm.size > 4:
        pytest.skip("fewer ranks show it, in less time")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    words = ["tune", "--time", "1ms", "--largest", "64KiB", "--progress", "always"]
    assert main([*words, "--dry-run"] if dry else words) == 0
    said = capsys.readouterr()
    if comm.rank != 0:
        assert said.out == ""
    else:
        assert "64 KiB" in said.out and tuning.key(comm.size, comm.size) in said.out
        file = tuning.cache_file()
        assert file.exists() == (not dry)
        if not dry:
            assert str(file) in said.out
            (machine,) = json.loads(file.read_text())["machines"].values()
            messages = machine.pop("messages")["node"]
            assert all(0 <= number < 1 for number in messages.values())
            assert messages["reduce_per_byte"] > 0
            assert set(machine) == set(MEASURED.options())
            assert min(machine.values()) > 0
            assert tuning.find(comm.size, comm.size).options() == machine
            assert network(str(file)) == Network(**messages)
            assert "a message on a node: " in said.out


def test_a_file_that_cannot_be_written_is_refused_on_all_ranks(
    comm: MPI.Intracomm, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = comm.bcast(folder)
    other = folder / "notes.txt"
    if comm.rank == 0:
        other.write_text("mine")
    for file, said in (
        (folder, f"cannot write {folder}"),
        (other, f"--file {other} is not of wagma tune: Exp"),
    ):
        with pytest.raises(Ended) as end:
            main(["tune", "--time", "1ms", "--largest", "64KiB", "--file", str(file)])
        assert end.value.code == 2
        if comm.rank == 0:
            assert said in capsys.readouterr().err
            assert other.read_text() == "mine"
