"""WAGMA on real ranks beside an independent model of it that replays the order of arrivals.

Its groups are its own only for a power of two of ranks; those of others are wagma's, which the
tests of the topology check.
"""

import numpy as np
import pytest
from tiny import COMM, RANK, SIZE
from wagma_run import expected, train

pytestmark = pytest.mark.mpi


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("grace", [0.0, pytest.param("auto", marks=pytest.mark.long)])
def test_wagma_is_the_model(grace: float | str) -> None:
    group_size = max(2, SIZE // 2)  # of three ranks one is alone, another one at each version
    record, models = train(COMM, RANK, group_size, grace)
    replayed = expected(COMM.allgather(record), group_size)[RANK]
    np.testing.assert_allclose(models, replayed, rtol=1e-12, atol=1e-12)
