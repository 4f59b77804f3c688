"""One job in a folder: the lock is the process's, and goes with it."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from checkpoints import Alone, loaded, saved_at

from wagma.checkpoint import CheckpointError
from wagma.checkpoint.folder import Folder
from wagma.checkpoint.lock import FolderLock, _guard, read_token
from wagma.checkpoint.manifest import Manifest, why_not_whole
from wagma.checkpoint.names import Place, manifest_name

HOLDER = """
import sys
from pathlib import Path
from wagma.checkpoint.lock import FolderLock
lock = FolderLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()  # ends with the test, whatever happens to it
"""


def test_another_job_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    command, pipe = [sys.executable, "-c", HOLDER, str(tmp_path)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as job:
        try:
            assert job.stdout is not None
            assert job.stdout.readline() == "held\n"
            with pytest.raises(CheckpointError, match="is used by another job") as caught:
                Alone(tmp_path)
            assert f"process {job.pid} on " in str(caught.value)
        finally:
            os.kill(job.pid, signal.SIGKILL)
    saved_at(tmp_path, 1)
    assert loaded(tmp_path) == 1


def can_be_had_by_another_process(folder: Path) -> bool:
    code = (
        f"import fcntl; fcntl.lockf(open({str(folder / 'lock')!r}, 'r+'), "
        "fcntl.LOCK_EX | fcntl.LOCK_NB)"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0 or "BlockingIOError" in ran.stderr
    return ran.returncode == 0


def test_reentrant_in_its_process(tmp_path: Path) -> None:
    with Alone(tmp_path) as first:
        with Alone(tmp_path) as second:
            first.step()
            first.saver.save()
            second.step()
            second.step()
            second.saver.save()  # another run
            assert not can_be_had_by_another_process(tmp_path)
        first.saver.save()  # another run, and not one that has a number already
        first.saver.wait()
        assert not can_be_had_by_another_process(tmp_path)
        names = sorted(path.name for path in tmp_path.glob("run-*"))
        assert names == ["run-002-version-00000002", "run-003-version-00000001"]
    assert can_be_had_by_another_process(tmp_path)


def test_released_when_it_is_forgotten(tmp_path: Path) -> None:
    alone = Alone(tmp_path)
    alone.opt.close()
    assert not can_be_had_by_another_process(tmp_path)
    del alone
    assert can_be_had_by_another_process(tmp_path)


def test_not_inherited_by_a_forked_child(tmp_path: Path) -> None:
    """The child has no lock, does not save, and its end frees nothing."""
    context = multiprocessing.get_context("fork")
    with Alone(tmp_path) as alone:

        def child(pipe: object) -> None:
            told = []
            for call in (lambda: FolderLock(tmp_path), alone.saver.save, alone.saver.maybe_save):
                try:
                    call()
                except (CheckpointError, RuntimeError) as error:
                    told.append(str(error))
            alone.saver.close()
            pipe.send(told)  # type: ignore[attr-defined]
            pipe.recv()  # type: ignore[attr-defined]

        ours, theirs = context.Pipe()
        process = context.Process(target=child, args=(theirs,))
        process.start()
        told = ours.recv()
        assert "is used by another job" in told[0]
        assert all("in a forked process" in text for text in told[1:])
        assert len(told) == 3
        assert not can_be_had_by_another_process(tmp_path)
        alone.saver.close()
        assert can_be_had_by_another_process(tmp_path)  # though the child lives
        ours.send(None)
        process.join()
    assert process.exitcode == 0


def test_the_end_of_a_forked_child_frees_nothing(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    process = multiprocessing.get_context("fork").Process(target=lock.release)
    process.start()
    process.join()
    assert not can_be_had_by_another_process(tmp_path)
    lock.release()
    lock.release()
    assert can_be_had_by_another_process(tmp_path)


def test_a_child_forked_while_a_lock_is_taken_can_take_one(tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=FolderLock, args=(tmp_path,))
    with _guard:  # as another thread of the parent may hold it
        process.start()
    process.join(60)
    process.kill()
    assert process.exitcode == 0


def test_the_garbage_collector_may_free_a_lock_while_another_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may run at any allocation, in the thread that is about to lock a folder."""
    dropped = [Alone(tmp_path).saver, Alone(tmp_path).saver]
    touch = Path.touch

    def collecting_touch(path: Path) -> None:
        touch(path)
        dropped.clear()
        gc.collect()

    monkeypatch.setattr(Path, "touch", collecting_touch)
    lock = FolderLock(tmp_path)
    assert not dropped
    assert not can_be_had_by_another_process(tmp_path)
    lock.release()
    assert can_be_had_by_another_process(tmp_path)  # the dropped ones do not hold it either


def test_what_other_hosts_look_for(tmp_path: Path) -> None:
    assert read_token(tmp_path) is None
    lock = FolderLock(tmp_path)
    assert read_token(tmp_path) == lock.token
    lock.release()
    (tmp_path / "lock").write_text("{}")
    assert read_token(tmp_path) is None


def test_a_job_that_wrote_under_the_same_number_is_not_mixed_in(tmp_path: Path) -> None:
    """A rank of an old job that still lives makes no whole checkpoint out of two halves."""
    saved_at(tmp_path, 1)
    folder, place = Folder(tmp_path), Place(1, 1)
    first = folder.manifest(place, 0)
    assert isinstance(first, Manifest)
    for rank, token in ((0, first.token), (1, "another")):
        other = replace(first, rank=rank, size=2, token=token)
        (folder.path_of(place) / manifest_name(rank)).write_text(other.text())
    assert "different jobs" in (why_not_whole(folder.manifests(place)) or "")
    assert loaded(tmp_path) is None
