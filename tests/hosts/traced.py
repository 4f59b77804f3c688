"""Ranks that write timelines into the folder given as argument, and take a sync version last.

Rank 0 prints, as JSON, the number of that version, and for each rank the date before and after its
call of it, in ns since 1970. All hosts of a machine have one date.
"""

import json
import os
import sys
import time

os.environ["WAGMA_TRACE"] = sys.argv[1]  # launchers may not pass it on to other hosts

import numpy as np
from mpi4py import MPI

from wagma.collectives import PartialAllreduce

comm = MPI.COMM_WORLD
x = np.full(1000, 2.0**comm.rank, np.float32)
with PartialAllreduce(comm, x, quorum=1, average=False, name="traced") as coll:
    for _ in range(3):
        coll.allreduce(x)
    x[:] = 2.0**comm.rank
    version = coll.version
    before = time.time_ns()
    coll.sync(x)
    after = time.time_ns()
assert (x == 2**comm.size - 1).all()

dates = comm.gather((before, after))
if comm.rank == 0:
    print(json.dumps({"version": version, "dates": dates}))
