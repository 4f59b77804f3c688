"""Machines that have a GPU: what lies in its memory, or is pinned for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launched import Launched

from wagma.collectives import Handle, Segment
from wagma.doctor import software

pytestmark = [pytest.mark.launch, pytest.mark.without_mpi]

if not Path("/dev/nvidiactl").exists():
    pytest.skip("no NVIDIA GPU", allow_module_level=True)
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("PyTorch cannot use the GPU", allow_module_level=True)

ON_GPU: dict[str, Callable[[], Any]] = {
    "torch": lambda: torch.ones(6, device="cuda"),
    "cupy": lambda: pytest.importorskip("cupy").ones(6, np.float32),
}


@pytest.mark.parametrize("library", ON_GPU)
def test_arrays_on_the_gpu_are_refused(library: str) -> None:
    """Before anything is published: the handle goes on."""
    x = ON_GPU[library]()
    segment = Segment.create({"size": 1, "count": 6})
    with Handle(segment, 0) as coll:
        with pytest.raises(TypeError, match="CPU memory only: copy it to the CPU first"):
            coll.allreduce(x)
        y = np.ones(6, np.float32)
        assert coll.allreduce(y).version == 0
        assert (y == 1).all()


def test_parameters_on_the_gpu_are_refused() -> None:
    script = """
        import torch, wagma
        model = torch.nn.Linear(3, 2).cuda()
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        attempt(lambda: wagma.DistributedOptimizer(inner, wagma.WAGMA(None)))
        """
    with Launched(2, script) as ranks:
        for output in ranks.outputs():
            assert "parameter 0 is on cuda:0" in output
            assert "model.cpu()" in output


@pytest.mark.parametrize("read", ["0", "1"])
@pytest.mark.parametrize("quorum", ["'all'", "1"])
def test_pinned_tensors_are_averaged(quorum: str, read: str) -> None:
    """Other processes may be unable to read what the driver has pinned; `read`: they may try."""
    script = f"""
        import torch
        count = 300_011
        pinned = torch.empty(count, pin_memory=True)
        pageable = torch.empty(count)
        assert pinned.is_pinned() and not pageable.is_pinned()
        with PartialAllreduce(None, pinned, quorum={quorum}, grace=60.0) as coll:
            for version in range(80):
                # ranks have one kind, the other, or each another
                y = pinned if (version // 2 + rank * (version % 2)) % 2 else pageable
                y.fill_(rank + version)
                coll.allreduce(y)
                expected = (size - 1) / 2 + version
                assert bool((y == expected).all()), (version, y[0], y[-1], expected)
            print(coll.stats().direct)
        """
    with Launched(3, script, environment={"WAGMA_CMA": read}) as ranks:
        direct = set(ranks.outputs())
    assert len(direct) == 1, "all ranks decide alike how arrays pass"
    if read == "0" or quorum != "'all'":
        assert direct == {"0"}


def test_the_doctor_counts_gpus() -> None:
    gpu = software.gpu()
    assert gpu.driver
    assert gpu.error == ""
    assert (gpu.devices, gpu.torch_cuda) == (torch.cuda.device_count(), True)
