"""Simulated trainings against the engine's own decisions, of 64 ranks under a virtual clock."""

import math
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from wagma.simulate import Method, groups, method, ordered
from wagma.simulate.costs import Costs
from wagma.theory.checks import Floats

ROOT = Path(__file__).resolve().parents[2]
RANKS, VERSIONS = 64, 200
CONTROL, EXCHANGE = 2e-6, 50e-6  # seconds of a control message, and of an exchange
WINDOW = 32
Fates = npt.NDArray[np.bool_]

SYNC = method("wagma", group_size=8, sync_period=10, window=WINDOW, grace=0.0)
METHODS = {
    "groups": SYNC,
    "groups-of-6": replace(SYNC, group_size=6),
    "all-in-one": replace(SYNC, group_size=RANKS),
    "quorum-4": replace(SYNC, quorum=4),
    "grace": replace(SYNC, grace=2e-3),
    "ordered-1": replace(method("eager-solo"), window=WINDOW, grace=0.0),
    "ordered-48": replace(method("ksync48"), window=WINDOW, grace=0.0),
    "ordered-drawn": replace(method("eager-majority"), window=WINDOW, grace=0.0),
    "groups-drawn": replace(SYNC, quorum="majority"),
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Method, Floats], Fates]:
    """Return what tells which calls are in time, (versions, P), by csrc/protocol/activation.c."""
    program = tmp_path_factory.mktemp("clock") / "clock"
    sources = [*ROOT.glob("csrc/protocol/activation*.c"), ROOT / "csrc/protocol/topology.c"]
    test = ROOT / "tests/engine/test_activation_clock.c"
    command = ["cc", "-std=gnu11", "-O1", f"-I{ROOT}/csrc", test, *sources, "-o", program]
    subprocess.run(command, check=True)

    def decide(of: Method, compute: Floats) -> Fates:
        size = of.group_size if of.kind == "groups" else RANKS
        quorum = -1 if of.quorum == "majority" else of.quorum
        flags = (int(of.kind == "ordered"), 0)
        times = np.rint(np.array([of.grace, CONTROL, EXCHANGE]) * 1e9).astype(int)
        head = (RANKS, size, quorum, of.sync_period or 0, WINDOW, *flags, *times, VERSIONS)
        numbers = [*map(int, head), *np.rint(compute.ravel() * 1e9).astype(int)]
        done = subprocess.run(
            [program, "-"],
            input=" ".join(map(str, numbers)),
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return np.array([[fate == "." for fate in line] for line in done.stdout.splitlines()])

    return decide


def simulated(of: Method, compute: Floats, monkeypatch: pytest.MonkeyPatch) -> Fates:
    """Return the same by `wagma.simulate`."""
    fresh = np.zeros(compute.shape, np.bool_)
    size = of.group_size if of.kind == "groups" else RANKS
    assert isinstance(size, int)
    tree = math.ceil(math.log2(size)) * CONTROL
    costs = Costs(
        world=EXCHANGE + tree, group=EXCHANGE + tree / 2, late=0.0, signal=CONTROL, group_size=size
    )
    kind = groups._Groups if of.kind == "groups" else ordered._Ordered
    pinned = kind._pinned

    def watched(self, version: int, calls: Floats, others):  # type: ignore[no-untyped-def]
        pin, heard = pinned(self, version, calls, others)
        fresh[version] = calls <= heard
        return pin, heard

    monkeypatch.setattr(kind, "_pinned", watched)
    more = (None,) if of.kind == "groups" else ()
    kind(of, compute, costs, 0, *more).play()
    if of.sync_period:
        fresh[of.sync_period - 1 :: of.sync_period] = True
    return fresh


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("delays", ["lognormal", "two ranks"])
def test_both_agree_on_who_is_late(
    name: str,
    delays: str,
    engine: Callable[[Method, Floats], Fates],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(5)
    compute = 0.01 + 0.001 * rng.random((VERSIONS, RANKS))
    if delays == "lognormal":
        compute = 0.01 * rng.lognormal(0, 0.3, compute.shape)
    else:
        compute += 0.03 * (rng.random(compute.shape) < 2 / RANKS)
    theirs = engine(METHODS[name], compute)
    ours = simulated(METHODS[name], compute, monkeypatch)
    assert (ours == theirs).mean() >= 0.99
    assert 0.01 < theirs.mean() < 0.99
