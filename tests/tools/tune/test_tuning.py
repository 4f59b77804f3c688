"""Measured schedules: what is chosen from times, and the file in which handles find it."""

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from wagma.cli import Ended, main
from wagma.collectives import tuning
from wagma.collectives._engine import check_options
from wagma.collectives.tuning import Schedule
from wagma.tune.command import Settings, _check, _check_first, _size
from wagma.tune.search import (
    CHUNKS,
    best_chunk,
    best_direct,
    best_switch,
    memory,
    points,
    powers,
    search,
)

MEASURED = Schedule(
    schedule_switch=1 << 15, schedule_chunk=1 << 17, schedule_part=1 << 12, schedule_direct=7
)


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
    assert best_chunk(times, default=256) == 128


def test_of_chunks_that_are_equally_fast_it_is_the_one_nearest_to_the_default() -> None:
    alike = {1: 1.0, 9: 9.0}
    times = {64: {1: 1.1, 9: 9.0}, 128: alike, 256: alike, 512: alike}
    assert [best_chunk(times, default) for default in (32, 256, 1 << 20)] == [128, 256, 512]
    assert best_chunk({64: {}, 128: {}}, default=256) == 256


def test_direct_is_used_for_groups_as_large_as_it_is_fast_for() -> None:
    fast, slow = {1: 1.0, 9: 9.0}, {1: 2.0, 9: 9.1}
    assert best_direct(8, fast, slow, default=(100, 16)) == (1, 16)
    assert best_direct(32, fast, slow, default=(100, 16)) == (1, 32)
    assert best_direct(8, slow, fast, default=(2, 16)) == (2, 7)
    assert best_direct(32, slow, fast, default=(1, 16)) == (1, 16)
    assert best_direct(8, slow, fast, default=(3, 16)) == (3, 16)  # such parts were not tried
    assert best_direct(32, slow, fast, default=(3, 16)) == (3, 16)


def test_direct_is_used_from_parts_on_for_which_it_is_fast() -> None:
    direct = {16: 3.0, 64: 4.0, 256: 8.0, 1024: 16.0}
    halving = {16: 2.0, 64: 3.0, 256: 9.0, 1024: 20.0}
    part, members = best_direct(8, direct, halving, default=(100, 16))
    assert (part, members) == (256 // 8, 16)


def test_points_are_counted() -> None:
    assert points(3, 1 << 10) == 6 + 2
    assert points(4, 1 << 20) == 2 * 4 + 6 * 2 + 2 * 11


# ---- what is compared ----------------------------------------------------------------------------
class Machine:
    """Ranks whose times follow from the schedule: `measure` is what `search` is given.

    Few messages are faster up to `switch` bytes, chunks of `chunk` bytes are the best for parts,
    and the direct algorithm takes `direct` times as long as halving, where a member's part has
    `part` bytes. Nothing else differs.
    """

    def __init__(
        self, ranks: int, *, switch: int, chunk: int = 256 << 10, direct: float = 0.5, part: int = 1
    ) -> None:
        self.ranks, self.switch, self.chunk, self.part = ranks, switch, chunk, part
        self.direct = 1.0 if ranks in (2, 3) else direct  # of a prime number both are the same
        self.asked: list[tuple[int, Schedule]] = []

    def measure(self, size: int, schedules: Sequence[Schedule]) -> list[float]:
        self.asked += [(size, schedule) for schedule in schedules]
        assert len(set(schedules)) == len(schedules)
        return [self._seconds(size, schedule) for schedule in schedules]

    def _seconds(self, size: int, schedule: Schedule) -> float:
        assert min(schedule.options().values()) > 0  # no default of the engine's is measured
        if size <= schedule.schedule_switch:
            return float(size)
        # As long as few messages take between `switch` and its double.
        parts = 1.5 * self.switch
        cut = abs(math.log2(self._cut(size, schedule) / self._cut(size, self.best(schedule))))
        direct = self.direct if self._at_once(size, schedule) else 1.0
        if direct < 1 and size // self.ranks < self.part:
            direct = 1 / direct
        return parts * (1 + 0.1 * cut) * direct / min(self.direct, 1.0)

    def _at_once(self, size: int, schedule: Schedule) -> bool:
        return (
            self.ranks <= schedule.schedule_direct
            and -(-size // self.ranks) >= schedule.schedule_part
        )

    def _cut(self, size: int, schedule: Schedule) -> int:
        """Bytes of a message: a chunk, or a whole part."""
        largest_prime = {2: 2, 3: 3, 4: 2, 6: 3, 12: 3}[self.ranks]
        parts = self.ranks if self._at_once(size, schedule) else largest_prime
        return min(schedule.schedule_chunk, -(-size // parts))

    def best(self, schedule: Schedule) -> Schedule:
        return replace(schedule, schedule_chunk=self.chunk)

    def found(self, largest: int, default: Schedule) -> Schedule:
        advanced: list[None] = []
        found = search(
            self.ranks, largest, default, self.measure, lambda: advanced.append(None)
        ).schedule
        assert len(advanced) == points(self.ranks, largest)
        return found


DEFAULT = Schedule(
    schedule_switch=8 << 10, schedule_chunk=256 << 10, schedule_part=32 << 10, schedule_direct=16
)


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 12])
@pytest.mark.parametrize("switch", [1 << 12, 1 << 17, 1 << 20])
@pytest.mark.parametrize("chunk", [64 << 10, 128 << 10, 512 << 10])
@pytest.mark.parametrize("direct", [0.5, 2.0])
def test_the_search_finds_what_is_fastest(
    ranks: int, switch: int, chunk: int, direct: float
) -> None:
    machine = Machine(ranks, switch=switch, chunk=chunk, direct=direct)
    found = machine.found(8 << 20, DEFAULT)
    assert found.schedule_switch == switch
    assert found.schedule_chunk == chunk
    assert found.schedule_direct == (16 if machine.direct <= 1 else ranks - 1)
    assert found.schedule_part == (1 if machine.direct < 1 else 32 << 10)


@pytest.mark.parametrize("ranks", [4, 6, 12])
@pytest.mark.parametrize("part", [8 << 10, 100_000])
def test_the_search_finds_from_which_part_on_direct_is_faster(ranks: int, part: int) -> None:
    found = Machine(ranks, switch=1 << 12, part=part).found(8 << 20, DEFAULT)
    assert found.schedule_direct == 16
    assert part <= found.schedule_part < 4 * part  # sizes that are tried are 4 times as large


def test_few_messages_may_always_be_faster_or_never() -> None:
    assert Machine(2, switch=1 << 30).found(1 << 20, DEFAULT).schedule_switch == 1 << 20
    assert Machine(2, switch=1 << 8).found(1 << 20, DEFAULT).schedule_switch == 1


@pytest.mark.parametrize("chunk", [64 << 10, 256 << 10, 1 << 20])
def test_chunks_that_cut_nothing_are_not_compared(chunk: int) -> None:
    """Parts of 64 KiB are sent whole with chunks of any size: the default stays."""
    default = replace(DEFAULT, schedule_chunk=chunk)
    machine = Machine(2, switch=1 << 12, chunk=64 << 10)
    assert machine.found(128 << 10, default).schedule_chunk == chunk
    assert {schedule.schedule_chunk for _, schedule in machine.asked} == {chunk}


def test_one_chunk_stands_for_all_that_cut_nothing() -> None:
    """Parts are of 128 KiB, so that 64 KiB are compared with larger ones, of whatever size."""
    machine = Machine(2, switch=1 << 12, chunk=256 << 10)
    assert machine.found(256 << 10, DEFAULT).schedule_chunk == 256 << 10
    compared = {schedule.schedule_chunk for size, schedule in machine.asked if size == 256 << 10}
    assert compared == {64 << 10, 128 << 10, 256 << 10}  # the last one: with the switch
    machine = Machine(2, switch=1 << 12, chunk=64 << 10)
    assert machine.found(256 << 10, DEFAULT).schedule_chunk == 64 << 10


def test_memory_is_that_of_an_array_and_of_chunks() -> None:
    assert memory(2, 64 << 10) == 7 * (64 << 10)  # six handles, no more than an array each
    assert memory(2, 1 << 30) == (1 << 30) + 4 * 2 * sum(CHUNKS)


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
        '{"schedule_switch": 1, "schedule_chunk": 255, "schedule_part": 1, "schedule_direct": 1}}}',
        '{"wagma": 1, "machines": {"KEY": '
        '{"schedule_switch": -1, "schedule_chunk": 256, "schedule_part": 1, '
        '"schedule_direct": 1}}}',
        '{"wagma": 1, "machines": {"KEY": '
        '{"schedule_switch": 1, "schedule_chunk": 256, "schedule_part": 1, '
        '"schedule_direct": 1.5}}}',
        '{"wagma": 1, "machines": {"KEY": '
        '{"schedule_switch": 1, "schedule_chunk": 256, "schedule_part": 1}}}',
    ],
)
def test_a_broken_file_is_ignored_with_a_warning_and_can_be_replaced(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file, key = tuning.cache_file(), tuning.key(2, 2)
    file.parent.mkdir()
    file.write_text(text.replace("KEY", json.dumps(key)[1:-1]))
    with caplog.at_level(logging.WARNING, "wagma"):
        assert tuning.find(2, 2) == tuning.default(2, 2)
    (record,) = caplog.records
    assert str(file) in record.getMessage()
    assert "mpiexec -n 2 python -m wagma tune" in record.getMessage()
    tuning.write(file, key, MEASURED)
    assert tuning.find(2, 2) == MEASURED


def test_a_file_of_before_schedule_part_is_read(tmp_path: Path) -> None:
    file = tmp_path / "tune.json"
    old = {"schedule_switch": 1, "schedule_chunk": 256, "schedule_direct": 3}
    file.write_text(json.dumps({"wagma": 1, "machines": {"a": old}}))
    assert tuning.read(file, "a") == Schedule(**old)
    tuning.write(file, "b", MEASURED)
    assert tuning.read(file, "a") == Schedule(**old)


def test_the_default_follows_the_placement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Larger messages where ranks span nodes, unless a file says otherwise."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    spans = Schedule(schedule_chunk=1 << 20, schedule_part=1)
    for here, expected in ((4, Schedule()), (2, spans), (1, spans)):
        assert tuning.find(4, here) == expected
    tuning.write(tuning.cache_file(), tuning.key(4, 2), MEASURED)
    assert tuning.find(4, 2) == MEASURED
    tuning.cache_file().write_text("no JSON")
    with caplog.at_level(logging.WARNING, "wagma"):
        assert tuning.find(4, 2) == spans
        assert tuning.find(2, 2) == Schedule(schedule_switch=16 << 10, schedule_chunk=512 << 10)
        assert tuning.find(2, 1) == replace(spans, schedule_switch=32 << 10)


def test_no_file_is_nothing_to_warn_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tuning.find(2, 2) == tuning.default(2, 2)
    assert not caplog.records


def test_the_engine_takes_what_the_file_may_hold() -> None:
    for schedule in (MEASURED, Schedule(1, 256, 1, 1), Schedule(2**62, 2**30, 2**62, 2**31 - 1)):
        options = check_options({"size": 2, "count": 1} | schedule.options())
        assert {name: options[name] for name in schedule.options()} == schedule.options()
    defaults = check_options({"size": 2, "count": 1} | Schedule().options())
    assert all(defaults[name] > 0 for name in MEASURED.options())


# ---- the command ---------------------------------------------------------------------------------
def test_sizes_are_checked() -> None:
    assert _size("64MiB") == 64 << 20
    for text in ("63KiB", "2GiB", "many"):
        with pytest.raises(ValueError, match=text):
            _size(text)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "one rank exchanges nothing"),
        (["--largest", "1"], "64 KiB"),
        (["--time", "0"], "more than 0"),
        (["--time", "1"], "has no unit"),
    ],
)
def test_what_is_wrong_with_the_command_line_is_said(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Ended) as end:
        main(["tune", *words])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_a_bar_that_cannot_be_shown_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = Settings(64 << 10, 0.1, tmp_path / "tune.json", dry_run=False)
    assert _check_first(settings, "always") == settings.file
    monkeypatch.setattr("wagma.launch.packages.find_spec", lambda _: None)
    assert _check_first(settings, "auto") == settings.file
    with pytest.raises(ValueError, match="--progress always: rich is not installed"):
        _check_first(settings, "always")


def test_arrays_that_do_not_fit_into_memory_are_refused() -> None:
    _check(Settings(64 << 10, 0.1, None, dry_run=True), 2, 2)
    with pytest.raises(ValueError, match="--largest 1024 TiB: 2 ranks need 2048 TiB of memory"):
        _check(Settings(1 << 50, 0.1, None, dry_run=True), 2, 2)


def test_wrong_variables_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAGMA_PROGRESS", "hard")
    with pytest.raises(ValueError, match="WAGMA_PROGRESS='hard' in the environment"):
        _check(Settings(64 << 10, 0.1, None, dry_run=True), 2, 2)


def test_help_says_how_to_start_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Ended) as end:
        main(["tune", "--help"])
    assert end.value.code == 0
    assert "mpiexec -n 4 python -m wagma tune" in capsys.readouterr().out


def test_logarithms_of_times_are_compared() -> None:
    # A size that takes a thousand times longer counts no more than the others.
    times = {64: {1: 1.0, 9: 1000.0}, 128: {1: 1.2, 9: 990.0}}
    assert best_chunk(times, default=128) == 64
    assert math.isclose(sum(times[64].values()), 1001.0)
