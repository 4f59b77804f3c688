"""Trainings whose models are on GPUs; ranks share one GPU where there is one."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest
from documents import ROOT, blocks
from launched import OnGpus
from simulated import ENVIRONMENT, GPU, MOST, TORCH, without_torch
from under_mpiexec import CLEAN, launcher

# A simulated GPU needs a core to itself: ranks that spin beside it stretch seconds to minutes.
pytestmark = [pytest.mark.launch, pytest.mark.without_mpi, pytest.mark.alone]

if why := without_torch():
    pytest.skip(why, allow_module_level=True)

SIMULATED = {} if GPU else ENVIRONMENT
SETUP = f"""{TORCH}
import io, warnings
import torch, wagma
torch.set_num_threads(1)
torch.cuda.set_device(rank % torch.cuda.device_count())
torch.manual_seed(0)
inputs = torch.randn(1024, 20, device="cuda")
labels = (inputs @ torch.randn(20, device="cuda") > 0).long()
torch.manual_seed(1 + rank)

def built():
    return torch.nn.Sequential(
        torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)
    ).cuda()

model = built()
inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

def loss(model=model, inputs=inputs):
    batch = torch.randint(len(inputs), (64,), device="cuda")
    return torch.nn.functional.cross_entropy(model(inputs[batch]), labels[batch])

def train(opt, steps=100, loss=loss):
    while opt.version < steps:
        if not opt.pending:
            opt.zero_grad()
            loss().backward()
        opt.step()

def one_model(model=model, inputs=inputs, least=0.9):
    accuracy = (model(inputs).argmax(1) == labels).float().mean().item()
    assert accuracy > least, accuracy
    assert all(one.is_cuda for one in model.parameters())
    flat = torch.cat([one.detach().flatten().float() for one in model.parameters()]).cpu()
    with SyncAllreduce(None, flat) as coll:
        mean = flat.clone()
        coll.allreduce(mean)
    torch.testing.assert_close(mean, flat, rtol=1e-6, atol=1e-7)
"""

ALGORITHMS = (
    "WAGMA(None, sync_period=10)",
    "ADPSGD(None)",
    "AllreduceSGD(None)",
    "AllreduceSGD(None, bucket_bytes=512)",
    "Auto(None, review_period=32)",
    "Cannikin(None, (64, 256), epoch_steps=20, bucket_bytes=512)",
    "EagerSGD(None)",
    "KSync(None, 1)",
    "KAsync(None, 1)",
    "FastestK(None, 1)",
    "LocalSGD(None, sync_period=5)",
    "DPSGD(None)",
    "SGP(None)",
    "DiLoCo(None, sync_period=5)",
)


def most(test: Callable[..., None]) -> Callable[..., None]:
    return MOST[0](test) if MOST else test


timed = pytest.mark.skipif(not GPU, reason="no NVIDIA GPU, and a simulated one takes no time")


def trained(script: str, size: int = 2, **environment: str) -> None:
    script = SETUP + script + "\nprint('trained')\n"
    with OnGpus(size, script, environment={**SIMULATED, **environment}) as ranks:
        assert ranks.outputs() == ["trained"] * size


@most
def test_algorithms_train_one_model() -> None:
    trained(f"""
for algorithm in {ALGORITHMS!r}:
    try:
        model = built()
        inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        made = eval("wagma." + algorithm)
        with wagma.DistributedOptimizer(inner, made, model=model) as opt:
            train(opt, loss=lambda: loss(model))
            opt.synchronize()
            opt.stats()
        one_model(model)
    except BaseException as error:
        error.add_note(algorithm)
        raise
""")


@pytest.mark.skipif(GPU, reason="the kernels of a true GPU have other bits")
def test_a_simulated_gpu_trains_to_the_bits_of_the_host() -> None:
    """What overtakes what it has to wait for changes them.

    Staged results are still to come when a call returns, others are there.
    """
    trained(
        """
images, answers = inputs, labels
for algorithm in (
    "AllreduceSGD(None)", "AllreduceSGD(None, bucket_bytes=512)",
    "LocalSGD(None, sync_period=5)", "DiLoCo(None, sync_period=5)", "DPSGD(None)",
):
    found = []
    for device in ("cuda", "cpu"):
        torch.manual_seed(rank)
        inputs, labels = images.to(device), answers.to(device)
        model = built().to(device)
        inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        made = eval("wagma." + algorithm)
        with wagma.DistributedOptimizer(inner, made, model=model) as opt:
            for _ in range(30):
                batch = torch.randint(len(inputs), (64,)).to(device)
                opt.zero_grad()
                torch.nn.functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
                opt.step()
            opt.synchronize()
        found.append(torch.cat([one.detach().cpu().flatten() for one in model.parameters()]))
    assert torch.equal(*found), algorithm
""",
        WAGMA_MEMORY="staged",
    )


@most
@pytest.mark.parametrize("algorithm", ["WAGMA(None, sync_period=10)", "AllreduceSGD(None)"])
def test_mixed_precision(algorithm: str) -> None:
    """A gradient that overflows on one rank is left out, or skips the step on all."""
    trained(f"""
scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)
with wagma.DistributedOptimizer(inner, wagma.{algorithm}, model=model) as opt:
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


@most
def test_clipped_averages_of_scaled_gradients() -> None:
    """An overflow of one rank is one of the average, which all skip."""
    trained("""
scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)
with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(None), model=model) as opt:
    while opt.version < 100:
        opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            value = loss()
        scaler.scale(value * (float("inf") if opt.version == 50 and rank == 1 else 1)).backward()
        opt.average_gradients(scaler)
        scaler.unscale_(opt)
        norm = opt.clip_grad_norm_(1.0)
        assert norm.is_cuda
        scaler.step(opt)
        scaler.update()
    assert opt.stats()["passive_steps"] == 1, opt.stats()
    opt.synchronize()
assert scaler.get_scale() == 2.0**9, scaler.get_scale()
one_model()
""")


@most
@pytest.mark.parametrize(
    ("dtype", "optimizer"),
    [
        ("float32", "SGD(parameters, momentum=0.9, lr=0.05)"),
        ("float32", "AdamW(parameters, foreach=True, lr=0.01)"),
        ("float32", "AdamW(parameters, fused=True, lr=0.01)"),
        ("float32", "AdamW(parameters, capturable=True, lr=0.01)"),
        ("bfloat16", "SGD(parameters, momentum=0.9, lr=0.05)"),
    ],
)
def test_models_and_optimizers(dtype: str, optimizer: str) -> None:
    """Buffers, memory formats, dtypes, groups, kernels of many tensors, compiled modules."""
    trained(f"""
images = torch.nn.functional.pad(inputs, (0, 5)).view(-1, 1, 5, 5)
images = images.contiguous(memory_format=torch.channels_last)
dtype = torch.{dtype}
for algorithm in (wagma.WAGMA(None, sync_period=10), wagma.AllreduceSGD(None)):
    model = torch.nn.Sequential(
        *(torch.nn.Conv2d(1, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU()),
        *(torch.nn.Conv2d(16, 16, 3), torch.nn.Flatten(), torch.nn.Linear(16, 2)),
    ).to("cuda", dtype, memory_format=torch.channels_last)
    seen = images.to(dtype)
    rest = {{"params": model[4:].parameters(), "lr": 0.02}}
    parameters = [{{"params": model[:4].parameters()}}, rest]
    inner = torch.optim.{optimizer}
    run = torch.compile(model, backend="aot_eager") if dtype == torch.float32 else model
    with wagma.DistributedOptimizer(inner, algorithm, model=model) as opt:
        train(opt, loss=lambda: loss(run, seen))
        assert model[3].weight.is_contiguous(memory_format=torch.channels_last)
        opt.synchronize(buffers=model.buffers())
    assert opt.version == 101
    model.eval()
    one_model(model, seen, least=0.75)
""")


@most
def test_checkpoints_move_between_gpu_and_host() -> None:
    trained("""
for algorithm in (
    "DiLoCo(None, 5, overlap=True)", "KAsync(None, 1)", "FastestK(None, 1)", "Cannikin(None, 128)"
):
    def made(device):
        model = built().to(device)
        inner = torch.optim.AdamW(model.parameters(), lr=0.01)
        made = eval("wagma." + algorithm)
        return model, wagma.DistributedOptimizer(inner, made, model=model)
    model, opt = made("cuda")
    with opt:
        train(opt, 23, lambda: loss(model))
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": opt.state_dict()}, file)
    for place, device in (("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")):
        file.seek(0)
        saved = torch.load(file, map_location=place, weights_only=True)
        model, opt = made(device)
        with opt:
            opt.load_state_dict(saved["optimizer"])
            model.load_state_dict(saved["model"])
            first = opt.version
            train(opt, first + 12, lambda: torch.nn.functional.cross_entropy(
                model(inputs.to(device)), labels.to(device)))
            opt.synchronize()
            for state in opt.state.values():
                assert state["exp_avg"].device.type == device
""")


@most
def test_a_step_reads_the_gpu_once() -> None:
    """Beside what waits for other ranks: which gradients there are, scales and stop requests."""
    trained("""
with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(None), model=model) as opt:
    train(opt, 5)
    opt.zero_grad()
    loss().backward()
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as waits:
        warnings.simplefilter("always")
        opt.step()
    torch.cuda.set_sync_debug_mode("default")
    assert len(waits) <= 1, [str(one.message) for one in waits]
""")


@most
def test_parameter_servers() -> None:
    """Over MPI, through pinned memory of the host."""
    pytest.importorskip("mpi4py")
    if shutil.which(launcher()[0]) is None:
        pytest.skip(f"there is no {launcher()[0]}")
    script = (
        "from mpi4py import MPI\nfrom wagma.collectives import SyncAllreduce\n"
        "rank = MPI.COMM_WORLD.rank\n"
        + SETUP.replace("SyncAllreduce(None", "SyncAllreduce(MPI.COMM_WORLD")
        + """
for method in ("k-sync", "k-batch-async"):
    algorithm = wagma.ParameterServerSGD(MPI.COMM_WORLD, method, k=2)
    model = built()
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with wagma.DistributedOptimizer(inner, algorithm, model=model) as opt:
        train(opt, loss=lambda: loss(model))
        opt.synchronize()
    one_model(model)
print("trained", flush=True)
"""
    )
    command = [*launcher(), "-n", "3", sys.executable, "-c", script]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, env=CLEAN | SIMULATED
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained") == 3, done.stderr


@timed
def test_dropcompute_times_the_work_of_the_gpu() -> None:
    """A micro-batch whose kernels take long ends the step, though its launch takes no time."""
    trained("""
loss().backward()  # the first takes long
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


@timed
def test_preempted_micro_batches_leave_no_trace() -> None:
    trained("""
loss().backward()  # the first takes long
policy = wagma.DropCompute(
    wagma.AllreduceSGD(None), micro_batches=4, threshold=0.05, preempt=True, correction="stochastic"
)
with wagma.DistributedOptimizer(inner, policy, model=model) as opt:
    while opt.version < 40:
        opt.zero_grad()
        for number in opt.micro_batches(range(4)):
            with opt.micro_batch():
                if rank == 1 and number == 2 and opt.version >= 20:
                    torch.cuda._sleep(400_000_000)
                    for _ in range(20):
                        model(inputs)
                loss().backward()
        opt.step()
    opt.synchronize()
    assert (opt.stats()["drop_rate"] > 0.2) == (rank == 1), opt.stats()
one_model()
""")


@most
def test_the_loops_of_the_documents() -> None:
    """As they stand, with a model and data on the GPU."""
    pages = ("training.md", "clipping.md", "parameters.md", "dropcompute.md")
    codes = [code for page in pages for code in blocks(page, "python") if "sklearn" not in code]
    assert len(codes) == 8
    trained(f"""
from torch.utils.data import DataLoader, TensorDataset
for code in {codes!r}:
    torch.manual_seed(0)  # one model everywhere: it is no block's subject
    data = torch.randn(64, 4, device="cuda")
    known = {{
        "comm": None, "rank": rank, "size": size,
        "loader": DataLoader(TensorDataset(data, data[:, :3].argmax(1)), batch_size=8),
        "loss_function": torch.nn.functional.cross_entropy,
        "model": torch.nn.Sequential(
            *(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU()),
            torch.nn.Linear(8, 3),
        ).cuda(),
    }}
    exec(code.replace('"cpu"', '"cuda"'), known)
    assert known["opt"].version >= 2
""")


@most
def test_the_example_of_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    (script,) = (one for one in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
                 if "WAGMA(" in one)  # fmt: skip
    moved = "inputs, labels = inputs.cuda(), labels.cuda()\nmodel = torch.nn.Sequential("
    script = script.replace("model = torch.nn.Sequential(", moved)
    script = script.replace("inner = ", "model.cuda()\ninner = ")
    script = TORCH + script.replace("WAGMA(", "WAGMA(None, ")
    with OnGpus(4, script, environment=SIMULATED) as ranks:
        found = [re.search(r"accuracy ([\d.]+)%", output) for output in ranks.outputs()]
    assert all(one is not None and float(one[1]) > 90 for one in found)
