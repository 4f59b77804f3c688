"""A rank: sums arrays with MPI_Allreduce. Arguments: elements, repetitions.

Rank 0 prints, as JSON, the host of each rank and how many ranks share memory with it.
"""

import json
import socket
import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
elements, repetitions = map(int, sys.argv[1:])
node = comm.Split_type(MPI.COMM_TYPE_SHARED)

total = np.empty(elements)
for repetition in range(repetitions):
    comm.Allreduce(np.full(elements, 2.0**comm.rank + repetition), total)
    assert (total == 2**comm.size - 1 + comm.size * repetition).all()

places = comm.gather((socket.gethostname(), node.size))
if comm.rank == 0:
    print(json.dumps(places))
