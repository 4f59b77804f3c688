"""Stragglers and faults on purpose: delays by rank and step, processes stopped and killed.

    imbalance = wagma.inject.parse("paper:2:0.3", size=comm.size, seed=1)
    while coll.version < steps:
        local_update(x)
        imbalance.inject(comm.rank, coll.version)  # sleeps, if this rank is drawn at this step
        coll.allreduce(x)

The draws depend on seed and step and on nothing else. So they are the same on every rank and in
every run, and each rank can ask for those of the others: ``imbalance.delays(step)``.
"""

from __future__ import annotations

from wagma.inject.draws import (
    Delays,
    DropCompute,
    Exponential,
    Heterogeneous,
    Lognormal,
    Normal,
    OneServer,
    Paper,
)
from wagma.inject.faults import Fault, Kill, Stop
from wagma.inject.injector import Injector, parse
from wagma.inject.processes import resume, suspend
from wagma.inject.text import forms
from wagma.inject.trace import Trace

__all__ = [
    "Delays",
    "DropCompute",
    "Exponential",
    "Fault",
    "Heterogeneous",
    "Injector",
    "Kill",
    "Lognormal",
    "Normal",
    "OneServer",
    "Paper",
    "Stop",
    "Trace",
    "forms",
    "parse",
    "resume",
    "suspend",
]
