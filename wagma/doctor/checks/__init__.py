"""Checks: functions from the facts of a job to findings. They touch nothing else.

Each yields at least one finding about what it looks at, unless that is not there at all.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from wagma.doctor.checks.cores import cores, threads
from wagma.doctor.checks.launch import launch, messages, mpi, nodes, trial
from wagma.doctor.checks.memory import clock, cma, huge_pages, shared_memory
from wagma.doctor.checks.software import engine, environment, gpus, probes, versions
from wagma.doctor.facts import Facts, Finding

__all__ = ["CHECKS", "examine"]

CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    mpi,
    launch,
    nodes,
    messages,
    engine,
    versions,
    environment,
    cores,
    threads,
    shared_memory,
    huge_pages,
    cma,
    clock,
    gpus,
    probes,
    trial,
)


def examine(facts: Facts) -> list[Finding]:
    """Return the findings of all checks in order; findings equal on several nodes appear once."""
    merged: dict[Finding, list[str]] = {}
    for check in CHECKS:
        for finding in check(facts):
            merged.setdefault(replace(finding, hosts=()), []).extend(finding.hosts)
    return [
        replace(finding, hosts=tuple(dict.fromkeys(hosts))) for finding, hosts in merged.items()
    ]
