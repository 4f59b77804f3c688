import json
import os
import subprocess
import sys
from array import array
from pathlib import Path

import launched
import numpy as np
import pytest

from wagma.cli import main
from wagma.profile import ProfileError, TrainingProfile, load, save
from wagma.profile.merging import merge, pack

RANKS, STEPS = 4, 40


def record(host: str, rows: array, **calls: array) -> dict[str, object]:
    """Return what a rank recorded, without backward passes."""
    packed = {name: pack(calls.get(name, array("d"))) for name in ("calls", "gaps", "passes")}
    described = {"hook_seconds": 0.0, "model_bytes": 0, "method": None}
    return {"host": host, "rows": pack(rows), **packed, **described}


def profile(slow: dict[str, tuple[int, float]], **changed: object) -> TrainingProfile:
    """Return a synchronous training: `slow` has ranks with longer parts, and by how much."""
    random = np.random.default_rng(0)
    parts = {
        "input": 0.001 + 0.0001 * random.random((RANKS, STEPS)),
        "compute": 0.010 + 0.0001 * random.random((RANKS, STEPS)),
        "communication": 0.002 + 0.0001 * random.random((RANKS, STEPS)),
    }
    for part, (rank, more) in slow.items():
        parts[part][rank] += more
    own = sum(parts.values())
    values: dict[str, object] = {
        **parts,
        "wait": own.max(axis=0) - own,
        "hosts": ("a", "a", "b", "b"),
        "micro_batches": parts["compute"][:, :, None] * [0.5, 0.5],
        "model_bytes": 4096,
        "communication_sizes": {4096: (RANKS * STEPS, float(parts["communication"].sum()))},
        "method": "AllreduceSGD",
        "hook_seconds": np.full(RANKS, 1e-4),
    }
    return TrainingProfile(**{**values, **changed})


def test_a_profile_is_read_as_it_was_written(tmp_path):
    written = profile({})
    save(written, tmp_path / "profile.json")
    read = load(tmp_path / "profile.json")
    for name in ("input", "compute", "communication", "wait", "micro_batches", "hook_seconds"):
        np.testing.assert_allclose(getattr(read, name), getattr(written, name), atol=1e-7)
    assert (read.ranks, read.steps, read.hosts) == (RANKS, STEPS, ("a", "a", "b", "b"))
    assert (read.model_bytes, read.method) == (4096, "AllreduceSGD")
    assert read.communication_sizes[4096] == pytest.approx((160, 0.328), rel=0.01)


@pytest.mark.parametrize("cause", ["input", "compute", "communication"])
def test_slow_rank_and_cause_are_named(cause):
    found = profile({cause: (2, 0.005)}).diagnosis()
    assert (found.slow_rank, found.cause) == (2, cause)
    assert found.seconds == pytest.approx(0.005, rel=0.05)
    assert "Rank 2 on b" in found.words and cause in found.words


def test_equal_ranks_are_not_blamed():
    found = profile({}).diagnosis()
    assert (found.slow_rank, found.cause) == (None, None)


def test_a_rank_that_is_slow_once_is_not_blamed():
    once = np.zeros((RANKS, STEPS))
    once[1, 7] = 2.0
    found = profile({}, compute=0.01 + once).diagnosis()
    assert (found.slow_rank, found.cause) == (None, "compute")
    assert found.seconds == pytest.approx(2.0 * (1 - 1 / RANKS) / STEPS, rel=0.1)


def test_few_steps_name_the_number_needed(tmp_path, capsys):
    few = {
        name: getattr(profile({}), name)[:, :9]
        for name in ("input", "compute", "communication", "wait", "micro_batches")
    }
    save(profile({}, **few), tmp_path / "profile.json")
    with pytest.raises(SystemExit):
        main(["profile", str(tmp_path / "profile.json")])
    printed = capsys.readouterr()
    assert "9 steps, too few" in printed.err and "record 10 or more" in printed.err
    assert "compute" in printed.out  # the table is of use all the same


def test_command_prints_ranks_and_diagnosis(tmp_path, capsys):
    save(profile({"input": (3, 0.02)}), tmp_path / "profile.json")
    assert main(["profile", str(tmp_path / "profile.json")]) == 0
    printed = capsys.readouterr().out
    assert "4 ranks, 40 steps, AllreduceSGD, a model of 4 KiB" in printed
    assert "160 collectives of 4 KiB" in printed
    assert "Recording took at most 0.0% of a rank's time: 2.50 us per step." in printed
    assert "Rank 3 on b is slow" in printed
    assert main(["profile", str(tmp_path / "profile.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cause"] == "input"


def _edit(**fields: object) -> object:
    return lambda content: {**content, **fields}


def _longer(content: dict) -> dict:
    return {**content, "compute": [*content["compute"][:-1], [*content["compute"][-1], 0.1]]}


def _infinite(content: dict) -> dict:
    content["wait"][2][5] = float("inf")
    return content


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_edit(format="other"), "is no profile"),
        (_edit(version=7), "has version 7, and this wagma reads version 1: record"),
        (_longer, "compute has 40 steps of rank 0 and 41 of rank 3"),
        (_infinite, "wait[2, 5] is inf"),
        (_edit(input=[[0.0] * 40] * 3), "input has shape (3, 40); it has to be (4, 40)"),
        (_edit(compute="fast"), "compute holds something else than numbers"),
        (_edit(micro_batches=[[0.0] * 40] * 4), "micro_batches has shape (4, 40)"),
        (_edit(hosts=[]), "0 ranks"),
        (_edit(hosts=None), "hosts is no list"),
        (_edit(wait=None), "wait is null"),
        (_edit(model_bytes=-1), "model_bytes is -1"),
        (_edit(communication_sizes={"a": 3}), "communication_sizes has to be"),
        (
            _edit(communication_sizes={"8": [3, float("nan")]}),
            "communication_sizes has 8: [3, nan]",
        ),
        (_edit(communication_sizes={"8": [-3, 1.0]}), "communication_sizes has 8: [-3, 1.0]"),
    ],
)
def test_wrong_content_is_named(tmp_path, change, said):
    path = tmp_path / "profile.json"
    save(profile({}), path)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(ProfileError) as error:
        load(path)
    assert said in str(error.value) and str(path) in str(error.value)


def test_text_that_is_no_json_names_the_line(tmp_path, capsys):
    path = tmp_path / "profile.json"
    save(profile({}), path)
    path.write_text(path.read_text().replace('"hosts":', '"hosts"'))
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if '"hosts"' in text)
    with pytest.raises(ProfileError, match=f"profile.json:{line}: is no JSON"):
        load(path)
    with pytest.raises(SystemExit):
        main(["profile", os.fspath(path)])
    assert "is no JSON" in capsys.readouterr().err


def test_a_missing_file_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["profile", str(Path(tmp_path, "none.json"))])
    assert "none.json cannot be read" in capsys.readouterr().err


def test_loops_without_torch_are_recorded(tmp_path):
    code = """
import sys, time
sys.modules["torch"] = None  # as if it were not installed
import wagma
with wagma.Profile("auto", "profile.json", warmup=1) as profile:
    for batch in profile.batches(range(4)):
        with profile.communication(800):
            time.sleep(0.002)
        profile.step()
found = wagma.profile.load("profile.json")
assert found.steps == 3 and found.micro_batches is None
assert found.communication.min() >= 0.002 and found.wait.max() == 0
assert found.communication_sizes[800][0] == 3 and found.model_bytes == 800
"""
    environment = launched.clean_environment()
    subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=60
    )


@pytest.mark.parametrize("kind", ["calls", "gaps"])
def test_waits_of_hosts_with_clocks_of_their_own_are_found(kind):
    """Rank 1 computes longer; the clock of its host is 1000 s behind."""
    steps, late = 20, 0.02
    records = []
    for rank, clock in enumerate((0.0, -1000.0)):
        rows, calls = array("d"), array("d")
        for step in range(steps):
            now = clock + step * 0.05
            arrived, returned = now + late * rank, now + late + 0.001
            rows.extend((0.05, 0.0, 0.0, 0.0, 0, 0))
            calls.extend((step, arrived, returned, 64))
        records.append(record(f"node{rank}", rows, **{kind: calls}))
    merged = merge(records)
    np.testing.assert_allclose(merged.wait, [[late] * steps, [0.0] * steps], atol=1e-9)
    np.testing.assert_allclose(merged.communication, 0.001, atol=1e-9)
    assert merged.communication_sizes == {64: (2 * steps, pytest.approx(2 * steps * 0.001))}
    assert merged.diagnosis().slow_rank == 1
    assert "No collective" not in merged.diagnosis().words


def test_ranks_that_make_their_steps_alone_wait_for_nobody():
    """Rank 1 has its gradients when rank 0 has made its step already."""
    rows, steps = array("d", (0.05, 0.0, 0.0, 0.0, 0, 0) * 20), np.arange(20)
    records = []
    for rank in (0, 1):
        arrived = 0.05 * steps + 0.02 * rank
        gaps = np.stack([steps, arrived, arrived + 0.001, np.full(20, 64)], axis=1)
        records.append(record("node", rows, gaps=array("d", gaps.ravel())))
    merged = merge(records)
    assert not merged.wait.any() and not merged.communication_sizes
    assert "No collective was recorded" in merged.diagnosis().words


@pytest.mark.parametrize("seed", range(5))
def test_delays_of_changing_ranks_blame_no_rank(seed):
    random = np.random.default_rng(seed)
    own = 0.001 + 0.05 * (random.random((RANKS, 60)) < 0.25)
    parts = {"compute": own, "wait": own.max(axis=0) - own}
    none = {"input": np.zeros(own.shape), "communication": np.zeros(own.shape)}
    found = profile({}, **parts, **none, micro_batches=None).diagnosis()
    assert (found.slow_rank, found.cause) == (None, "compute")
