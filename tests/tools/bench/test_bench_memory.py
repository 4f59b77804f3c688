"""Leave out what does not fit into memory, with a reason."""

from dataclasses import replace
from pathlib import Path

import pytest

from wagma.benchmarks.memory import arrays, shortage
from wagma.benchmarks.scenarios.alone import memory, memory_formula
from wagma.benchmarks.settings import Settings
from wagma.memory import Room, room

MIB = 1 << 20
SYNC = Settings("allreduce", (MIB,))
WAITING = replace(SYNC, quorum=1)
ENOUGH = 1 << 50


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (SYNC, (1, 2)),
        (replace(SYNC, form="private"), (1, 3)),
        (replace(SYNC, baselines=("mpi",)), (1, 5)),
        (WAITING, (6, 7)),
        (replace(WAITING, quorum=4), (1, 2)),
        (replace(WAITING, kind="group-allreduce", baselines=("mpi", "gloo")), (6, 14)),
        (replace(WAITING, late="skip"), (14, 15)),
        (replace(SYNC, kind="iallreduce"), (2, 3)),
        (replace(SYNC, kind="overlap", baselines=("mpi-nonblocking",)), (2, 6)),
        (replace(WAITING, kind="iallreduce", form="private"), (12, 15)),
        (replace(WAITING, kind="overlap"), (18, 19)),
        (replace(SYNC, loop="c"), (1, 3)),
        (replace(SYNC, buffer="cupy", baselines=("mpi", "copy"), validate=True), (0, 3)),
        (replace(SYNC, loop="c", validate=True), (1, 4)),
    ],
)
def test_arrays_of_each_rank(settings: Settings, expected: tuple[int, int]) -> None:
    assert arrays(settings, 4) == expected


def test_over_mpi_everything_is_private() -> None:
    assert arrays(SYNC, 4, "mpi") == (0, 3)
    assert arrays(replace(WAITING, kind="overlap"), 4, "mpi") == (0, 22)
    assert shortage(WAITING, 4, MIB, Room(0, ENOUGH), over="mpi") is None


def test_the_ranks_of_a_node_need_its_memory() -> None:
    """Arrays of 1 MiB take 2 MiB of a segment."""
    enough = Room(2 * 6 * 2 * MIB, ENOUGH)
    assert shortage(WAITING, 4, MIB, enough, here=2) is None
    text = shortage(WAITING, 4, MIB, enough, here=3)
    assert text is not None
    assert "3 ranks need 36 MiB of /dev/shm" in text


def test_what_fits_exactly_is_measured() -> None:
    in_segment, number = arrays(WAITING, 4)
    shared = 4 * 2 * MIB * in_segment
    total = shared + 4 * MIB * (number - in_segment)
    assert shortage(WAITING, 4, MIB, Room(shared, total)) is None
    text = shortage(WAITING, 4, MIB, Room(shared - 1, ENOUGH))
    assert text is not None
    assert "4 ranks need 48 MiB of /dev/shm, and 48 MiB are free" in text
    text = shortage(WAITING, 4, MIB, Room(ENOUGH, 3 * MIB))
    assert text is not None
    assert f"{MIB} bytes are left out: 4 ranks need 52 MiB of memory, and 3 MiB are free" in text


def test_the_limit_of_a_control_group_around_this_one_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "job/step"
    own.mkdir(parents=True)
    (tmp_path / "job/memory.max").write_text("1000\n")
    (tmp_path / "job/memory.current").write_text("400\n")
    monkeypatch.setattr("wagma.memory.CGROUPS", tmp_path)
    monkeypatch.setattr("wagma.memory.text_of", lambda _: "0::/job/step\n")
    assert room().total == 540


def test_there_is_room_for_something() -> None:
    free = room()
    assert free.shared > 0
    assert free.total > 0


@pytest.mark.parametrize("quorum_all", [True, False])
@pytest.mark.parametrize("mib", [1, 2, 3])
def test_the_formula_of_the_table_is_what_the_engine_takes(mib: int, quorum_all: bool) -> None:
    measured = memory(mib * MIB, 2, quorum_all)["by_rank"][0]["segment_bytes"]
    assert 0 <= measured - memory_formula(mib * MIB, quorum_all) <= 64 * 1024
