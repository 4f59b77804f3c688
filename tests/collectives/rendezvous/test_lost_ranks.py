"""A rank that fails while the others are on their way to where all ranks meet: they do not hang."""

import re
import subprocess
from functools import cache

import pytest
from launched import Forked
from test_messages import FAMILY, run, said

pytestmark = [pytest.mark.launch, pytest.mark.long]

BEGIN = """
import torch
import wagma

class LocalError(Exception):
    pass

model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 1))
batch = torch.randn(8, 4, generator=torch.Generator().manual_seed(rank))

def steps(opt):
    while opt.version < 3:
        opt.zero_grad()
        model(batch).square().mean().backward()
        opt.step()
"""
TRAINED = """
inner = torch.optim.SGD(model.parameters(), lr=0.1)
opt = wagma.DistributedOptimizer(inner, wagma.{algorithm}(comm, transport="{transport}"{options}))
try:
    with opt:
        steps(opt)
        if rank in {fails}:
            {closes}
            raise LocalError
        {meet}
except LocalError:
    say("left")
except Exception as error:
    say(type(error).__name__, error)
"""


def trained(
    algorithm: str,
    transport: str,
    meet: str,
    *,
    fails: tuple[int, ...] = (2,),
    closes: str = "pass",
    **options: float,
) -> str:
    """A training with that algorithm, at whose end those that have not failed come to `meet`."""
    asked = "".join(f", {name}={value}" for name, value in options.items())
    return TRAINED.format(
        algorithm=algorithm,
        transport=transport,
        options=asked,
        fails=fails,
        closes=closes,
        meet=meet,
    )


JOIN = "with opt.join(2): pass"
MEETINGS = {
    "join, DPSGD": trained("DPSGD", "shm", JOIN),
    "join, WAGMA": trained("WAGMA", "mpi", JOIN),
    "buffers": trained("DPSGD", "mpi", "opt.synchronize(buffers=model.buffers())"),
    "state": trained("WAGMA", "shm", "opt.load_state_dict(opt.state_dict())"),
    "group": trained(
        "LocalSGD", "mpi", "opt.add_param_group({'params': [torch.nn.Parameter(torch.ones(2))]})"
    ),
}
WITHOUT_THREAD = f"""
os.environ["WAGMA_PROGRESS"] = "main"
{trained("LocalSGD", "mpi", JOIN)}
del os.environ["WAGMA_PROGRESS"]
"""
# In a communicator without the failed rank, which lives on and does not call.
TRAIN_ON = """
if rank < 2:
    left = comm.Create_group(comm.group.Incl([0, 1]))
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with wagma.DistributedOptimizer(inner, wagma.DPSGD(left, transport="{transport}")) as opt:
        steps(opt)
    say("trained on")
"""
# Ranks 0 and 1 lose rank 2 in a step; rank 0 catches that and goes on.
CAUGHT = """
        try:
            opt.step()
        except PeerError as error:
            say("stepped", error)
            if rank == 1: raise
        with opt.join(2): pass
"""
BOTH = ("shm", "mpi")
CASES = {
    **MEETINGS,
    "without a thread": WITHOUT_THREAD,
    **{f"train on, {t}": trained("DPSGD", t, JOIN) + TRAIN_ON.format(transport=t) for t in BOTH},
    **{f"broken, {t}": trained("AllreduceSGD", t, CAUGHT) for t in BOTH},
    # Found by one rank before the others' meeting is over.
    "no state": trained(
        "LocalSGD", "auto", "opt.load_state_dict(None if rank == 1 else opt.state_dict())", fails=()
    ),
    "closed": trained(
        "LocalSGD", "shm", JOIN, closes="opt.close()", timeout=5.0, stall_warning=1.0
    ),
}


def heard(name: str) -> list[list[str]]:
    """What each rank said in that case, of a job that has ended as it should."""
    done = job(of_one_job(name))
    assert done.returncode == 0, done.stdout + done.stderr
    found: list[list[str]] = [[], [], []]
    for rank in range(3):
        case = None
        for line in said(done, rank):
            if line.startswith("case "):
                case = line.removeprefix("case ")
            elif case == name:
                found[rank].append(line)
    return found


def of_one_job(name: str) -> tuple[str, ...]:
    """That case and those that share its job, since torch takes seconds to start.

    Once ranks have given up making a communicator, Open MPI makes no other one that has all of
    them.
    """
    return tuple(CASES) if FAMILY == "MPICH" else (name,)


@cache
def job(names: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """A job of those cases that has ended, or was ended; the others need not wait for it again.

    They have a communicator each: what ranks have begun in one when they give up stays begun.
    """
    script = BEGIN + f"world, comms = comm, [comm.Dup() for _ in range({len(names)})]\n"
    for index, name in enumerate(names):
        script += f"world.Barrier()\nsay('case {name}')\ncomm = comms[{index}]\n{CASES[name]}"
    try:
        return run(3, script)
    except subprocess.TimeoutExpired as hangs:
        printed = hangs.stdout.decode() if isinstance(hangs.stdout, bytes) else ""
        return subprocess.CompletedProcess(hangs.cmd, -1, printed, str(hangs))


@pytest.mark.parametrize("meeting", [*MEETINGS, "without a thread"])
def test_who_has_failed_is_not_met(meeting: str) -> None:
    assert heard(meeting)[2] == ["left"]
    for rank in (0, 1):
        (text,) = heard(meeting)[rank]
        assert text.startswith("PeerError ")
        # Over messages the first to be known may be one that failed because of the first.
        shm = 'transport="shm"' in CASES[meeting]
        assert ("2 failed, died" if shm else " failed, died") in text, text


@pytest.mark.parametrize("transport", BOTH)
def test_those_that_are_left_train_on(transport: str) -> None:
    assert heard(f"train on, {transport}")[2] == ["left"]
    for rank in (0, 1):
        text, trained_on = heard(f"train on, {transport}")[rank]
        assert text.startswith("PeerError ")
        assert (
            "make a new optimizer without them, over a communicator of comm.Create_group()" in text
        )
        assert trained_on == "trained on"


@pytest.mark.parametrize("transport", BOTH)
def test_a_training_that_broke_meets_nobody(transport: str) -> None:
    assert heard(f"broken, {transport}")[2] == ["left"]
    for rank in (0, 1):
        stepped, text = heard(f"broken, {transport}")[rank]
        assert stepped.startswith("stepped rank ")
        assert text.startswith("HandleError " if rank == 0 else "PeerError "), text
        assert ("failed earlier: rank 2 " if rank == 0 else "failed") in text, text


class Trained(Forked):
    imports = "import torch, wagma; wagma.DistributedOptimizer"


def test_without_mpi() -> None:
    """Rank 2 lives on after its failure, until the test ends it."""
    script = BEGIN + trained("LocalSGD", "auto", JOIN)
    script = script.replace("(comm,", "(None,").replace('say("left")', "signal.pause()")
    with Trained(3, script.replace("say(", "print(")) as ranks:
        for text in ranks.outputs(0, 1):
            assert re.match("PeerError .*[12] failed, died", text), text


@pytest.mark.parametrize("fails", ["die()", "raise LocalError"])
def test_after_a_rank_that_died_checkpoints_are_named_and_not_join(fails: str) -> None:
    """A rank that left without close() may have run out of data."""
    script = BEGIN + trained("AllreduceSGD", "auto", "steps(opt, 5)", fails=(1,))
    script = script.replace("steps(opt):", "steps(opt, last=3):").replace("< 3:", "< last:")
    script = script.replace("raise LocalError", fails)
    with Trained(2, script.replace("(comm,", "(None,").replace("say(", "print(")) as ranks:
        text = ranks.processes[0].communicate(timeout=60)[0]
    died = fails == "die()"
    assert text.startswith(f"PeerError rank 1 {'is dead' if died else 'failed'}"), text
    assert ("wagma.checkpoint.Checkpointer" in text) == died
    assert ("opt.join()" in text) == (not died)


def test_what_cannot_be_loaded_is_refused_on_every_rank() -> None:
    for rank in range(3):
        (text,) = heard("no state")[rank]
        assert "NoneType" in text, text


def test_who_has_closed_is_waited_for_until_the_timeout() -> None:
    *others, last = heard("closed")
    assert last == ["left"]
    texts = [said_there[-1] for said_there in others]
    stalled = [text for text in texts if "has waited " in text]
    for text in stalled:
        assert re.match(
            r"StallError rank [01] has waited \d+\.\d s in a call that all ranks make for rank 2, "
            "which has not come",
            text,
        ), text
        assert "join(), load_state_dict()" in text
    # Whose time is over first has failed for the other one.
    assert stalled
    assert all(text in stalled or re.match("PeerError .* failed, died", text) for text in texts), (
        texts
    )
    printed = job(of_one_job("closed")).stdout
    warning = r"\(LocalSGD\) has waited \d+\.\d s in a call that all ranks make for rank 2, which"
    assert re.search(warning, printed), printed
