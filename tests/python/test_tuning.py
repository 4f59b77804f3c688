"""Measured schedules: what is chosen from times, and the file in which handles find it."""

import argparse
import json
import logging
import math
from pathlib import Path

import pytest

from wagma.cli import Ended, main
from wagma.collectives import tuning
from wagma.collectives._engine import check_options
from wagma.collectives.tuning import Schedule
from wagma.tune.choosing import best_chunk, best_switch, direct_members, powers
from wagma.tune.command import _size
from wagma.tune.search import points

MEASURED = Schedule(schedule_switch=1 << 15, schedule_chunk=1 << 17, schedule_direct=7)


# ---- choosing ------------------------------------------------------------------------------------
def test_few_messages_are_used_as_long_as_they_are_faster() -> None:
    few = {1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0}
    parts = {1: 3.0, 2: 3.0, 4: 3.0, 8: 3.0}
    assert best_switch(few, parts) == 2
    assert best_switch(few, dict.fromkeys(few, 0.5)) == 1
    assert best_switch(few, dict.fromkeys(few, 9.0)) == 8


def test_one_wrong_measurement_does_not_move_the_switch_far() -> None:
    sizes = powers(1, 1 << 10)
    few = {size: 1.0 + size for size in sizes}
    parts = dict.fromkeys(sizes, 33.5)
    assert best_switch(few, parts) == 32
    for size in sizes:
        disturbed = few | {size: few[size] * 1.5}
        assert best_switch(disturbed, parts) in (16, 32)


def test_the_chunk_is_the_one_that_is_fastest_over_all_sizes() -> None:
    times = {64: {1: 1.0, 9: 9.0}, 128: {1: 1.1, 9: 5.0}, 256: {1: 2.0, 9: 4.9}}
    assert best_chunk(times) == 128


def test_direct_is_used_for_groups_as_large_as_it_is_fast_for() -> None:
    fast, slow = {1: 1.0, 9: 9.0}, {1: 2.0, 9: 9.0}
    assert direct_members(8, fast, slow, default=16) == 16
    assert direct_members(32, fast, slow, default=16) == 32
    assert direct_members(8, slow, fast, default=16) == 7
    assert direct_members(32, slow, fast, default=16) == 16


def test_points_are_counted() -> None:
    assert points(3, 1 << 10) == 6 + 2
    assert points(4, 1 << 20) == 2 * 2 + 6 * 2 + 2 * 11


# ---- the file ------------------------------------------------------------------------------------
def test_the_file_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    at_home = tmp_path / ".cache/wagma/tune.json"
    assert tuning.cache_file({}) == at_home
    assert tuning.cache_file({"XDG_CACHE_HOME": "relative"}) == at_home
    assert tuning.cache_file({"XDG_CACHE_HOME": "/elsewhere"}) == Path("/elsewhere/wagma/tune.json")


def test_what_is_written_is_read_under_its_key_only(tmp_path: Path) -> None:
    file = tmp_path / "new/tune.json"
    assert tuning.read(file, "a") is None
    tuning.write(file, "a", MEASURED)
    tuning.write(file, "b", Schedule())
    assert tuning.read(file, "a") == MEASURED
    assert tuning.read(file, "b") == Schedule()
    assert tuning.read(file, "c") is None
    tuning.write(file, "a", Schedule(schedule_chunk=256))
    assert tuning.read(file, "a") == Schedule(schedule_chunk=256)
    assert [entry.name for entry in file.parent.iterdir()] == ["tune.json"]


def test_the_key_names_mpi_ranks_and_processor() -> None:
    key = tuning.key(8, 4)
    assert "8 ranks, 4 on a node" in key
    assert key != tuning.key(8, 8)
    assert key.startswith(("MPICH ", "Open MPI "))
    assert len(key.split("; ")) == 3 and key.split("; ")[2]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[]",
        '{"wagma": 2, "machines": {}}',
        '{"wagma": 1}',
        '{"wagma": 1, "machines": {"KEY": 3}}',
        '{"wagma": 1, "machines": {"KEY": {}}}',
        '{"wagma": 1, "machines": {"KEY": '
        '{"schedule_switch": 1, "schedule_chunk": 255, "schedule_direct": 1}}}',
        '{"wagma": 1, "machines": {"KEY": '
        '{"schedule_switch": -1, "schedule_chunk": 256, "schedule_direct": 1}}}',
        '{"wagma": 1, "machines": {"KEY": '
        '{"schedule_switch": 1, "schedule_chunk": 256, "schedule_direct": 1.5}}}',
    ],
)
def test_a_broken_file_is_ignored_with_a_warning_and_can_be_replaced(
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file, key = tuning.cache_file(), tuning.key(2, 2)
    file.parent.mkdir()
    file.write_text(text.replace("KEY", json.dumps(key)[1:-1]))
    with caplog.at_level(logging.WARNING, "wagma"):
        assert tuning.find(2, 2) == Schedule()
    (record,) = caplog.records
    assert str(file) in record.getMessage()
    assert "mpiexec -n 2 python -m wagma tune" in record.getMessage()
    tuning.write(file, key, MEASURED)
    assert tuning.find(2, 2) == MEASURED


def test_the_default_follows_the_placement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Larger messages where ranks span nodes, unless a file says otherwise."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for here, chunk in ((4, 0), (2, 1 << 20), (1, 1 << 20)):
        assert tuning.find(4, here) == Schedule(schedule_chunk=chunk)
    tuning.write(tuning.cache_file(), tuning.key(4, 2), MEASURED)
    assert tuning.find(4, 2) == MEASURED
    tuning.cache_file().write_text("no JSON")
    with caplog.at_level(logging.WARNING, "wagma"):
        assert tuning.find(4, 2) == Schedule(schedule_chunk=1 << 20)


def test_no_file_is_nothing_to_warn_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tuning.find(2, 2) == Schedule()
    assert not caplog.records


def test_the_engine_takes_what_the_file_may_hold() -> None:
    for schedule in (MEASURED, Schedule(1, 256, 1), Schedule(2**62, 2**30, 2**31 - 1)):
        options = check_options({"size": 2, "count": 1} | schedule.options())
        assert {name: options[name] for name in schedule.options()} == schedule.options()
    defaults = check_options({"size": 2, "count": 1} | Schedule().options())
    assert all(defaults[name] > 0 for name in MEASURED.options())


# ---- the command ---------------------------------------------------------------------------------
def test_sizes_are_checked() -> None:
    assert _size("64MiB") == 64 << 20
    for text in ("63KiB", "2GiB", "many"):
        with pytest.raises(argparse.ArgumentTypeError, match=text):
            _size(text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "one rank exchanges nothing"),
        (["--largest", "1"], "64 KiB"),
        (["--seconds", "0"], "more than 0"),
        (["--seconds", "nan"], "more than 0"),
    ],
)
def test_what_is_wrong_with_the_command_line_is_said(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Ended) as end:
        main(["tune", *words])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_help_says_how_to_start_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Ended) as end:
        main(["tune", "--help"])
    assert end.value.code == 0
    assert "mpiexec -n 4 python -m wagma tune" in capsys.readouterr().out


def test_logarithms_of_times_are_compared() -> None:
    # A size that takes a thousand times longer counts no more than the others.
    times = {64: {1: 1.0, 9: 1000.0}, 128: {1: 1.2, 9: 990.0}}
    assert best_chunk(times) == 64
    assert math.isclose(sum(times[64].values()), 1001.0)
