"""Arrays on GPUs, which are simulated: work is done late there, and in drawn orders."""

import gc
import random
from collections.abc import Iterator
from typing import Any, Literal

import delivered
import numpy as np
import pytest
import torch
import versioned
from from_host import FromHost
from mpi4py import MPI
from refusals import error_everywhere
from simulated_gpu import (
    LIBRARY,
    STREAM,
    Array,
    Stream,
    allocations,
    bits_of,
    fail,
    read,
    trouble,
    write,
)

from wagma.collectives import (
    DeviceArray,
    DeviceError,
    GroupAllreduce,
    HandleError,
    MajorityAllreduce,
    MismatchError,
    NeighborExchange,
    PartialAllreduce,
    QuorumAllreduce,
    SoloAllreduce,
    SyncAllreduce,
)

pytestmark = pytest.mark.mpi


@pytest.fixture(autouse=True, params=["direct", "staged"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """No work overtakes what it has to wait for, or uses memory that is not there any more."""
    if request.param == "direct" and request.config.getoption("--transport") == "mpi":
        pytest.skip("messages carry host memory")
    monkeypatch.setenv("WAGMA_DEVICE_LIBRARY", str(LIBRARY))
    monkeypatch.setenv("WAGMA_MEMORY", request.param)
    yield request.param
    assert trouble() is None


def uneven(rng: random.Random) -> float:
    return rng.choice((0.0, 0.0, 0.0, 0.0005, 0.003))


def contribution(rank: int, count: int, dtype: str) -> Any:
    """Numbers whose sums depend on the order; bfloat16 as a tensor."""
    rng = np.random.default_rng((rank, count))
    if dtype.startswith("int"):
        return rng.integers(-1000, 1000, count).astype(dtype)
    values = rng.standard_normal(count)
    return torch.from_numpy(values).bfloat16() if dtype == "bfloat16" else values.astype(dtype)


# ---- results -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "int64"])
@pytest.mark.parametrize("group_size", [None, 2])
def test_bits_are_those_of_the_host(comm: MPI.Intracomm, dtype: str, group_size: Any) -> None:
    parts = (900_001,) if dtype == "float32" else ()  # which are copied while the call goes on
    for count in (0, 1, 1001, *parts):
        options: dict[str, Any] = {
            "group_size": None if group_size is None else min(group_size, comm.size),
            "average": not dtype.startswith("int"),
        }
        x, y = contribution(comm.rank, count, dtype), Array(contribution(comm.rank, count, dtype))
        with (
            PartialAllreduce(comm, x, **options) as host,
            PartialAllreduce(comm, y, **options) as device,
        ):
            for version in range(4):
                weight = 1.0 + (comm.rank + version) % 2
                expected, outcome = host.allreduce(x, weight), device.allreduce(y, weight)
                assert bits_of(x).tobytes() == y.get().tobytes(), (count, version)
                assert outcome.weight == expected.weight
                assert outcome.contributors == expected.contributors


@pytest.mark.parametrize("missed", ["once", "fast-forward"])
def test_groups_that_do_not_wait(comm: MPI.Intracomm, missed: Any) -> None:
    plan = versioned.Plan(
        comm.size,
        max(1, comm.size // 2),
        quorum=1,
        sync_period=10,
        window=10,
        fast_forward=missed == "fast-forward",
    )
    x = plan.contribution(comm.rank, -1)
    y = Array(x)
    with GroupAllreduce(
        comm, y, group_size=plan.group_size, sync_period=10, average=False, grace=0, missed=missed
    ) as coll:
        log = versioned.run(plan, comm.rank, FromHost(coll, y, read), x, 30, delay=uneven)
    logs = comm.gather(log)
    if logs is not None:
        seen = versioned.check(plan, logs)
        assert seen["calls"] > 0


@pytest.mark.parametrize("late", ["skip", "carry"])
@pytest.mark.parametrize("quorum", ["1", "k", "majority", "all"])
def test_every_result_reaches_every_rank(comm: MPI.Intracomm, late: Any, quorum: str) -> None:
    k = {"1": 1, "k": max(1, comm.size - 1), "majority": 1, "all": comm.size}[quorum]
    plan = delivered.Plan(comm.size, late, quorum=k, steps=20)
    y = Array(np.zeros(plan.count, np.float32))
    coll: PartialAllreduce
    if quorum == "majority":
        coll = MajorityAllreduce(comm, y, late=late, average=False, grace=0, seed=11)
    elif quorum == "1":
        coll = SoloAllreduce(comm, y, late=late, average=False, grace=0)
    else:
        coll = QuorumAllreduce(comm, y, k, late=late, average=False, grace=0)
    with coll:
        log = delivered.run(plan, comm.rank, FromHost(coll, y, read), delay=uneven)
    logs = comm.gather(log)
    if logs is not None:
        delivered.check(plan, logs)


def test_posted_calls(comm: MPI.Intracomm) -> None:
    """The one that polls makes progress as well as the one that waits."""
    y = Array(np.zeros(1001, np.float32))
    with SyncAllreduce(comm, y) as coll:
        for version in range(6):
            y.set(np.full(1001, comm.rank + version, np.float32))
            request = coll.iallreduce(y)
            outcome = None
            while (comm.rank + version) % 2 and outcome is None:
                outcome = request.test()
            outcome = outcome or request.wait()
            assert outcome.contributors == tuple(range(comm.size))
            assert (y.get() == (comm.size - 1) / 2 + version).all()


def test_each_call_follows_the_stream_of_its_array(comm: MPI.Intracomm) -> None:
    x, y = (Array(np.zeros(501, np.float32), Stream()) for _ in range(2))
    with SyncAllreduce(comm, x, average=False) as coll:
        for version in range(10):
            used = y if version % 3 == 1 else x
            used.set(np.full(501, comm.rank + version, np.float32))
            coll.allreduce(used)
            expected = sum(rank + version for rank in range(comm.size))
            assert (used.get() == expected).all()


# ---- memory of the engine ------------------------------------------------------------------------


@pytest.mark.mpi(min_size=2)  # alone a rank may have none, see next_contribution()
def test_contributions_and_results_without_a_copy(comm: MPI.Intracomm) -> None:
    y = Array(np.zeros((3, 5), np.float32))
    with PartialAllreduce(comm, y, quorum=1, average=False, grace=30.0) as coll:
        for version in range(4):
            buffer = coll.next_contribution()
            assert isinstance(buffer, DeviceArray)
            assert (buffer.shape, buffer.dtype, buffer.gpu) == ((3, 5), "float32", 0)
            assert coll.next_contribution() is buffer
            write(buffer, np.full((3, 5), comm.rank + version))
            comm.Barrier()
            outcome = coll.allreduce(buffer)
            assert outcome.result is not None
            if not outcome.late:
                expected = sum(
                    r + v for r, v in zip(outcome.contributors, outcome.versions, strict=True)
                )
                assert (read(outcome.result) == expected).all()
            with pytest.raises(ValueError, match="earlier call published"):
                coll.allreduce(buffer)
            with pytest.raises(ValueError, match=r"read-only|published"):
                coll.allreduce(outcome.result)
        coll.sync(y)
    with pytest.raises(HandleError, match="not fetched in time"):
        outcome.result  # noqa: B018


@pytest.mark.mpi(min_size=2)  # alone a rank may have none, see next_contribution()
def test_other_libraries_take_them(comm: MPI.Intracomm) -> None:
    """By DLPack and by the CUDA array interface, which say whether they may be written."""
    y = Array(contribution(0, 7, "bfloat16"))
    with SoloAllreduce(comm, y, average=False) as coll:
        buffer = coll.next_contribution()
        assert buffer.__dlpack_device__() == (2, 0)
        shown = buffer.__cuda_array_interface__
        assert shown["typestr"] == "<u2"
        assert shown["data"][1] is False
        capsule = buffer.__dlpack__(stream=STREAM.handle)
        assert '"dltensor"' in repr(capsule)
        taken = torch.from_dlpack(_OnCPU(buffer, {"stream": -1}))
        assert (taken.dtype, taken.shape) == (torch.bfloat16, (7,))
        assert taken.data_ptr() == shown["data"][0]
        with pytest.raises(ValueError, match="stream=0 is ambiguous"):
            buffer.__dlpack__(stream=0)
        with pytest.raises(BufferError, match="copy=True"):
            buffer.__dlpack__(stream=-1, copy=True)
        write(buffer, np.zeros(7, np.uint16))
        (result, *_) = coll.allreduce(buffer).results
        assert result.__cuda_array_interface__["data"][1] is True
        with pytest.raises(BufferError, match=r"cupy\.asarray"):
            result.__dlpack__(stream=-1)
        assert '"dltensor_versioned"' in repr(result.__dlpack__(stream=-1, max_version=(1, 0)))
        other = Stream()
        result.__dlpack__(stream=other.handle, max_version=(1, 3))
    assert taken.data_ptr() == shown["data"][0]


@pytest.mark.mpi(min_size=2)  # alone a rank may have none, see next_contribution()
def test_a_contribution_buffer_outlives_its_collective(comm: MPI.Intracomm) -> None:
    y = Array(np.zeros(7, np.float32))
    with SoloAllreduce(comm, y, average=False) as coll:
        buffer = coll.next_contribution()
        write(buffer, np.arange(7))
    del coll
    gc.collect()
    assert (read(buffer) == np.arange(7)).all()


# ---- errors --------------------------------------------------------------------------------------


@pytest.mark.mpi(min_size=2)
def test_host_and_gpu_are_not_mixed(comm: MPI.Intracomm) -> None:
    x = np.zeros(3, np.float32)
    like = Array(x) if comm.rank == 0 else x
    text = error_everywhere(comm, lambda: SyncAllreduce(comm, like), MismatchError)
    assert text.startswith("memory of like differs between ranks: 'GPU' on rank 0; 'host' on rank")


def test_direct_memory_is_refused_where_it_cannot_be(
    comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WAGMA_MEMORY")
    y = Array(np.zeros(3, np.float32))
    for make in (
        lambda: NeighborExchange(comm, y, memory="direct"),
        lambda: SyncAllreduce(comm, y, transport="mpi", memory="direct"),
    ):
        text = error_everywhere(comm, make, ValueError)
        assert "memory='direct'" in text
        assert "leave memory (WAGMA_MEMORY) at 'auto'" in text


@pytest.mark.parametrize("graph", ["ring", "exponential"])
def test_neighbours_average_as_on_the_host(
    comm: MPI.Intracomm, graph: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAGMA_MEMORY", "auto")
    for dtype, count in (("float32", 0), ("float64", 1001), ("bfloat16", 3001)):
        x = contribution(comm.rank, count, dtype)
        y = Array(contribution(comm.rank, count, dtype))
        with (
            NeighborExchange(comm, x, graph=graph) as host,
            NeighborExchange(comm, y, graph=graph) as device,
        ):
            assert device.memory == "staged"
            assert "memory='staged'" in repr(device)
            for version in range(6):
                weight = float((comm.rank + version) % 3)
                expected, outcome = host.exchange(x, weight), device.exchange(y, weight)
                assert bits_of(x).tobytes() == y.get().tobytes(), (dtype, version)
                assert outcome.weight == expected.weight
                assert outcome.merged == expected.merged


@pytest.mark.mpi(min_size=2)
@pytest.mark.shm("GPUs of several nodes are not asked")
@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("open", "rank {}'s GPU does not reach that of rank {}"),
        # In containers and on virtual GPUs, where the driver refuses CUDA IPC.
        ("export", "rank {}'s GPU shares no memory (device 0"),
    ],
)
def test_gpus_that_do_not_reach_each_other(
    comm: MPI.Intracomm,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    call: Literal["open", "export"],
    why: str,
) -> None:
    """All ranks take staged memory, of which one line tells; or none, where direct is wanted."""
    monkeypatch.delenv("WAGMA_MEMORY")
    y = Array(np.zeros(3, np.float32))
    with SyncAllreduce(comm, y) as coll:
        assert coll.memory == "direct"
    if comm.rank == comm.size - 1:
        fail(call)
    with SyncAllreduce(comm, y, average=False, name="model") as coll:
        assert coll.memory == "staged"
        y.set(np.ones(3, np.float32))
        coll.allreduce(y)
        assert (y.get() == comm.size).all()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (comm.rank == 0)
    assert all(why.format(comm.size - 1, 0) in one for one in said)
    assert all(one.startswith("model: arrays are copied through host memory") for one in said)
    if comm.rank == 0:
        fail(call)
    text = error_everywhere(comm, lambda: SyncAllreduce(comm, y, memory="direct"), ValueError)
    assert why.format(0, 1) in text


def test_a_gpu_that_is_full(comm: MPI.Intracomm, memory: str) -> None:
    """All ranks are told, and nothing is left: the next creation finds the memory."""
    y = Array(np.ones(3, np.float32))
    gc.collect()
    arrays = allocations()
    for nth in range(1, 4) if memory == "direct" else ():
        if comm.rank == comm.size - 1:
            fail("alloc", nth)
        text = error_everywhere(comm, lambda: SyncAllreduce(comm, y), MemoryError)
        fail("alloc", 0)
        assert "device" in text
        assert nth == 1 or "could not make 5 arrays of 12 bytes on its device" in text
        gc.collect()
        assert allocations() == arrays
    with SyncAllreduce(comm, y) as coll:
        coll.allreduce(y)
    assert (y.get() == 1).all()


def test_a_library_that_is_missing(comm: MPI.Intracomm, monkeypatch: pytest.MonkeyPatch) -> None:
    y = Array(np.zeros(3, np.float32))
    if comm.rank == 0:
        monkeypatch.setenv("WAGMA_DEVICE_LIBRARY", "/nowhere/libnone.so")
    text = error_everywhere(comm, lambda: SyncAllreduce(comm, y), DeviceError)
    assert "/nowhere/libnone.so" in text


def test_wrong_arrays_leave_the_handle_usable(comm: MPI.Intracomm) -> None:
    x = np.zeros((2, 3), np.float32)
    y = Array(x)
    strided, elsewhere = Array(x), Array(x, Stream(1))
    strided.changed = {"strides": (4, 8)}
    with SyncAllreduce(comm, y) as coll:
        for wrong, kind, message in (
            (x, TypeError, "made for arrays on GPU 0, the array is in host memory: copy it to GPU"),
            (elsewhere, TypeError, "on GPU 0, the array is on GPU 1: copy it to GPU 0"),
            (torch.zeros(2, 3), TypeError, "the array is in host memory"),
            (strided, ValueError, "not C-contiguous"),
            (Array(np.zeros(6, np.float32)), ValueError, r"shape \(2, 3\)"),
            (Array(np.zeros((2, 3))), TypeError, "float64"),
        ):
            for call in (coll.allreduce, coll.sync, coll.iallreduce):
                with pytest.raises(kind, match=message):
                    call(wrong)
        with pytest.raises(ValueError, match=r"no array to reduce in place.*empty_like"):
            coll.empty()
        assert coll.version == 0
        coll.allreduce(y)


def test_what_it_says_of_itself(comm: MPI.Intracomm, memory: str) -> None:
    y = Array(np.zeros(3, np.float32))
    with SyncAllreduce(comm, y) as coll:
        assert coll.device is not None
        assert f"device={coll.device!r}, memory={memory!r}" in repr(coll)
        assert coll.memory == memory
        assert (coll.stats().device, coll.stats().memory) == (coll.device, memory)
        coll.close(sync=True)
        assert coll.stats().device == coll.device


class _OnCPU:
    """Shows an array of a simulated GPU, which is in host memory, as one of the CPU."""

    def __init__(self, array: DeviceArray, options: dict[str, Any]) -> None:
        self._array = array
        self._options = options

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: Any) -> Any:
        from wagma.collectives import arrays

        capsule = self._array.__dlpack__(**self._options)
        pointer = arrays._capsule_pointer(capsule, b"dltensor")
        arrays._DLTensor.from_address(pointer).device_type = 1
        return capsule
