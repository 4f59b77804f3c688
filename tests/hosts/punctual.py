"""A rank that calls a version at every tick of a clock; the last rank calls `lateness` later.

The argument is JSON: `options` of PartialAllreduce, `steps`, and in seconds `tick` and `lateness`.
Rank 0 prints, as JSON, of each rank: how many seconds half of its calls took at most, and in how
many versions it was late.
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
took = []
late = 0
with PartialAllreduce(comm, x, average=False, **settings["options"]) as coll:
    start = comm.bcast(time.time() + 0.2)  # the date is the same on all hosts of a machine
    for step in range(settings["steps"]):
        due = start + step * settings["tick"]
        if comm.rank == comm.size - 1:
            due += settings["lateness"]
        time.sleep(max(0.0, due - time.time()))
        x[:] = 2.0**comm.rank
        began = time.monotonic()
        late += coll.allreduce(x).late
        took.append(time.monotonic() - began)
    x[:] = 2.0**comm.rank
    coll.sync(x)
assert (x == 2**comm.size - 1).all()

everybody = comm.gather((statistics.median(took), late))
if comm.rank == 0:
    print(json.dumps(everybody))
