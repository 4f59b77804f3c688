"""A rank that fails while the others are on their way to where all ranks meet: they do not hang."""

import re

import pytest
from launched import Launched
from test_messages import run, said

TRAINED = """
import torch
import wagma

class LocalError(Exception):
    pass

model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 1))
inner = torch.optim.SGD(model.parameters(), lr=0.1)
opt = wagma.DistributedOptimizer(inner, wagma.{algorithm}(comm, transport="{transport}"))
batch = torch.randn(8, 4, generator=torch.Generator().manual_seed(rank))
try:
    with opt:
        while opt.version < 3:
            opt.zero_grad()
            model(batch).square().mean().backward()
            opt.step()
        if rank == comm.size - 1:
            raise LocalError
        {meet}
except LocalError:
    say("left")
except PeerError as error:
    say(error)
"""
MEETINGS = {
    "join": "with opt.join(2): pass",
    "buffers": "opt.synchronize(buffers=model.buffers())",
    "state": "opt.load_state_dict(opt.state_dict())",
    "group": "opt.add_param_group({'params': [torch.nn.Parameter(torch.ones(2))]})",
}


@pytest.mark.parametrize(
    ("meeting", "transport", "algorithm"),
    [
        ("join", "shm", "DPSGD"),
        ("join", "mpi", "WAGMA"),
        ("buffers", "mpi", "DPSGD"),
        ("state", "shm", "WAGMA"),
        ("group", "mpi", "LocalSGD"),
    ],
)
def test_who_has_failed_is_not_met(meeting: str, transport: str, algorithm: str) -> None:
    script = TRAINED.format(algorithm=algorithm, transport=transport, meet=MEETINGS[meeting])
    done = run(3, script)
    assert done.returncode == 0, done.stderr
    assert said(done, 2) == ["left"]
    for rank in (0, 1):
        (text,) = said(done, rank)
        # Over messages the first to be known may be one that failed because of the first.
        assert ("2 failed, died" if transport == "shm" else " failed, died") in text, text


@pytest.mark.parametrize("transport", ["shm", "mpi"])
def test_those_that_are_left_train_on(transport: str) -> None:
    """In a communicator without the failed rank, which lives on and does not call."""
    script = TRAINED.format(algorithm="DPSGD", transport=transport, meet=MEETINGS["join"])
    script += f"""
if rank < 2:
    left = comm.Create_group(comm.group.Incl([0, 1]))
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with wagma.DistributedOptimizer(inner, wagma.DPSGD(left, transport="{transport}")) as opt:
        while opt.version < 3:
            opt.zero_grad()
            model(batch).square().mean().backward()
            opt.step()
    say("trained on")
"""
    done = run(3, script)
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        text, trained = said(done, rank)
        assert (
            "make a new optimizer without them, over a communicator of comm.Create_group()" in text
        )
        assert trained == "trained on"


@pytest.mark.parametrize("transport", ["shm", "mpi"])
def test_a_training_that_broke_meets_nobody(transport: str) -> None:
    """Ranks 0 and 1 lose rank 2 in a step; rank 0 catches that and goes on."""
    script = TRAINED.format(
        algorithm="AllreduceSGD",
        transport=transport,
        meet="""
        try:
            opt.step()
        except PeerError as error:
            say("stepped", error)
            if rank == 1: raise
        with opt.join(2): pass
    """,
    )
    outer = "except PeerError as error:\n    say"
    script = script.replace(outer, outer.replace("PeerError", "WagmaError"))
    done = run(3, script)
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        stepped, text = said(done, rank)
        assert stepped.startswith("stepped rank ")
        assert ("broken by an earlier error" if rank == 0 else "failed") in text, text


def test_without_a_progress_thread() -> None:
    script = TRAINED.format(algorithm="LocalSGD", transport="mpi", meet="with opt.join(2): pass")
    done = run(3, script, WAGMA_PROGRESS="main")
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert " failed, died" in said(done, rank)[0]


def test_without_mpi() -> None:
    """Rank 2 lives on after its failure, until the test ends it."""
    script = TRAINED.format(algorithm="LocalSGD", transport="auto", meet="with opt.join(2): pass")
    script = script.replace("(comm,", "(None,").replace("comm.size", "size")
    script = script.replace('say("left")', "signal.pause()").replace("say(", "print(")
    with Launched(3, script) as ranks:
        for text in ranks.outputs(0, 1):
            assert "2 failed, died" in text or "1 failed, died" in text, text


def test_what_cannot_be_loaded_is_refused_on_every_rank() -> None:
    """Found by one rank before the others' meeting is over."""
    script = TRAINED.format(
        algorithm="LocalSGD",
        transport="auto",
        meet="""
        opt.load_state_dict(None if rank == 1 else opt.state_dict())
    """,
    ).replace("if rank == comm.size - 1", "if False")
    done = run(3, script.replace("except PeerError", "except Exception"))
    assert done.returncode == 0, done.stderr
    for rank in range(3):
        (text,) = said(done, rank)
        assert "NoneType" in text, text


def test_who_has_closed_is_waited_for_until_the_timeout() -> None:
    script = TRAINED.format(
        algorithm="LocalSGD", transport="shm", meet="with opt.join(2): pass"
    ).replace('transport="shm"', 'timeout=1.0, stall_warning=0.3, transport="shm"')
    script = script.replace("raise LocalError", "opt.close(); raise LocalError")
    done = run(3, script.replace("except PeerError", "except (PeerError, StallError)"))
    assert done.returncode == 0, done.stderr
    texts = [said(done, rank)[-1] for rank in (0, 1)]
    stalled = [text for text in texts if "has waited 1" in text]
    for text in stalled:
        assert re.match("a call that all ranks make has waited 1.* s for other ranks", text), text
        assert "join(), load_state_dict()" in text
    # Whose time is over first has failed for the other one.
    assert stalled
    assert all(text in stalled or " failed, died" in text for text in texts), texts
    assert "(LocalSGD): a call that all ranks make has waited 0.3" in done.stdout
