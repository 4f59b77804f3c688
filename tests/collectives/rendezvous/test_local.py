"""Collectives of ranks that a launcher started, without MPI: how they meet, and how they fail to.

Every rank is a process of its own in which mpi4py cannot be imported. Most are forked, so that a
test does not begin with the imports of each.
"""

import os
import signal
import textwrap
import time
from pathlib import Path

import pytest
from launched import LIVENESS_S, Forked, Launched

pytestmark = [pytest.mark.launch, pytest.mark.without_mpi]

MAKE = "attempt(lambda: PartialAllreduce(None, x))\n"
IMPATIENT = "attempt(lambda: PartialAllreduce(None, x, stall_warning=0.2))\n"
TWO_PROCESSES = "RANK={rank} in two processes, "
# Where a rank can be while others wait for it: in front of its arguments' comparison, with the
# segment open, and beside the others in the engine (their arguments are resolved a second time).
PLACES = {
    "arguments": "once(collectives.arrays, 'resolve', {})\n",
    "segment": """
class Replaced:
    @staticmethod
    def create(*_):
        collectives.rendezvous.meeting.Segment = Segment
        {}()
    open = create
collectives.rendezvous.meeting.Segment = Replaced
""",
    "segment made": """
class Replaced:
    @staticmethod
    def create(*arguments):
        collectives.rendezvous.meeting.Segment = Segment
        made = Segment.create(*arguments) if rank == 0 else Segment.open(*arguments)
        {}()
        return made
    open = create
collectives.rendezvous.meeting.Segment = Replaced
""",
    "joining": """
def armed():
    once(collectives.arrays, 'resolve', {})
once(collectives.arrays, 'match', lambda: None)
once(collectives.arrays, 'resolve', armed)
""",
}


def only_on(rank: int, script: str) -> str:
    return f"if rank == {rank}:\n" + textwrap.indent(script, "    ") + "\n"


def until_missing(ranks: Launched, missing: str, rank: int = 0) -> str:
    """Waits until `rank` warns of those ranks alone, and returns that."""
    stderr = ranks.processes[rank].stderr
    assert stderr is not None
    for line in stderr:
        if f" for {missing}, which " in line:
            return line
    raise AssertionError(f"rank {rank} ended")


def ended(rank: int) -> str:
    return f"PeerError: rank {rank}: the process ended while the collective was made"


# ---- what works ----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("size", "ranks_of"), [(1, Launched), (2, Launched), (4, Launched), (7, Forked)]
)
def test_collectives(size: int, ranks_of: type[Launched]) -> None:
    """Several, one after another and at once; nothing is left of them. Few ranks have nothing in
    common, as those of users."""
    script = """
        with PartialAllreduce(None, x, average=False, name="outer") as outer:
            for width in (1, size):
                with GroupAllreduce(None, x, group_size=width) as coll:
                    y = np.full(5, rank, np.float32)
                    coll.sync(y)
                    assert (y == (size - 1) / 2).all(), y
            outer.allreduce(x)
        assert outer.rank == rank and outer.size == size
        assert "mpi4py.MPI" not in sys.modules
        print(x[0])
        """
    with ranks_of(size, script) as ranks:
        assert ranks.outputs() == [f"{size * (size - 1) / 2}"] * size
        assert ranks.leftovers() == []


@pytest.mark.long
def test_ranks_that_come_late_are_waited_for() -> None:
    """Also in the second of two meetings, which the others have begun by then."""
    script = """
        for round in range(3):
            if round == rank:
                time.sleep(0.5)
            PartialAllreduce(None, x).close()
        print("done")
        """
    with Forked(3, script) as ranks:
        assert ranks.outputs() == ["done"] * 3


def test_rank_0_alone_gathers() -> None:
    """It gets all values; an error of another rank comes to all."""
    script = """
        from wagma.collectives.rendezvous.meeting import Meeting
        from wagma.collectives.rendezvous.patience import Patience

        with Meeting(None, Patience()) as meeting:
            print(meeting.gather(lambda: [rank] * (rank + 1)), meeting.exchange(lambda: rank))
            try:
                meeting.gather(lambda: int("x" if rank == 2 else "0"))
            except ValueError as error:
                print(str(error)[:6])
        """
    with Forked(3, script) as ranks:
        values = [[[0], [1, 1], [2, 2, 2]], None, None]
        assert ranks.outputs() == [f"{each} [0, 1, 2]\nrank 2" for each in values]


def test_a_rank_of_two_threads() -> None:
    """One meets after the other, in the same order on all ranks."""
    script = """
        import threading
        meeting, waiting = threading.Event(), []

        def second():
            meeting.wait()
            waiting.append(PartialAllreduce(None, x[:3]))

        thread = threading.Thread(target=second)
        thread.start()
        once(collectives.arrays, "resolve", lambda: (meeting.set(), time.sleep(0.2)))
        first = PartialAllreduce(None, x)
        thread.join()
        print(first.shape, waiting[0].shape)
        first.close()
        waiting[0].close()
        """
    with Forked(2, script) as ranks:
        assert ranks.outputs() == ["(5,) (3,)"] * 2


# ---- arguments -----------------------------------------------------------------------------------

WRONG: dict[str, tuple[str, str]] = {
    "different": (
        "PartialAllreduce(None, x, window=3 + rank // 2)",
        "MismatchError: window differs between ranks: 3 on ranks 0-1; 4 on rank 2",
    ),
    "shape": (
        "PartialAllreduce(None, x[rank // 2:])",
        "MismatchError: shape differs between ranks: (5,) on ranks 0-1; (4,) on rank 2",
    ),
    "value": (
        "PartialAllreduce(None, x, group_size=1 if rank != 1 else 9)",
        "ValueError: rank 1: group_size=9 must be 1 to 3, the number of ranks",
    ),
    "array": (
        "PartialAllreduce(None, x if rank != 1 else [1.0])",
        "TypeError: rank 1: expected a numpy array",
    ),
    "no array": (
        "PartialAllreduce(None, x) if rank != 1 else PartialAllreduce(None)",
        "TypeError: rank 1: PartialAllreduce.__init__() missing 1 required positional argument",
    ),
    "no group_size": (
        "GroupAllreduce(None, x, **({} if rank == 0 else {'group_size': 1}))",
        "TypeError: rank 0: GroupAllreduce.__init__() missing 1 required keyword-only argument",
    ),
    "chosen already": (
        "SyncAllreduce(None, x, **({} if rank else {'quorum': 1}))",
        "TypeError: rank 0: ",
    ),
    "timeout": (
        "PartialAllreduce(None, x, timeout=-1)",
        "ValueError: timeout=-1.0 must be 0 or more seconds",
    ),
    "wrong everywhere": (
        "QuorumAllreduce(None, x)",
        "TypeError: QuorumAllreduce.__init__() missing 1 required positional argument: 'k'",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_everyones_error(case: str) -> None:
    """The next collective is made as if nothing had been."""
    call, message = WRONG[case]
    with Forked(3, f"attempt(lambda: {call})\n" + MAKE) as ranks:
        texts = ranks.outputs()
        assert len(set(texts)) == 1, texts
        assert texts[0].startswith(message)
        assert texts[0].endswith("\nmade")
        assert ranks.leftovers() == []


def test_world_sizes_that_differ() -> None:
    with Forked(2, MAKE, ranks=(0,)) as ranks:
        ranks.start(1, WORLD_SIZE="4")
        wrong = "MismatchError: WORLD_SIZE differs between ranks: 2 on rank 0, 4 on rank 1; "
        for text in ranks.outputs():
            assert text.startswith(wrong)
            assert "WAGMA_JOB" in text


def test_two_processes_with_one_rank() -> None:
    with Forked(3, MAKE, ranks=(1,)) as ranks:
        first = ranks.processes[1]
        second = ranks.start(1)
        while first.poll() is None and second.poll() is None:  # one is refused
            time.sleep(0.01)
        ranks.start(0)
        texts = [*ranks.outputs(0, 1), first.communicate(timeout=LIVENESS_S)[0].rstrip("\n")]
        refused = [text for text in texts if text.startswith("RuntimeError: RANK=1 of this job is")]
        heard = [text for text in texts if text.startswith("MismatchError: ")]
        assert (len(refused), len(heard)) == (1, 2), texts
        assert all(TWO_PROCESSES.format(rank=1) in text for text in heard)
        for process in (first, second):
            assert any(str(process.pid) in text for text in texts)
        assert all("WAGMA_JOB" in text for text in texts)


# ---- ranks that do not come ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "missing", [(0, 2), *(pytest.param(m, marks=pytest.mark.long) for m in ((0,), (1,), (1, 3)))]
)
def test_missing_ranks_are_named(missing: tuple[int, ...]) -> None:
    """In warnings, by every rank that is there; then they come, and all is well."""
    present = tuple(rank for rank in range(4) if rank not in missing)
    script = """
        PartialAllreduce(None, x, stall_warning=0.3, name="weights").close()
        print("done", flush=True)
        """
    with Forked(4, script, ranks=present) as ranks:
        for rank in present:
            known = missing[:1] if missing[0] == 0 else missing  # rank 0 tells who else is missing
            names = "rank" + "s" * (len(known) > 1) + " " + ", ".join(map(str, known))
            text = until_missing(ranks, names, rank)
            assert text.startswith(f"rank {rank} (weights) has waited")
            assert "WAGMA_JOB" in text
        for rank in missing:
            ranks.start(rank)
        for rank in range(4):
            assert ranks.processes[rank].communicate(timeout=LIVENESS_S)[0] == "done\n"


@pytest.mark.parametrize("missing", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_timeout_ends_the_wait_for_a_missing_rank(missing: int) -> None:
    present = tuple(rank for rank in range(3) if rank != missing)
    script = "together(2); attempt(lambda: PartialAllreduce(None, x, timeout=5))"
    with Forked(3, script, ranks=present) as ranks:
        for text in ranks.outputs():
            assert text.startswith("StallError: ")
            assert f" for rank {missing}, which has not come (timeout 5 s)" in text
        assert ranks.leftovers() == []


@pytest.mark.long
def test_a_rank_that_comes_but_goes_no_further_is_named() -> None:
    script = """
        together(3)
        if rank == 1:
            once(collectives.arrays, "resolve", lambda: together(4))
        attempt(lambda: PartialAllreduce(None, x, timeout=5))
        """
    with Forked(3, script) as ranks:
        for text in ranks.outputs(0, 2):
            assert text.startswith("StallError: ")
            assert " for rank 1, which has not come (timeout 5 s)" in text
        Path(ranks.folder, "go on").touch()
        assert ranks.outputs(1)[0].startswith("StallError: ")


# ---- ranks that end ------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dead", [0, 1])
def test_a_rank_that_is_killed(dead: int, place: str) -> None:
    script = (
        f"if rank == {dead}:" + PLACES[place].format("die").replace("\n", "\n    ") + "\n" + MAKE
    )
    with Forked(3, script) as ranks:
        others = [rank for rank in range(3) if rank != dead]
        assert ranks.outputs(*others) == [ended(dead)] * 2
        assert ranks.outputs(dead, expected=-signal.SIGKILL) == [""]
        assert ranks.leftovers() == []


def test_all_ranks_are_killed_while_the_segment_is_open() -> None:
    """Nobody is left who could remove anything."""
    script = """
        class Replaced:
            @staticmethod
            def create(*arguments):
                made = Segment.create(*arguments)
                print("made", flush=True)
                time.sleep(60)
                return made
        if rank == 0:
            collectives.rendezvous.meeting.Segment = Replaced
    """
    with Launched(2, textwrap.dedent(script) + MAKE) as ranks:
        assert ranks.line(0) == "made"
        for process in ranks.processes.values():
            process.send_signal(signal.SIGSTOP)
        ranks.kill()
        assert ranks.leftovers() == []


@pytest.mark.parametrize("dead", [0, 1])
def test_a_rank_that_is_killed_while_it_waits(dead: int) -> None:
    """One rank has not come yet."""
    with Forked(4, IMPATIENT, ranks=(0, 1, 2)) as ranks:
        until_missing(ranks, "rank 3")
        ranks.kill(dead)
        for rank in (0, 1, 2):
            if rank != dead:
                assert (
                    ranks.processes[rank].communicate(timeout=LIVENESS_S)[0] == f"{ended(dead)}\n"
                )


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("interrupted", [0, 1])
def test_a_rank_that_is_interrupted(interrupted: int, place: str) -> None:
    """It gets its KeyboardInterrupt, and no other rank waits for it."""
    script = only_on(interrupted, PLACES[place].format("interrupt")) + MAKE * 2
    with Forked(3, script) as ranks:
        texts = ranks.outputs()
        assert texts[interrupted] == "KeyboardInterrupt: \nmade"
        others = {text for rank, text in enumerate(texts) if rank != interrupted}
        assert others == {f"PeerError: rank {interrupted}: interrupted by KeyboardInterrupt\nmade"}
        assert ranks.leftovers() == []


@pytest.mark.parametrize("interrupted", [0, 1])
def test_a_rank_that_is_interrupted_between_the_steps(interrupted: int) -> None:
    """The segment is there, the others are in it, and this rank does not come."""
    script = f"""
        if rank == {interrupted}:
            original = collectives.rendezvous.meeting.Meeting.segment
            def segment(*args):
                collectives.rendezvous.meeting.Meeting.segment = original
                original(*args)
                raise KeyboardInterrupt
            collectives.rendezvous.meeting.Meeting.segment = segment
        """
    with Forked(3, textwrap.dedent(script) + MAKE) as ranks:
        texts = ranks.outputs()
        assert texts.pop(interrupted) == "KeyboardInterrupt: "
        assert len(set(texts)) == 1, texts
        assert texts[0].startswith(f"PeerError: rank {interrupted}")


def test_ctrl_c_while_waiting() -> None:
    with Forked(3, IMPATIENT, ranks=(0, 2)) as ranks:
        until_missing(ranks, "rank 1")
        ranks.processes[2].send_signal(signal.SIGINT)
        texts = [process.communicate(timeout=LIVENESS_S)[0] for process in ranks.processes.values()]
        assert texts == [
            "PeerError: rank 2: interrupted by KeyboardInterrupt\n",
            "KeyboardInterrupt: \n",
        ]


def test_a_child_does_not_hide_the_death_of_a_rank() -> None:
    """Forked while a collective is made, it outlives the rank."""
    script = """
        def fork():
            child = os.fork()
            if child == 0:
                for stream in (0, 1, 2):
                    os.close(stream)
                time.sleep(600)
                os._exit(0)
            print(child, flush=True)
            die()
        if rank == 1:
            once(collectives.arrays, "resolve", fork)
        """
    with Forked(3, textwrap.dedent(script) + MAKE) as ranks:
        child = int(ranks.line(1))
        try:
            assert ranks.outputs(0, 2) == [ended(1)] * 2
            os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)
