"""WAGMA on real ranks beside an independent model of it that replays the order of arrivals.

The ranks of a power of two: the model's groups are those of the paper's Algorithm 1.
"""

import numpy as np
import pytest
from tiny import COMM, RANK, SIZE
from wagma_run import expected, train


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("grace", [0.0, "auto"])
def test_wagma_is_the_model(grace: float | str) -> None:
    size = 1 << (SIZE.bit_length() - 1)
    among = size > RANK
    comm = COMM.Split(among)
    if among:
        group_size = max(2, size // 2)
        record, models = train(comm, RANK, group_size, grace)
        replayed = expected(comm.allgather(record), group_size)[RANK]
        np.testing.assert_allclose(models, replayed, rtol=1e-12, atol=1e-12)
    comm.Free()
