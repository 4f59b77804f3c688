"""RankLogs: files, levels, and what the console shows of many ranks."""

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mpi4py import MPI

from wagma.launch.logs import RankLogger
from wagma.logs import RankLogs
from wagma.logs.console import ConsoleHandler, Shown

WAGMA = logging.getLogger("wagma")


@pytest.fixture(autouse=True)
def loggers_are_restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("WAGMA_LOG_LEVEL", "WAGMA_LOG_CONSOLE"):
        monkeypatch.delenv(variable, raising=False)

    def state() -> list[Any]:
        loggers = [logging.getLogger(name) for name in ("", "wagma", "train")]
        return [(one.level, list(one.handlers), one.propagate) for one in loggers]

    before = state()
    yield
    assert state() == before


def content(folder: Path) -> str:
    return (folder / "rank-00000.log").read_text()


def test_a_line_names_everything(tmp_path: Path) -> None:
    with RankLogs(tmp_path / "new/folder", MPI.COMM_SELF):
        RankLogger("wagma.training.x", 0, 1).warning("late by %d", 3)
        WAGMA.debug("unseen")
    first, second = content(tmp_path / "new/folder").splitlines()
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
    host = re.escape(os.uname().nodename)
    assert re.fullmatch(rf"{stamp} INFO \[rank 0/1\] {host} wagma: logs of 1 rank in .*", first)
    assert re.fullmatch(
        rf"{stamp} WARNING \[rank 0/1\] {host} wagma\.training\.x: late by 3", second
    )


def test_another_communicators_rank_stays_in_the_message(tmp_path: Path) -> None:
    with RankLogs(tmp_path, MPI.COMM_SELF):
        RankLogger("wagma", 2, 8).warning("late")
    assert "wagma: [rank 2/8] late" in content(tmp_path)


def test_restarts_append_and_levels_are_restored(tmp_path: Path) -> None:
    for text in ("one", "two"):
        with RankLogs(tmp_path, MPI.COMM_SELF, level="error"):
            WAGMA.error(text)
            WAGMA.warning("unseen")
        WAGMA.error("outside")
    assert [line.split()[-1] for line in content(tmp_path).splitlines()] == ["one", "two"]
    assert [path.name for path in tmp_path.iterdir()] == ["rank-00000.log"]


def test_loggers(tmp_path: Path) -> None:
    def say() -> None:
        for name in ("wagma.x", "train.y", "other"):
            logging.getLogger(name).info("of %s", name)

    for names, found in {
        ("wagma",): ["wagma.x"],
        ("wagma", "train", "train.y"): ["wagma.x", "train.y"],
        ("wagma", "", "train"): ["wagma.x", "train.y", "other"],
    }.items():
        folder = tmp_path / str(len(names)) / found[-1]
        with RankLogs(folder, MPI.COMM_SELF, loggers=names):
            say()
        assert re.findall(r"of (\S+)\n", content(folder)) == found


def test_the_console_shows_from_its_level(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RankLogs(tmp_path, MPI.COMM_SELF, level="DEBUG", console="WARNING"):
        WAGMA.info("in the file")
        WAGMA.warning("on both\nin two lines")
    shown = capsys.readouterr().err
    assert "WARNING [rank 0/1] wagma: on both\nin two lines\n" in shown
    assert "in the file" not in shown
    assert "in the file" in content(tmp_path)
    with RankLogs(tmp_path, MPI.COMM_SELF, console=None):
        WAGMA.error("nowhere")
    assert capsys.readouterr().err == ""


def test_levels_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WAGMA_LOG_LEVEL", "debug")
    monkeypatch.setenv("WAGMA_LOG_CONSOLE", "none")
    with RankLogs(tmp_path, MPI.COMM_SELF, level="ERROR", console="DEBUG"):
        WAGMA.debug("detail")
    assert "detail" in content(tmp_path)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("WAGMA_LOG_LEVEL", "loud")
    with pytest.raises(ValueError, match="WAGMA_LOG_LEVEL is 'loud': choose from CRITICAL"):
        RankLogs(tmp_path, MPI.COMM_SELF)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"level": "loud"}, ValueError, "level is 'loud'"),
        ({"level": 1.5}, ValueError, "level is 1.5"),
        ({"console": "loud"}, ValueError, "console is 'loud'"),
        ({"console_ranks": ("0",)}, TypeError, "console_ranks has '0'"),
        ({"loggers": "wagma"}, TypeError, "loggers is 'wagma'"),
    ],
)
def test_wrong_arguments(arguments: Any, error: type[Exception], said: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=said):
        RankLogs(tmp_path / "none", MPI.COMM_SELF, **arguments)
    assert not (tmp_path / "none").exists()


def test_an_exception_is_in_the_file_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ZeroDivisionError), RankLogs(tmp_path, MPI.COMM_SELF):
        _ = 1 / 0
    assert "ERROR [rank 0/1]" in content(tmp_path)
    assert "ZeroDivisionError: division by zero" in content(tmp_path)
    assert "division" not in capsys.readouterr().err  # the interpreter prints it
    with pytest.raises(SystemExit), RankLogs(tmp_path / "exit", MPI.COMM_SELF):
        raise SystemExit(85)
    assert "ERROR" not in content(tmp_path / "exit")


def test_a_forked_process_logs_into_the_same_file(tmp_path: Path) -> None:
    with RankLogs(tmp_path, MPI.COMM_SELF, console=None):
        child = os.fork()
        if child == 0:
            WAGMA.info("child")
            os._exit(0)
        os.waitpid(child, 0)
        WAGMA.info("parent")
    assert [line.split()[-1] for line in content(tmp_path).splitlines()[1:]] == ["child", "parent"]


# ---- the consoles of many ranks ------------------------------------------------------------------
class Consoles:
    """Consoles of ranks that share a folder; rank 0 is shown whole."""

    def __init__(self, folder: Path, size: int) -> None:
        self.shown = [Shown(folder / ".shown") for _ in range(size)]
        self.handlers = [
            ConsoleHandler(shown, logging.INFO, is_chosen=rank == 0)
            for rank, shown in enumerate(self.shown)
        ]

    def say(self, rank: int, level: int, text: str, *args: object) -> None:
        record = logging.LogRecord("wagma", level, __file__, 0, text, args, None)
        handler = self.handlers[rank]
        if level >= handler.level:
            handler.handle(record)


def test_64_ranks_that_say_the_same_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    consoles = Consoles(tmp_path, 64)
    for again in range(3):
        for rank in range(1, 64):
            seconds = 60.1 * (again + 1)
            consoles.say(rank, logging.WARNING, "rank %d waits %.1f s for rank 0", rank, seconds)
            consoles.say(rank, logging.INFO, "saved")
    assert capsys.readouterr().err == "rank 1 waits 60.1 s for rank 0\n"
    consoles.say(5, logging.ERROR, "rank %d waits %.1f s for rank 0", 5, 1.0)  # is worse
    consoles.say(7, logging.WARNING, "disk full\nand more")
    assert capsys.readouterr().err == "rank 5 waits 1.0 s for rank 0\ndisk full\n"


def test_rank_0_is_shown_whole_and_hides_the_same_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    consoles = Consoles(tmp_path, 2)
    for _ in range(2):
        consoles.say(0, logging.INFO, "saved")
        consoles.say(0, logging.WARNING, "slow disk")
        consoles.say(1, logging.WARNING, "slow disk")
    assert capsys.readouterr().err == "saved\nslow disk\n" * 2
    consoles.shown[0].clear()
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_everybody_is_shown_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    consoles = Consoles(tmp_path / "file", 3)
    for _ in range(2):
        for rank in (1, 2):
            consoles.say(rank, logging.WARNING, "slow disk")
    assert capsys.readouterr().err == "slow disk\n" * 2
