"""torch.distributed's gloo and NCCL, without a default process group."""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from wagma.launch.packages import missing

from ..contributions import Vector
from ..gpus import Inputs, TorchGpu
from .partial import tensor
from .subject import OnGpu, Summed, UnavailableError

if TYPE_CHECKING:
    from mpi4py import MPI

PATIENCE = timedelta(minutes=5)  # of a collective: no rank is delayed for so long


def check_library(library: str) -> None:
    """Check that "gloo" or "nccl" is available.

    Raises:
        UnavailableError: it is not.
    """
    if said := missing("torch"):
        raise UnavailableError(f"baseline {library}: {said}, or leave it out of --baseline")
    import torch
    import torch.distributed as dist

    available = dist.is_available() and (
        dist.is_nccl_available() if library == "nccl" else dist.is_gloo_available()
    )
    if library == "nccl" and not torch.cuda.is_available():
        raise UnavailableError(
            "baseline nccl: torch sees no GPU; leave nccl out of --baseline, or see "
            "torch.cuda.is_available()"
        )
    if not available:
        raise UnavailableError(
            f"baseline {library}: this torch was built without it; leave {library} out of "
            "--baseline, or install another build"
        )


def store(comm: MPI.Intracomm) -> Any:
    """Return where torch's ranks find each other, on a free port of rank 0's host; collective."""
    import torch.distributed

    distributed: Any = torch.distributed  # its types leave out what is in C

    hosts = comm.allgather(socket.gethostname())
    host = "127.0.0.1" if len(set(hosts)) == 1 else hosts[0]
    made = None
    if comm.Get_rank() == 0:
        made = distributed.TCPStore(
            host, 0, is_master=True, wait_for_workers=False, timeout=PATIENCE
        )
    port = comm.bcast(made.port if made is not None else None)
    return made or distributed.TCPStore(host, port, is_master=False, timeout=PATIENCE)


class Gloo(Summed):
    """gloo's allreduce of a CPU tensor, in place; collective."""

    library = "gloo"

    def __init__(self, comm: MPI.Intracomm, x: Vector, datatype: str) -> None:
        super().__init__("gloo in-place", x, range(comm.Get_size()))
        import torch.distributed

        distributed: Any = torch.distributed
        self._tensors = [tensor(x, datatype)]
        self._group: Any = distributed.ProcessGroupGloo(
            store(comm), comm.Get_rank(), comm.Get_size(), timeout=PATIENCE
        )

    def caller(self) -> Callable[[], Any]:
        """See `Subject`."""
        return self._reduce

    def _reduce(self) -> None:
        self._group.allreduce(self._tensors).wait()

    def close(self) -> None:
        """See `Subject`."""
        self._group = None


class Nccl(OnGpu):
    """NCCL's allreduce in place of a tensor on this rank's GPU, until it is done; collective.

    Args:
        comm: its ranks, which have a GPU each.
        inputs: what writes tensors on the GPU.
        first: elements of the tensor at first.
        validate: whether results are compared.
    """

    library = "nccl"

    def __init__(
        self, comm: MPI.Intracomm, inputs: Inputs, first: Vector, *, validate: bool
    ) -> None:
        super().__init__("nccl in-place", inputs, first, range(comm.Get_size()), validate=validate)
        import torch.distributed

        distributed: Any = torch.distributed
        rank, size = comm.Get_rank(), comm.Get_size()
        self._group: Any = distributed.ProcessGroupNCCL(store(comm), rank, size, PATIENCE)

    def caller(self) -> Callable[[], Any]:
        """See `Subject`."""
        return self._reduce

    def _reduce(self) -> None:
        self._group.allreduce([self.x]).wait()
        self.inputs.gpu.finish()

    def close(self) -> None:
        """See `Subject`."""
        self._group = None


def shared_gpus(comm: MPI.Intracomm) -> str | None:
    """Return why NCCL cannot be measured: ranks share a GPU; None: it can; collective."""
    import torch

    gpu = TorchGpu(comm.Get_rank()).index
    own = (socket.gethostname(), str(torch.cuda.get_device_properties(gpu).uuid))
    gpus = len(set(comm.allgather(own)))
    if gpus == comm.Get_size():
        return None
    return f"NCCL needs a GPU per rank: {comm.Get_size()} ranks share {gpus}; it is not measured"
