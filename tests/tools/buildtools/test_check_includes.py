"""The lint check of includes: what it finds in files of csrc/, and what it lets pass."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "buildtools"))
import check_includes


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("base/pages.c", "kernels/reduce.h"),
        ("kernels/reduce.c", "protocol/round.h"),
        ("protocol/round.c", "engine/handle.h"),
        ("protocol/round.c", "trace/events.h"),
        ("trace/text.c", "protocol/round.h"),
        ("engine/stall.c", "shm/wait.h"),
        ("shm/avoiding/data.c", "messages/progress.h"),
        ("messages/groups/outcome.c", "shm/wait.h"),
        ("messages/drive.c", "mpi/transport.h"),
        ("mpi/control.c", "messages/progress.h"),
        ("mpi/control.c", "engine/handle.h"),
        ("api/calls.c", "mpi/transport.h"),
        ("shm/segment.c", "api/calls.h"),
        ("shm/segment.c", "segment.h"),  # not written from csrc/
    ],
)
def test_an_include_against_the_arrows_is_found(path: str, name: str) -> None:
    source = f'/* Text. */\n#include <stdio.h>\n# include "{name}"\n'
    assert list(check_includes.violations(path, source)) == [(3, name)]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("base/arena.c", "base/pages.h"),
        ("protocol/round.c", "base/mix.h"),
        ("engine/stall.c", "trace/events.h"),
        ("shm/graph/executor.c", "shm/wait.h"),
        ("messages/drive.c", "protocol/activation.h"),
        ("mpi/control.c", "messages/transport.h"),
        ("api/create.c", "shm/segment.h"),
        ("mpi/control.c", "include/wagma_mpi.h"),
    ],
)
def test_includes_with_the_arrows_pass(path: str, name: str) -> None:
    assert list(check_includes.violations(path, f'#include "{name}"\n')) == []


def test_an_exception_that_is_not_needed_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_includes.main() == 0
    gone = ("base/mix.h", "shm/segment.h")
    monkeypatch.setattr(check_includes, "EXCEPTIONS", {**check_includes.EXCEPTIONS, gone: ""})
    assert check_includes.main() == 1
    assert "csrc/base/mix.h includes shm/segment.h no more" in capsys.readouterr().out
