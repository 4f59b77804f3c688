"""A handle that is lent to C code, such as the benchmarks' loop."""

import ctypes
import threading

import numpy as np
import pytest
import ranks

from wagma.benchmarks import native
from wagma.benchmarks._loop import run, wagma_call
from wagma.collectives import Handle, HandleError, Segment, _engine


def test_a_lent_handle_is_in_use(x: np.ndarray) -> None:
    with Handle(Segment.create({"size": 1, "count": 3}), 0) as handle:
        lent = handle.lend()
        assert lent.address == 0
        with lent:
            assert lent.address != 0
            refused: list[BaseException] = []

            def second() -> None:
                try:
                    handle.allreduce(x)
                except HandleError as error:
                    refused.append(error)

            thread = threading.Thread(target=second)
            thread.start()
            thread.join()
            assert "in use" in str(refused[0])
            with pytest.raises(HandleError, match="in use"), handle.lend():
                pass
            with pytest.raises(HandleError, match="in use"):
                handle.close()
        assert lent.address == 0
        assert handle.allreduce(x).version == 0


def test_c_code_calls_a_lent_handle(x: np.ndarray) -> None:
    allreduce = ctypes.CDLL(_engine.__file__).wagma_allreduce
    allreduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_double, ctypes.c_void_p]
    outcome = (ctypes.c_int64 * 32)()
    with Handle(Segment.create({"size": 1, "count": 3}), 0) as handle:
        with handle.lend() as lent:
            for version in range(3):
                assert allreduce(lent.address, x.ctypes.data, 1.0, outcome) == 0
                assert outcome[0] == version
            status = allreduce(lent.address, x.ctypes.data, -1.0, outcome)
            error = lent.error(status)
        assert isinstance(error, ValueError)
        assert "weight" in str(error)
        assert handle.allreduce(x).version == 3


def test_a_handle_that_is_busy_cannot_be_lent(x: np.ndarray) -> None:
    pair = ranks.pair(quorum=1)
    array = pair[0].next_contribution()
    with pytest.raises(HandleError, match="next_contribution"), pair[0].lend():
        pass
    array[...] = 0
    outcome = pair[0].allreduce(array)
    with pair[0].lend():
        pass
    with pytest.raises(HandleError, match="fetched in time"):
        _ = outcome.result
    request = pair[1].iallreduce(x)
    with pytest.raises(HandleError, match="is pending"), pair[1].lend():
        pass
    request.wait()
    for handle in pair:
        handle.close()
    with pytest.raises(HandleError, match="closed"), pair[0].lend():
        pass


def test_a_lent_handle_can_be_failed() -> None:
    handle = Handle(Segment.create({"size": 1, "count": 3}), 0)
    with handle.lend() as lent:
        handle.fail()
        assert lent.address != 0, "the C code may be in a call"
    handle.fail()
    assert handle.closed


def test_wagma_calls_have_their_functions_by_address(x: np.ndarray) -> None:
    with Handle(Segment.create({"size": 1, "count": 3}), 0) as handle:
        path = _engine.__file__
        call = wagma_call(
            handle,
            weight=-1.0,
            allreduce=native.address(path, "wagma_allreduce"),
            next_contribution=native.address(path, "wagma_next_contribution"),
        )
        times = np.zeros(1, np.int64)
        with pytest.raises(ValueError, match="weight"):
            run(None, call, x.ctypes.data, np.zeros((1, 12), np.uint8), times, times, times)
