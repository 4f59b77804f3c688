"""Comparison of the clocks of several hosts, by messages.

A rank asks rank 0 for its time. Rank 0 read its clock between the question and the answer: in the
middle, if both messages took equally long. The fastest of many round trips has the smallest error:
its offset is wrong by at most half of the round trip.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from mpi4py import MPI

ROUNDS = 200
TURN_S = 0.0005  # between two polls for this rank's turn


@dataclass(frozen=True)
class Estimate:
    """The other clock minus this one."""

    offset_ns: int  # add it to this clock to get the other one
    round_trip_ns: int  # duration of the fastest round trip

    @property
    def error_ns(self) -> int:
        """Return the largest possible error of the offset."""
        return (self.round_trip_ns + 1) // 2


def estimate(sent: Sequence[int], served: Sequence[int], received: Sequence[int]) -> Estimate:
    """Estimate the offset from round trips; all times are in ns. Pure.

    Args:
        sent: when this rank sent each question, by its clock.
        served: when the other answered it, by the other clock.
        received: when the answer arrived, by this clock.

    Raises:
        ValueError: the lists are empty or differ in length; an answer came before its question.
    """
    if not sent:
        raise ValueError("sent is empty: at least one round trip is needed")
    trips = [end - begin for begin, end in zip(sent, received, strict=True)]
    if min(trips) < 0:
        raise ValueError(f"an answer came {-min(trips)} ns before its question")
    best = min(range(len(trips)), key=trips.__getitem__)
    middle = sent[best] + trips[best] // 2
    offsets = [answer - middle for answer, _ in zip(served, sent, strict=True)]
    return Estimate(offset_ns=offsets[best], round_trip_ns=trips[best])


def compare(comm: MPI.Intracomm, now: Callable[[], int], rounds: int = ROUNDS) -> Estimate:
    """Compare rank 0's clock with this rank's. Collective; rank 0 answers one rank after the other.

    Args:
        comm: communicator without other messages meanwhile.
        now: reads this rank's clock, ns.
        rounds: number of questions of each rank.
    """
    word = np.zeros(1, np.int64)
    if comm.Get_rank() == 0:
        for rank in range(1, comm.Get_size()):
            comm.Send(word, rank)  # its turn
            for _ in range(rounds):
                comm.Recv(word, rank)
                word[0] = now()
                comm.Send(word, rank)
        return Estimate(0, 0)
    turn = comm.Irecv(word, 0)
    while not turn.Test():
        time.sleep(TURN_S)
    sent, served, received = [], [], []
    for _ in range(rounds):
        sent.append(now())
        comm.Send(word, 0)
        comm.Recv(word, 0)
        received.append(now())
        served.append(int(word[0]))
    return estimate(sent, served, received)
