"""Ranks that meet without MPI: what a rank makes of messages in an order that is rare."""

import os
import uuid
from multiprocessing.connection import Connection
from typing import Any

import pytest
import ranks

from wagma.collectives import local
from wagma.collectives.address import accept, listen
from wagma.collectives.job import Job
from wagma.collectives.patience import Patience


def test_a_rank_that_sleeps_through_the_beginning_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it looks, all are together, and rank 0 says already for whose values it waits."""
    monkeypatch.setenv("WAGMA_JOB", f"test-{uuid.uuid4()}")
    key = Job.of({**os.environ, "RANK": "0", "WORLD_SIZE": "3"}).key
    listener = listen(Job(0, 3, key), 2.0)

    def rank_0() -> Any:
        link: Connection | None = None
        while link is None:
            link = accept(listener)
        listener.close()
        assert link.recv()[0] == 1
        for message in (("missing", [2]), ("together", None), ("missing", [1, 2])):
            link.send(message)
        what, value = link.recv()
        assert what == "value"
        link.send(("values", [0, value, 2]))
        return value

    def rank_1() -> Any:
        meeting = local.local_ranks(Job(1, 3, key), Patience(timeout=20.0))
        values = meeting.allgather(1, last=True)
        meeting.leave(None)
        return values

    assert ranks.thread_ranks(2, lambda rank: (rank_0, rank_1)[rank]()) == [1, [0, 1, 2]]
