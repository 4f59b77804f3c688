"""PyTorch's DistributedDataParallel over gloo, beside which wagma's algorithms are shown."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch.distributed as dist
from mpi4py import MPI
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from wagma.launch.ranks import meet

from ..subjects.torch import PATIENCE, store


class Together:
    """Let all ranks stop before the same step: DDP's ranks cannot leave one by one.

    `stopped` tells whether this rank is to stop. The answers of a step are gathered while it is
    computed, and count in the next one.
    """

    def __init__(self, comm: MPI.Intracomm, stopped: Callable[[], bool]) -> None:
        self._comm = comm
        self._stopped = stopped
        self._own, self._any = np.zeros((2, 1), np.int32)
        self._asked = MPI.REQUEST_NULL

    def now(self) -> bool:
        """Return whether any rank was to stop one step before."""
        self.close()
        if self._any[0]:
            return True
        self._own[0] = self._stopped()
        self._asked = self._comm.Iallreduce(self._own, self._any, MPI.MAX)
        return False

    def close(self) -> None:
        """Wait for the answers; collective."""
        self._asked.Wait()


class _Padded(nn.Module):
    """A model, and parameters that it does not use: DDP reduces those of the module it is given."""

    def __init__(self, model: nn.Module, padding: Sequence[nn.Parameter]) -> None:
        super().__init__()
        self.model = model
        self.padding = nn.ParameterList(padding)

    def forward(self, *inputs: Any) -> Any:
        """Return what the model does."""
        return self.model(*inputs)


@contextmanager
def wrapped(
    comm: MPI.Intracomm, model: nn.Module, padding: Sequence[nn.Parameter]
) -> Iterator[nn.Module]:
    """Wrap `model` for the block, in which its gradients become averages; collective.

    Its parameters stay where they are. Buffers are each rank's own, as with wagma's algorithms.

    Args:
        comm: the ranks, of which gloo makes connections of its own.
        model: the same on all ranks.
        padding: parameters that are reduced as well, and have no gradient.

    Returns:
        As the block's value the module to call, and to use `no_sync` of.
    """
    module = _Padded(model, padding) if padding else model
    meeting = store(comm)
    dist.init_process_group(
        "gloo", store=meeting, rank=comm.rank, world_size=comm.size, timeout=PATIENCE
    )
    try:
        with warnings.catch_warnings():  # newer torch calls broadcast_buffers otherwise
            warnings.simplefilter("ignore", FutureWarning)
            calls = DistributedDataParallel(
                module, broadcast_buffers=False, find_unused_parameters=bool(padding)
            )
        try:
            yield calls
            meet(comm)  # the store is rank 0's
        finally:
            # Whatever releases the process group last joins its threads, and one of them may still
            # wait for the GIL to free what backward() gave it. The group's Python object joins
            # without the GIL. The reducer, which `calls` and its logger hold, would keep it.
            del calls.reducer, calls.logger
    finally:
        dist.destroy_process_group()
