"""A training that is resumed from a checkpoint is, to the bit, one that was not interrupted."""

from pathlib import Path

import pytest
import torch
from saved import Training, equal, folder  # noqa: F401 (a fixture)
from tiny import COMM, RANK, SIZE

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize(
    ("inner", "asynchronous"),
    [
        ("SGD", True),
        ("Adam", False),
        pytest.param("SGD", False, marks=pytest.mark.long),
        pytest.param("Adam", True, marks=pytest.mark.long),
    ],
)
def test_resumed_to_the_bit(inner: str, asynchronous: bool, folder: Path) -> None:  # noqa: F811
    with Training(folder / "whole", inner) as whole:
        assert not whole.saver.load()
        whole.train(13)
        expected = whole.everything()
    options = {"every": 4, "asynchronous": asynchronous}
    with Training(folder / "parts", inner, **options) as first:
        assert first.saver.started_version == 0
        first.train(10, first.saver.maybe_save)  # saves at 4 and 8
        assert not equal(first.everything(), expected)
    torch.manual_seed(1234 + RANK)
    with Training(folder / "parts", inner, **options) as second:
        assert second.saver.load()
        assert second.opt.version == second.saver.started_version == 8
        second.train(13)
        assert equal(second.everything(), expected)
    COMM.Barrier()
    names = sorted(path.name for path in (folder / "parts").glob("run-*"))
    assert names == ["run-001-version-00000004", "run-001-version-00000008"]


def test_saved_by_all_at_once_and_loaded_in_the_same_process(folder: Path) -> None:  # noqa: F811
    """What comes after a load is another run, and the newest, though its version is lower."""
    with Training(folder) as training:
        saver = training.saver
        training.train(3)
        saver.save()
        at_3 = training.everything()
        training.train(5)
        saver.save()
        saver.save()  # replaces that of this version
        training.train(7)
        assert saver.load()
        assert training.opt.version == 5
        training.train(6)
        saver.save()
        assert saver.load()
        assert training.opt.version == saver.started_version == 6
        if RANK == 0:  # its last one came when not all others had written
            saver._prune()
        COMM.Barrier()
        names = sorted(path.name for path in folder.glob("run-*"))
        assert names == ["run-002-version-00000005", "run-003-version-00000006"]
        files = sorted(path.name for path in (folder / names[0]).iterdir())
        assert files == sorted(
            f"rank-{r:05d}{end}" for r in range(SIZE) for end in (".pt", ".json")
        )
        assert not equal(at_3, training.everything())


def test_whether_a_run_has_saved_since_its_start(folder: Path) -> None:  # noqa: F811
    """What an earlier run has saved beyond that does not count, as if it cannot be read."""
    with Training(folder) as training:
        training.saver.save()
        assert not training.saver.saved_since_start()  # at its start
        training.train(3)
        training.saver.save()
        assert training.saver.saved_since_start()
        assert training.saver.load()
        assert not training.saver.saved_since_start()
    COMM.Barrier()
    with Training(folder) as training:
        training.train(2)
        assert not training.saver.saved_since_start()


def test_restarts_are_counted(folder: Path) -> None:  # noqa: F811
    with Training(folder) as training:
        assert training.saver.restarts == 0
        training.saver.note_restart()
        assert training.saver.restarts == 1
        assert training.saver.directory == folder
    COMM.Barrier()
    with Training(folder) as training:
        assert training.saver.restarts == 1
