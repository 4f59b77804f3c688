"""Fixtures for tests of collectives."""

import os
from collections.abc import Iterator

import numpy as np
import pytest


@pytest.fixture
def x() -> np.ndarray:
    """An array for `ranks.pair`."""
    return np.ones(3, np.float32)


@pytest.fixture(autouse=True)
def arrays_on_gpus(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """With --arrays gpu the module's collectives have arrays on GPUs, which may be simulated."""
    if request.config.getoption("--arrays") == "host":
        yield
        return
    if (marker := request.node.get_closest_marker("host_arrays")) is not None:
        pytest.skip(f"needs arrays of the host: {marker.args[0]}")
    from from_host import on_gpu

    from wagma.collectives import PartialAllreduce

    if "WAGMA_TEST_GPUS" in os.environ:  # tests/gpu/run.sh has seen one
        import cupy

        array, read, trouble = cupy.asarray, lambda one: cupy.asarray(one).get(), lambda: None
    else:
        import simulated_gpu

        monkeypatch.setenv("WAGMA_DEVICE_LIBRARY", str(simulated_gpu.LIBRARY))
        array, read, trouble = simulated_gpu.Array, simulated_gpu.read, simulated_gpu.trouble
    for name, kind in vars(request.module).copy().items():
        if isinstance(kind, type) and issubclass(kind, PartialAllreduce):
            monkeypatch.setattr(request.module, name, on_gpu(kind, array, read))
    yield
    assert trouble() is None
