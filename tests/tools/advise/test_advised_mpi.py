"""The lines of Python that are advised, executed."""

import pytest
import torch
from mpi4py import MPI
from profiles import delayed, profile_of

from wagma.advise.candidates import candidates
from wagma.simulate import Workload

pytestmark = [pytest.mark.mpi, pytest.mark.memory_only]


def test_advised_lines_train() -> None:
    comm = MPI.COMM_WORLD
    if comm.size < 2:
        pytest.skip("one rank is advised nothing")
    times = delayed(comm.size)
    times[0] *= 2  # for Cannikin
    for candidate in candidates(Workload.from_profile(profile_of(times, parts=4))):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        names = {"model": model, "optimizer": inner, "batch_size": 8}
        for line in candidate.code():
            exec(line, names)
        made = names["optimizer"]
        assert type(made).__name__ == "DistributedOptimizer", candidate.family
        made.close()
