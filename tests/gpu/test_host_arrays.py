"""Machines that have a GPU: arrays of the host that are pinned for it, and what the doctor says."""

import pytest
from launched import OnGpus
from simulated import GPU

from wagma.doctor import software

pytestmark = [pytest.mark.launch, pytest.mark.without_mpi]

if not GPU:
    pytest.skip("no NVIDIA GPU", allow_module_level=True)
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("PyTorch cannot use the GPU", allow_module_level=True)


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
    with OnGpus(3, script, environment={"WAGMA_CMA": read}) as ranks:
        direct = set(ranks.outputs())
    assert len(direct) == 1, "all ranks decide alike how arrays pass"
    if read == "0" or quorum != "'all'":
        assert direct == {"0"}


def test_the_doctor_counts_gpus() -> None:
    gpu = software.gpu()
    assert gpu.driver
    assert gpu.error == gpu.device_error == ""
    assert gpu.device
    assert (gpu.devices, gpu.torch_cuda) == (torch.cuda.device_count(), True)
