"""Times allreduce: wagma's beside MPI's, gloo's and NCCL's, also when ranks do not arrive together.

The kind `training` compares algorithms that train with it, `heterogeneous` divisions of the batch
among ranks of different speeds.

    mpiexec -n 4 python -m wagma bench allreduce
    mpiexec -n 4 python -m wagma bench group-allreduce --arrival one-late:1ms -z --baseline mpi

The output is that of OSU Micro-Benchmarks 7, unless --format says otherwise, and so are the most
usual options. docs/benchmarks.md says how each figure comes about.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from wagma.cli import Ended
from wagma.launch.agreement import refuse as refuse
from wagma.launch.together import on_world

from . import arguments as options
from .heterogeneous import command as heterogeneous
from .kinds import KINDS
from .table import command as table
from .training import command as training

if TYPE_CHECKING:
    from mpi4py import MPI

SUMMARY = "measure allreduce and trainings, under mpiexec or srun"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the kinds of benchmarks to the command's parser."""
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", required=True)
    for kind, one in KINDS.items():
        sub = kinds.add_parser(kind, help=one.summary, description=f"{one.summary}.")
        options.add_arguments(sub, kind)
        sub.set_defaults(run=run, parser=sub)
    for kind, module in (
        ("training", training),
        ("heterogeneous", heterogeneous),
        ("table", table),
    ):
        sub = kinds.add_parser(kind, help=module.SUMMARY, description=module.__doc__)
        module.add_arguments(sub)
        sub.set_defaults(run=module.run, parser=sub)


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Run a benchmark on the ranks of COMM_WORLD; return the exit status."""
    try:
        settings = options.settings(arguments, parser)
    except Ended as end:
        refuse(end.said)
        raise

    def measure(comm: MPI.Intracomm) -> int:
        from .runner import run_on

        return run_on(comm, settings)

    return on_world(parser, measure)
