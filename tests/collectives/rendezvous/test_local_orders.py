"""Ranks that meet without MPI: what a rank makes of messages in an order that is rare."""

import os
import threading
import uuid
from typing import Any

import pytest
import ranks

from wagma.collectives import StallError
from wagma.collectives.rendezvous import local
from wagma.collectives.rendezvous.address import accept, listen, proof
from wagma.collectives.rendezvous.job import Job
from wagma.collectives.rendezvous.link import Link, wait_for
from wagma.collectives.rendezvous.patience import Patience


def heard(link: Link) -> tuple[str, Any]:
    while not (messages := link.receive()):
        wait_for([link], [link], 1.0)
    [message] = messages
    return message


def test_a_rank_that_sleeps_through_the_beginning_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it looks, all are together, and rank 0 says already for whose values it waits."""
    monkeypatch.setenv("WAGMA_JOB", f"test-{uuid.uuid4()}")
    job = Job.of({**os.environ, "RANK": "1", "WORLD_SIZE": "3"})
    listener = listen(job)

    def rank_0() -> Any:
        listener.setblocking(True)
        end = accept(listener)
        assert end is not None
        link = Link(end, 1 << 20)
        listener.close()
        link.send("who", "number")
        what, content = heard(link)
        assert (what, content[0]) == ("hello", 1)
        link.send("welcome", proof(job, "welcome", content[-2]))
        for message in (("missing", [2]), ("together", None), ("missing", [1, 2])):
            link.send(*message)
        what, value = heard(link)
        assert what == "value"
        link.send("values", [0, value[0], 2])
        link.close()
        return value

    def rank_1() -> Any:
        meeting = local.local_ranks(job, Patience(timeout=20.0))
        values = meeting.allgather(1, last=True)
        meeting.leave(None)
        return values

    assert ranks.thread_ranks(2, lambda rank: (rank_0, rank_1)[rank]()) == [[1, None], [0, 1, 2]]


def test_one_thread_waits_for_another_as_for_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """One at a time is in a meeting, here in one of ranks that never come."""
    monkeypatch.setenv("WAGMA_JOB", f"test-{uuid.uuid4()}")
    job = Job.of({**os.environ, "RANK": "0", "WORLD_SIZE": "2"})
    meets, ends = threading.Event(), threading.Event()

    def watch() -> None:
        meets.set()
        if ends.is_set():
            raise InterruptedError

    def meet() -> None:
        with pytest.raises(InterruptedError):
            local.local_ranks(job, Patience(timeout=20.0), watch)

    thread = threading.Thread(target=meet)
    thread.start()
    try:
        assert meets.wait(20)
        with pytest.raises(StallError, match="another thread of this process is making"):
            local.local_ranks(job, Patience(timeout=0.3))
    finally:
        ends.set()
        thread.join()
