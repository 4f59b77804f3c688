"""Trainings whose models are on GPUs; ranks share one GPU where there is one."""

import re
from pathlib import Path

import pytest
from documents import ROOT
from launched import Launched

pytestmark = [pytest.mark.launch, pytest.mark.without_mpi]

if not Path("/dev/nvidiactl").exists():
    pytest.skip("no NVIDIA GPU", allow_module_level=True)
torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("PyTorch cannot use the GPU", allow_module_level=True)

SETUP = """
import torch, wagma
torch.set_num_threads(1)
torch.cuda.set_device(rank % torch.cuda.device_count())
torch.manual_seed(0)
inputs = torch.randn(1024, 20, device="cuda")
labels = (inputs @ torch.randn(20, device="cuda") > 0).long()
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)).cuda()
inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
torch.manual_seed(1 + rank)

def loss():
    batch = torch.randint(len(inputs), (64,), device="cuda")
    return torch.nn.functional.cross_entropy(model(inputs[batch]), labels[batch])

def one_model():
    accuracy = (model(inputs).argmax(1) == labels).float().mean().item()
    assert accuracy > 0.9, accuracy
    flat = torch.cat([one.detach().flatten() for one in model.parameters()]).cpu()
    with SyncAllreduce(None, flat) as coll:
        mean = flat.clone()
        coll.allreduce(mean)
    torch.testing.assert_close(mean, flat, rtol=1e-6, atol=1e-7)
    print("trained")
"""

ALGORITHMS = {
    "WAGMA": "wagma.WAGMA(None, sync_period=10)",
    "ADPSGD": "wagma.ADPSGD(None)",
    "AllreduceSGD": "wagma.AllreduceSGD(None)",
    "buckets": "wagma.AllreduceSGD(None, bucket_bytes=512)",
    "EagerSGD": "wagma.EagerSGD(None)",
    "KSync": "wagma.KSync(None, 1)",
    "LocalSGD": "wagma.LocalSGD(None, sync_period=5)",
    "DPSGD": "wagma.DPSGD(None)",
    "SGP": "wagma.SGP(None)",
    "DiLoCo": "wagma.DiLoCo(None, sync_period=5)",
}


def trained(script: str, size: int = 2) -> None:
    with Launched(size, SETUP + script) as ranks:
        assert ranks.outputs() == ["trained"] * size


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms_train_one_model(algorithm: str) -> None:
    trained(f"""
with wagma.DistributedOptimizer(inner, {ALGORITHMS[algorithm]}, model=model) as opt:
    while opt.version < 100:
        opt.zero_grad()
        loss().backward()
        opt.step()
    opt.synchronize()
    assert all(one.is_cuda for one in model.parameters())
one_model()
""")


@pytest.mark.parametrize("algorithm", ["WAGMA", "AllreduceSGD"])
def test_mixed_precision(algorithm: str) -> None:
    """A gradient that overflows on one rank is left out, or skips the step on all."""
    trained(f"""
scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)
with wagma.DistributedOptimizer(inner, {ALGORITHMS[algorithm]}, model=model) as opt:
    while opt.version < 100:
        opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            value = loss()
        scaler.scale(value * (float("inf") if opt.version == 50 and rank == 1 else 1)).backward()
        scaler.step(opt)
        scaler.update()
    opt.synchronize()
assert (scaler.get_scale() < 2.0**10) == (rank == 1), scaler.get_scale()
one_model()
""")


@pytest.mark.parametrize("options", ["foreach=True", "fused=True"])
def test_optimizers_of_many_tensors(options: str) -> None:
    trained(f"""
inner = torch.optim.AdamW(model.parameters(), lr=0.01, {options})
with wagma.DistributedOptimizer(inner, wagma.WAGMA(None, sync_period=10), model=model) as opt:
    while opt.version < 100:
        opt.zero_grad()
        loss().backward()
        opt.step()
    opt.synchronize()
one_model()
""")


def test_dropcompute_times_the_work_of_the_gpu() -> None:
    """A micro-batch whose kernels take long ends the step, though its launch takes no time."""
    trained("""
policy = wagma.DropCompute(wagma.AllreduceSGD(None), micro_batches=4, threshold=0.05)
with wagma.DistributedOptimizer(inner, policy, model=model) as opt:
    while opt.version < 40:
        opt.zero_grad()
        for number in opt.micro_batches(range(4)):
            loss().backward()
            if rank == 1 and number == 1 and opt.version >= 20:
                torch.cuda._sleep(400_000_000)
        opt.step()
    opt.synchronize()
    assert (opt.stats()["drop_rate"] > 0.1) == (rank == 1), opt.stats()
one_model()
""")


def test_algorithms_of_the_host_refuse_the_gpu() -> None:
    with Launched(
        2,
        SETUP
        + """
class OnHost(wagma.DPSGD):
    on_gpus = False
attempt(lambda: wagma.DistributedOptimizer(inner, OnHost(None), model=model))
""",
    ) as ranks:
        for output in ranks.outputs():
            assert "OnHost with parameters on cuda" in output
            assert "model.cpu()" in output


def test_the_example_of_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    (script,) = (one for one in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
                 if "WAGMA(" in one)  # fmt: skip
    moved = "inputs, labels = inputs.cuda(), labels.cuda()\nmodel = torch.nn.Sequential("
    script = script.replace("model = torch.nn.Sequential(", moved)
    script = script.replace("inner = ", "model.cuda()\ninner = ")
    with Launched(4, script.replace("WAGMA(", "WAGMA(None, ")) as ranks:
        found = [re.search(r"accuracy ([\d.]+)%", output) for output in ranks.outputs()]
    assert all(one is not None and float(one[1]) > 90 for one in found)
