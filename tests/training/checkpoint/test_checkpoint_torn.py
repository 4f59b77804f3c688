"""A job that dies at any moment of saving leaves the checkpoint before; damage is told."""

import ctypes
import errno
import json
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import Alone, loaded, saved_at

from wagma.checkpoint import CheckpointError
from wagma.checkpoint.files import write_bytes, write_data
from wagma.checkpoint.folder import Folder
from wagma.checkpoint.names import Place

# Whatever changes a folder or its files.
CALLS = ("open", "write", "fsync", "fdatasync", "mkdir", "replace", "rename", "unlink", "rmdir")


class Dead(BaseException):
    """The process is gone: nothing that follows happens."""


@contextmanager
def dying_before(call: int, done: list[str]) -> Iterator[None]:
    """Nothing changes from the `call`-th change of a file on; `done` gets those before."""
    real = {name: getattr(os, name) for name in CALLS}
    counted = threading.Lock()  # threads write, and remove old checkpoints

    def dying(name: str) -> Callable[..., Any]:
        def instead(*args: Any, **kwargs: Any) -> Any:
            reads = name == "open" and not args[1] & (os.O_WRONLY | os.O_RDWR)
            with counted:
                if not reads and len(done) >= call:
                    raise Dead
                if not reads:
                    done.append(name)
            return real[name](*args, **kwargs)

        return instead

    for name in CALLS:
        setattr(os, name, dying(name))
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(os, name, function)


def saves_until(call: int, folder: Path, *, again: bool) -> list[str]:
    """Save versions 1 and 2, and then version 3, or 2 again, until the process dies."""
    done: list[str] = []
    with Alone(folder) as alone:
        for _ in range(2):
            alone.step()
            alone.saver.save()
        alone.saver.wait()
        if not again:
            alone.step()
        with dying_before(call, done):
            with suppress(Dead, RuntimeError):
                alone.saver.save()
            alone.saver._writer.wait()
            alone.saver._cleaner.wait()
    return done


@pytest.fixture
def dying_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let threads die as `Dead`, which pytest would report, and of nothing else."""
    report = threading.excepthook

    def unless_dead(ended: threading.ExceptHookArgs) -> None:
        if ended.exc_type is not Dead:
            report(ended)

    monkeypatch.setattr(threading, "excepthook", unless_dead)


@pytest.mark.usefixtures("dying_threads")
@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.long)])
def test_torn_at_every_step(again: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = saves_until(10**6, tmp_path / "whole", again=again)
    assert loaded(tmp_path / "whole") == (2 if again else 3)
    for name in ("open", "write", "fsync", "rename" if "rename" in whole else "replace"):
        assert name in whole
    seen = []
    for call in range(len(whole)):
        folder = tmp_path / str(call)
        assert len(saves_until(call, folder, again=again)) == call
        caplog.clear()
        version = loaded(folder)
        assert version is not None
        seen.append(version)
        newest = folder / ("run-002-version-00000002" if again else "run-001-version-00000003")
        torn = newest.exists() and not (newest / "rank-00000.json").exists()
        assert torn or again or version == (3 if newest.exists() else 2)
        assert ("is incomplete, trying the checkpoint before it" in caplog.text) == torn
        if call % 5 == 0:
            with Alone(folder) as alone:  # and saving goes on
                alone.saver.load()
                alone.step()
                alone.saver.save()
            assert loaded(folder) == version + 1
    assert seen == sorted(seen)  # the new one counts from one moment on
    assert set(seen) == ({2} if again else {2, 3})
    assert seen[0] == 2


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path) -> None:
    """And its name before the next file, the manifest above all."""
    changes: list[str] = []
    with dying_before(10**6, changes):
        write_data(tmp_path / "data", {"tensor": torch.ones(10)})
        write_bytes(tmp_path / "manifest", b"{}")
    changes = [name for name in changes if name not in ("open", "fdatasync")]
    once = [
        name for i, name in enumerate(changes) if changes[i - 1 : i] != ["write"] or name != "write"
    ]
    assert once == ["write", "fsync", "replace", "fsync"] * 2


def test_what_a_dead_run_had_begun_is_removed(tmp_path: Path) -> None:
    saved_at(tmp_path, 1)
    left = [tmp_path / "run-001-version-00000001/rank-00000.pt.tmp"]
    (tmp_path / "run-001-version-00000002").mkdir()
    left.append(tmp_path / "run-001-version-00000002/rank-00000.pt.tmp")
    for path in left:
        path.write_text("half")
    with Alone(tmp_path) as alone:
        assert alone.saver.load()
        alone.step()
        alone.saver.save()
        alone.saver.wait()
        assert not any(path.exists() for path in left)
        assert loaded(tmp_path) == 2


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def another_token(path: Path) -> None:
    """Make a manifest that is as good as any, but for its checksum."""
    stored = json.loads(path.read_text())
    stored["manifest"]["token"] += "0"
    path.write_text(json.dumps(stored))


@pytest.mark.parametrize(
    ("file", "how", "told"),
    [
        ("rank-00000.pt", damage, "has checksum"),
        ("rank-00000.pt", lambda path: path.write_bytes(b""), "has 0 bytes"),
        ("rank-00000.pt", Path.unlink, "is missing"),
        ("rank-00000.json", Path.unlink, "no rank has finished its part"),
        ("rank-00000.json", lambda path: path.write_text("{"), "manifest of rank 0"),
        ("rank-00000.json", damage, "rank"),
        ("rank-00000.json", another_token, "manifest of rank 0"),
    ],
)
def test_damage_is_told_and_the_checkpoint_before_taken(
    file: str,
    how: Callable[[Path], Any],
    told: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    saved_at(tmp_path, 1, 2)
    how(tmp_path / "run-001-version-00000002" / file)
    assert loaded(tmp_path) == 1
    (message,) = [one.message for one in caplog.records if one.levelno == logging.WARNING]
    assert "run-001-version-00000002" in message
    assert "trying the checkpoint before it" in message
    assert told in message


def test_one_that_could_not_be_read_is_not_among_those_that_stay(tmp_path: Path) -> None:
    """Its manifest is there, but only the one before it can be loaded."""
    saved_at(tmp_path, 1, 2)
    damage(tmp_path / "run-001-version-00000002/rank-00000.pt")
    with Alone(tmp_path, keep=2) as alone:
        assert alone.saver.load()
        alone.step()
        alone.saver.save()
        alone.saver.wait()
        assert Place(1, 1) in Folder(tmp_path).places()


def test_a_clock_that_goes_backwards_changes_nothing(tmp_path: Path) -> None:
    saved_at(tmp_path, 1, 2)
    with Alone(tmp_path) as alone:
        assert alone.saver.load()
        alone.step()
        alone.saver.save()
    for age, path in enumerate(sorted(tmp_path.rglob("*"))):
        os.utime(path, (10**9 - age, 10**9 - age))  # the newest seems the oldest
    assert loaded(tmp_path) == 3


def test_as_many_whole_ones_stay_as_are_to_be_kept(tmp_path: Path) -> None:
    with Alone(tmp_path, keep=3) as alone:
        for _ in range(6):
            alone.step()
            alone.saver.save()
        alone.saver.wait()
    assert [place.version for place in Folder(tmp_path).places()] == [6, 5, 4]
    for version in (5, 6):
        (tmp_path / f"run-001-version-{version:08d}/rank-00000.json").unlink()
    with Alone(tmp_path, keep=2) as alone:
        while alone.opt.version < 7:
            alone.step()
        alone.saver.save()
        alone.saver.wait()
    # 5 and 6 are not whole: they are no reason to remove an older one, nor are they removed.
    assert [place.version for place in Folder(tmp_path).places()] == [7, 6, 5, 4]
    with Alone(tmp_path, keep=1) as alone:
        alone.saver.load()
        alone.step()
        alone.saver.save()
        alone.saver.wait()
        assert Folder(tmp_path).places() == [Place(3, 8)]


def test_a_checkpoint_that_is_removed_is_never_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved_at(tmp_path, 1, 2)

    def interrupted(_: Path) -> None:
        raise Dead

    monkeypatch.setattr("shutil.rmtree", interrupted)
    with pytest.raises(Dead):
        Folder(tmp_path).prune(1, 2)
    assert loaded(tmp_path) == 2
    assert not list((tmp_path / "run-001-version-00000001").glob("*.json"))
    assert list((tmp_path / "run-001-version-00000001").glob("*.pt"))


FULL = """
import logging, resource, sys
from pathlib import Path
import torch
from checkpoints import Alone
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
for when in ("now", "later"):
    with Alone(Path(sys.argv[1]) / when, every=1, asynchronous=when == "later") as alone:
        alone.step()
        assert alone.saver.maybe_save()
        alone.saver.wait()
        alone.counted.state_dict = lambda: {"count": torch.zeros(200_000)}
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, -1))
        alone.step()
        print(when, "MAYBE", alone.saver.maybe_save())
        alone.step()
        try:
            alone.saver.save()
            alone.saver.wait()
        except OSError as error:
            print(when, type(error).__name__, error)
        alone.step()
        print(when, "TRAINS", alone.value)
        alone.saver._writer.wait()
        resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
"""


@pytest.mark.long
def test_a_full_disk(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "now MAYBE False" in ran.stdout
    assert "later MAYBE True" in ran.stdout
    assert "ERROR [rank 0/1] a checkpoint was not saved, the training goes on" in ran.stderr
    for when in ("now", "later"):
        assert f"{when} CheckpointError cannot save" in ran.stdout
        assert f"{when} TRAINS 4.0" in ran.stdout
        assert loaded(tmp_path / when) == 1
    assert ran.stdout.count("rank 0: File too large") == 2
    assert not list(tmp_path.rglob("*.tmp"))


def test_an_error_of_the_thread_reaches_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "the file")

    with Alone(tmp_path, every=1, asynchronous=True) as alone, monkeypatch.context() as patched:
        patched.setattr(Folder, "write", full)
        for _ in range(2):
            alone.step()
            assert alone.saver.maybe_save()
        assert "training goes on: No space left on device: the file" in caplog.text
        with pytest.raises(CheckpointError, match=r"rank 0: No space left .*: the file"):
            alone.saver.save()
        with pytest.raises(CheckpointError, match="No space left"):
            alone.saver.load()
        alone.saver.save()
        with pytest.raises(CheckpointError, match="No space left"):
            alone.saver.wait()
        alone.saver.save()
        with pytest.raises(CheckpointError, match="No space left"):
            alone.saver.close()
        alone.saver.close()


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder, why in (
        (tmp_path / "file/x", "Not a directory"),
        (Path("/proc/x"), "No such file"),
    ):
        with pytest.raises(CheckpointError, match=f"cannot save checkpoints in {folder}.*{why}"):
            Alone(folder)


def read_only(folder: Path, pipe: Any) -> None:
    """In a forked child, which has mounts of its own."""
    if (
        ctypes.CDLL(None).unshare(0x20000)
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "ro", "none", folder], check=False, capture_output=True
        ).returncode
    ):
        pipe.send(None)
        return
    try:
        Alone(folder)
    except CheckpointError as error:
        pipe.send(str(error))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_read_only_file_system(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=read_only, args=(tmp_path, theirs))
    child.start()
    theirs.close()
    told = ours.recv()
    child.join()
    if told is None:
        pytest.skip("mounts are not allowed here")
    assert f"cannot save checkpoints in {tmp_path}" in told
    assert "Read-only file system" in told
