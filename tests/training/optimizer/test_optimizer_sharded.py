"""Parameters that FSDP has sharded are refused; a model that DDP has wrapped still trains."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

import wagma


@pytest.fixture(autouse=True)
def process_group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/ranks", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def refused(model: torch.nn.Module) -> None:
    algorithm = wagma.WAGMA(MPI.COMM_SELF)
    with pytest.raises(ValueError, match=r"parameter 0 is sharded by FSDP.*the unwrapped model"):
        wagma.DistributedOptimizer(torch.optim.SGD(model.parameters()), algorithm)


def test_fully_shard() -> None:
    model = torch.nn.Linear(2, 2)
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    refused(model)


@pytest.mark.parametrize("original", [False, True])
def test_fully_sharded_data_parallel(original: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one rank is not sharded
        model = FullyShardedDataParallel(
            torch.nn.Linear(2, 2), use_orig_params=original, device_id=torch.device("cpu")
        )
    refused(model)


def test_ddp_leaves_no_mark() -> None:
    model = torch.nn.Linear(2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
    inner = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(MPI.COMM_SELF)) as optimizer:
        before = model.weight.clone()
        wrapped(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        assert torch.allclose(model.weight, before - 0.1)
