"""Fixtures for tests of collectives."""

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
    """With --arrays gpu the module's collectives have arrays on simulated GPUs."""
    if request.config.getoption("--arrays") == "host":
        yield
        return
    if (marker := request.node.get_closest_marker("host_arrays")) is not None:
        pytest.skip(f"needs arrays of the host: {marker.args[0]}")
    import simulated_gpu

    from wagma.collectives import PartialAllreduce

    monkeypatch.setenv("WAGMA_DEVICE_LIBRARY", str(simulated_gpu.LIBRARY))
    for name, kind in vars(request.module).copy().items():
        if isinstance(kind, type) and issubclass(kind, PartialAllreduce):
            monkeypatch.setattr(request.module, name, simulated_gpu.on_gpu(kind))
    yield
    assert simulated_gpu.trouble() is None
