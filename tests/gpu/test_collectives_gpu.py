"""Collectives of arrays on GPUs, of torch and CuPy: ranks share one GPU where there is one.

Without a GPU, the arrays are on simulated ones.
"""

import importlib.util

import pytest
from documents import blocks
from launched import OnGpus
from simulated import ENVIRONMENT, GPU, MOST, TORCH, without_torch

pytestmark = [pytest.mark.launch, pytest.mark.without_mpi]

SIMULATED = {} if GPU else ENVIRONMENT

FREE = "x.untyped_storage().resize_(0)" if GPU else "x.inner = torch.empty(0)"
LIBRARIES = {
    "torch": f"""
        {TORCH}
        import torch
        gpu = rank % torch.cuda.device_count()
        torch.cuda.set_device(gpu)
        def on_gpu(values):
            return torch.from_numpy(values).cuda()
        def on_host(x):
            return torch.from_dlpack(x).cpu().numpy()
        def free(x):
            {FREE}
        """,
    "cupy": """
        import cupy
        gpu = rank % cupy.cuda.runtime.getDeviceCount()
        cupy.cuda.Device(gpu).use()
        on_gpu, on_host = cupy.asarray, cupy.asnumpy
        """,
}


def without(name: str) -> str:
    """Why arrays of a library cannot be made here; empty: they can."""
    if name == "torch":
        return without_torch()
    if SIMULATED:
        return ""
    if importlib.util.find_spec(name) is None:
        return f"{name} is not installed"
    usable = importlib.import_module(name).cuda.is_available()
    return "" if usable else f"{name} cannot use the GPU"


@pytest.fixture(params=[pytest.param("torch", marks=MOST), "cupy"])
def library(request: pytest.FixtureRequest) -> str:
    """What makes arrays by a library."""
    if why := without(request.param):
        pytest.skip(why)
    return LIBRARIES[request.param]


@pytest.fixture
def of_torch() -> str:
    """What makes arrays of torch."""
    if why := without("torch"):
        pytest.skip(why)
    return LIBRARIES["torch"]


def everywhere(size: int, *scripts: str) -> None:
    """Each rank has to come to its end."""
    script = "\n".join([*map(dedented, scripts), "print('done')"])
    with OnGpus(size, script, environment=SIMULATED) as ranks:
        assert ranks.outputs() == ["done"] * size


def dedented(script: str) -> str:
    lines = script.splitlines()
    indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    return "\n".join(line[min(indents) :] for line in lines)


@pytest.mark.parametrize(
    "size", [pytest.param(1, marks=pytest.mark.long), 2, pytest.param(4, marks=pytest.mark.long)]
)
def test_bits_are_those_of_the_host(library: str, size: int) -> None:
    script = """
        for name in ("float32", "float64", "float16", "int32", "int64"):
            for count in (0, 1, 1001, 50_000):
                values = (np.random.default_rng(rank).standard_normal(count) * 100).astype(name)
                x, y = on_gpu(values), values.copy()
                average = name.startswith("float")
                with SyncAllreduce(None, x, average=average) as device:
                    with SyncAllreduce(None, y, average=average) as host:
                        for version in range(3):
                            device.allreduce(x, rank + 1)
                            host.allreduce(y, rank + 1)
                            assert on_host(x).tobytes() == y.tobytes(), (name, count, version)
        """
    everywhere(size, library, script)


def test_staged_arrays_have_the_bits_of_the_host(library: str) -> None:
    script = """
        for name in ("float32", "float64", "float16"):
            for count in (0, 1, 1001, 300_000):
                values = (np.random.default_rng(rank).standard_normal(count) * 100).astype(name)
                x, y = on_gpu(values), values.copy()
                with NeighborExchange(None, x) as device, NeighborExchange(None, y) as host:
                    assert device.memory == "staged"
                    for version in range(3):
                        device.exchange(x, rank + 1)
                        host.exchange(y, rank + 1)
                        assert on_host(x).tobytes() == y.tobytes(), (name, count, version)
                options = {"quorum": 1, "average": False, "grace": 30.0}
                with PartialAllreduce(None, x, memory="staged", **options) as device:
                    with PartialAllreduce(None, y, **options) as host:
                        device.allreduce(x)
                        host.allreduce(y)
                        assert on_host(x).tobytes() == y.tobytes(), (name, count)
        """
    everywhere(2, library, script)


@pytest.mark.long
def test_a_rank_that_sleeps_holds_up_nobody(library: str) -> None:
    """It comes when the others have made all their versions, and merges the newest.

    The quorum is the others: none of them is late, however slow one is.
    """
    script = """
        steps = 5
        x = on_gpu(np.full(1 << 18, rank, np.float32))
        with PartialAllreduce(None, x, quorum=size - 1, timeout=60) as coll:
            if rank == 0:
                together(size)
            while coll.version < steps:
                outcome = coll.allreduce(x)
                assert rank == 0 or not outcome.late
            if rank:
                together(size)
            late = coll.stats().late
            coll.sync(x)
            assert (late > 0) == (rank == 0), late
            assert len(set(on_host(x).tolist())) == 1
        """.replace("if rank == 0:\n                together(size)", SLEEP)
    everywhere(4, library, script)


SLEEP = """if rank == 0:
                folder = os.environ["TEST_FOLDER"]
                while len(os.listdir(folder)) < size - 1:
                    time.sleep(0.01)
                together(size)"""


def test_no_rank_waits_for_work_on_another_stream(of_torch: str) -> None:
    """What a stream produces late is averaged on it; the host does not wait."""
    script = """
        stream = torch.cuda.Stream()
        x = torch.zeros(1 << 20, device="cuda")
        torch.cuda.synchronize()
        with SyncAllreduce(None, x, average=False) as coll:
            for version in range(10):
                with torch.cuda.stream(stream if version % 2 else torch.cuda.current_stream()):
                    torch.cuda._sleep(20_000_000)
                    x.fill_(rank + version)
                    request = coll.iallreduce(x) if version % 3 else None
                    coll.allreduce(x) if request is None else request.wait()
                    y = x * 2
                    y.record_stream(torch.cuda.current_stream())
                    expected = 2 * sum(one + version for one in range(size))
                    assert bool((y == expected).all())
                torch.cuda.synchronize()
        """
    everywhere(2, of_torch, script)


def test_memory_of_the_engine_is_used_without_a_copy(library: str) -> None:
    script = """
        x = on_gpu(np.zeros((3, 5), np.float32))
        take = cupy.from_dlpack if "cupy" in globals() else torch.from_dlpack
        with GroupAllreduce(None, x, group_size=size, average=False, grace=30.0) as coll:
            for version in range(6):
                buffer = coll.next_contribution()
                y = take(buffer)
                assert y.shape == (3, 5)
                y[...] = rank + version
                outcome = coll.allreduce(y)
                expected = sum(one + version for one in range(size))
                assert outcome.late or (on_host(outcome.result) == expected).all()
        with SoloAllreduce(None, x, average=False, grace=30.0) as coll:
            for version in range(6):
                x[...] = rank + version
                outcome = coll.allreduce(x)
                assert (on_host(outcome.results[-1]) == on_host(x)).all()
        """
    everywhere(2, library, script)


@pytest.mark.parametrize("buffer", [pytest.param("torch-cuda", marks=MOST), "cupy"])
def test_arrays_of_benchmarks(buffer: str) -> None:
    if why := without(buffer.removesuffix("-cuda")):
        pytest.skip(why)
    script = f"""
        from wagma.benchmarks.gpus import GPUS
        gpu = GPUS["{buffer}"](rank)
        assert gpu.facts()["arrays"] == "{buffer}"
        values, found = np.arange(7, dtype=np.float32), np.empty(7, np.float32)
        x, y = gpu.array(values), gpu.array(np.zeros(7, np.float32))
        gpu.copy(y, x)
        gpu.to_host(found, y)
        assert (found == values).all()
        pinned = gpu.pinned(values)
        pinned[:] = 2 * values
        gpu.to_gpu(x, pinned)
        with SyncAllreduce(None, x, average=False) as coll:
            coll.allreduce(x)
            gpu.copy(gpu.taken(coll.next_contribution()), x)
            gpu.finish()
            outcome = coll.allreduce(coll.next_contribution())
            gpu.to_host(found, gpu.taken(outcome.result))
        assert (found == size * size * 2 * values).all()
        """
    everywhere(2, TORCH if buffer == "torch-cuda" else "", script)


def test_errors_name_the_array_and_the_remedy(of_torch: str) -> None:
    script = """
        x, y = torch.zeros(4, device="cuda"), np.zeros(4, np.float32)
        def refused(make, kind, *words):
            try:
                make()
            except kind as error:
                assert all(word in str(error) for word in words), error
            else:
                raise AssertionError(words)
        refused(lambda: SyncAllreduce(None, x if rank else y), MismatchError, "memory of like")
        refused(lambda: NeighborExchange(None, x, memory="direct"), ValueError, "WAGMA_MEMORY")
        with SyncAllreduce(None, x) as coll:
            refused(lambda: coll.allreduce(y), TypeError, "in host memory: copy it to GPU")
            refused(lambda: coll.allreduce(x[::2]), ValueError, "C-contiguous")
            refused(lambda: coll.empty(), ValueError, "empty_like")
            coll.allreduce(x)
            freed = torch.zeros(4, device="cuda")
            free(freed)
            refused(lambda: coll.allreduce(freed), ValueError, "no memory")
            request, old = coll.iallreduce(x), x.data
            x.data = torch.zeros(4, device="cuda")
            refused(request.wait, HandleError, "version 1", "other memory")
            x.data = old
            request.wait()
            assert coll.device in repr(coll)
        """
    everywhere(2, of_torch, script)


@pytest.mark.long
def test_the_example_of_the_page(of_torch: str) -> None:  # noqa: ARG001, it makes its own
    (script,) = blocks("gpu.md", "python")
    with OnGpus(4, TORCH + script, environment=SIMULATED) as ranks:
        assert len({output.split()[-1] for output in ranks.outputs()}) == 1


@pytest.mark.long
def test_the_example_of_the_readme(of_torch: str) -> None:  # noqa: ARG001, it makes its own
    (script,) = (one for one in blocks("../README.md", "python") if "GroupAllreduce(" in one)
    for host, gpu in (
        ("from mpi4py import MPI\n", "import torch\n"),
        ("MPI.COMM_WORLD,", "None,"),
        (
            "np.full(1_000_000, MPI.COMM_WORLD.rank, np.float32)",
            "torch.full((1_000_000,), float(rank)).cuda()",
        ),
        ("{x[0]}", "{x[0].item()}"),
    ):
        assert host in script
        script = script.replace(host, gpu)
    with OnGpus(4, TORCH + script, environment=SIMULATED) as ranks:
        outputs = ranks.outputs()
    groups = sorted(line.split("\n") for line in outputs)
    assert groups == [["group 0.5", "all 1.5"]] * 2 + [["group 2.5", "all 1.5"]] * 2
