"""torch.distributed's gloo and NCCL, without a default process group."""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from wagma.launch.packages import missing

from ..contributions import Vector
from .partial import tensor
from .subject import Delivered, Summed, UnavailableError

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
        super().__init__(f"{self.library} in-place", x, range(comm.Get_size()))
        self._host = tensor(x, datatype)
        self._tensors = [self._reduced(comm)]
        self._group: Any = self._made_group(store(comm), comm.Get_rank(), comm.Get_size())

    def _reduced(self, comm: MPI.Intracomm) -> Any:  # noqa: ARG002
        """Return the tensor that the library reduces."""
        return self._host

    def _made_group(self, store: Any, rank: int, size: int) -> Any:
        import torch.distributed

        distributed: Any = torch.distributed
        return distributed.ProcessGroupGloo(store, rank, size, timeout=PATIENCE)

    def caller(self) -> Callable[[], Any]:
        """See `Subject`."""
        return self._reduce

    def _reduce(self) -> None:
        self._group.allreduce(self._tensors).wait()

    def close(self) -> None:
        """See `Subject`."""
        self._group = None


class Nccl(Gloo):
    """NCCL's allreduce of a tensor on this rank's GPU, until it is done; collective.

    The array is copied to the GPU before the call and back for the check, outside the timed part.
    """

    library = "nccl"

    def _reduced(self, comm: MPI.Intracomm) -> Any:
        import torch
        from mpi4py import MPI

        node = comm.Split_type(MPI.COMM_TYPE_SHARED)
        device = torch.device("cuda", node.Get_rank() % torch.cuda.device_count())
        node.Free()
        torch.cuda.set_device(device)
        self._synchronize = torch.cuda.synchronize
        return torch.empty_like(self._host, device=device)

    def _made_group(self, store: Any, rank: int, size: int) -> Any:
        import torch.distributed

        distributed: Any = torch.distributed
        return distributed.ProcessGroupNCCL(store, rank, size, PATIENCE)

    def ready(self) -> None:
        """See `Subject`."""
        self._tensors[0].copy_(self._host)
        self._synchronize()

    def _reduce(self) -> None:
        super()._reduce()
        self._synchronize()

    def delivered(self, outcome: Any) -> Delivered:
        """See `Subject`."""
        self._host.copy_(self._tensors[0])
        return super().delivered(outcome)
