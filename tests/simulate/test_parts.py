"""Parts of the simulation alone: grace by the engine's, models by Algorithm 2's example."""

import ctypes
import inspect
import subprocess
from pathlib import Path

import numpy as np
import pytest

import wagma
from wagma.collectives import GroupAllreduce, QuorumAllreduce, SoloAllreduce
from wagma.simulate import method
from wagma.simulate.grace import Grace
from wagma.simulate.quadratic import Models

ROOT = Path(__file__).resolve().parents[2]


def test_grace_is_the_engines(tmp_path: Path) -> None:
    """Compile csrc/engine/grace.c, and give both the same times, in nanoseconds."""
    library = tmp_path / "grace.so"
    source = ROOT / "csrc/engine/grace.c"
    command = ["cc", "-std=gnu11", "-shared", "-fPIC", f"-I{ROOT}/csrc", source, "-lm", "-o"]
    subprocess.run([*command, library], check=True)
    engine = ctypes.CDLL(str(library))
    engine.grace_auto.restype = ctypes.c_uint64
    # struct grace_samples has less than 128 words.
    spreads, computes = (ctypes.c_uint64 * 128)(), (ctypes.c_uint64 * 128)()
    rng = np.random.default_rng(1)
    grace, ranks = Grace("auto", 2), np.array([1])
    values: set[float] = set()
    for _ in range(200):
        expected = engine.grace_auto(spreads, computes)
        values.add(expected)
        assert grace.of(ranks) == pytest.approx(1e-9 * expected)
        spread, compute = int(rng.exponential(5e6)), int(rng.exponential(1.2e8))
        engine.grace_add(spreads, ctypes.c_uint64(spread))
        engine.grace_add(computes, ctypes.c_uint64(compute))
        grace.arrived(ranks, np.array([1e-9 * spread]))
        grace.computed(ranks, np.array([1e-9 * compute]))
    assert len(values) > 20
    assert grace.of(np.array([0])) == 200e-6, "each rank has its own"
    calm, short = Grace("auto", 1), (ctypes.c_uint64 * 128)()
    for _ in range(5):
        engine.grace_add(short, ctypes.c_uint64(1000))
        calm.arrived(np.array([0]), np.array([1e-6]))
        calm.computed(np.array([0]), np.array([1.0]))
    assert calm.of(np.array([0])) == pytest.approx(1e-9 * engine.grace_auto(short, computes))


def test_models_are_those_of_the_paper() -> None:
    """P=4, S=2: rank 1 is late with 17 in its send buffer, groups {0,1} and {2,3}."""
    models = Models(4, 2, np.random.default_rng(0))
    models._models[:] = np.array([[11.0], [22.0], [33.0], [44.0]])
    models._published[:, :] = models._models
    models._published[0, 1] = 17.0
    models.average(1, np.array([[0, 1], [2, 3]]), np.array([0, 1, 0, 0]))
    expected = np.array([14.0, 50 / 3, 77 / 2, 77 / 2])
    assert models._models == pytest.approx(np.tile(expected[:, np.newaxis], (1, 8)))
    models.synchronise()
    assert models._models == pytest.approx(expected.mean())


def test_defaults_are_the_librarys() -> None:
    x = np.zeros(3)
    handles = {
        "wagma": GroupAllreduce("auto", x, group_size=1, sync_period=10),
        "wagma-nosync": GroupAllreduce("auto", x, group_size=1),
        "eager-solo": SoloAllreduce("auto", x),
        "ksync1": QuorumAllreduce("auto", x, k=1),
    }
    for name, handle in handles.items():
        with handle:
            made = method(name)
            assert made.default_window(1) == handle.options.window, name
            assert made.quorum == handle.options.quorum, name
    for algorithm, name in (
        (wagma.WAGMA, "wagma"),
        (wagma.LocalSGD, "local10"),
        (wagma.SGP, "sgp1"),
        (wagma.ADPSGD, "adpsgd"),
        (wagma.DropCompute, "dropcompute"),
    ):
        known = vars(method(name))
        for option, given in inspect.signature(algorithm).parameters.items():
            if option in ("sync_period", "neighbors", "grace", "missed", "activation", "threshold"):
                assert known[option] == given.default, (name, option)
