"""A rank that calls a version at every tick of a clock; the last rank calls `lateness` later.

The argument is JSON: `options` of PartialAllreduce, `steps`, and in seconds `tick` and `lateness`.
Rank 0 prints, as JSON, of each rank: how many seconds half of its calls took at most, and in which
share of them it was late. Calls that a busy machine has kept from beginning at their time are none.
"""

import json
import statistics
import sys
import time

import numpy as np
from mpi4py import MPI

from wagma.collectives import PartialAllreduce

comm = MPI.COMM_WORLD
settings = json.loads(sys.argv[1])
x = np.zeros(1000, np.float32)
took, late = [], []
with PartialAllreduce(comm, x, average=False, **settings["options"]) as coll:
    start = comm.bcast(time.time() + 0.2)  # the date is the same on all hosts of a machine
    for step in range(settings["steps"]):
        due = start + step * settings["tick"]
        if comm.rank == comm.size - 1:
            due += settings["lateness"]
        time.sleep(max(0.0, due - time.time()))
        x[:] = 2.0**comm.rank
        in_time = time.time() - due < settings["lateness"] / 5
        began = time.monotonic()
        was_late = coll.allreduce(x).late
        if in_time:
            took.append(time.monotonic() - began)
            late.append(was_late)
    x[:] = 2.0**comm.rank
    coll.sync(x)
assert (x == 2**comm.size - 1).all()

everybody = comm.gather((statistics.median(took), statistics.mean(late)))
if comm.rank == 0:
    print(json.dumps(everybody))
