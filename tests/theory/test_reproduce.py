"""Figures of papers, made again: the command, and the simulations behind the pictures."""

import io
import json
import math
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from scipy import stats

from wagma.cli import Ended, main
from wagma.reproduce import command, dropcompute, fastest_k, ksync
from wagma.reproduce.picture import Numbers, Picture, plain, png
from wagma.theory.dropcompute import delays
from wagma.theory.fastest_k import FastestKRun
from wagma.theory.ksync import Simulation, update_time


def compute(rng: np.random.Generator, quick: bool) -> Numbers:
    return {"x": rng.uniform(size=2), "most": math.inf, "quick": quick}


def draw(figure: Figure, numbers: Numbers) -> None:
    figure.subplots().plot(numbers["x"])


@pytest.fixture
def method(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A method beside DropCompute: a module, and a line of METHODS."""
    module = ModuleType("wagma.reproduce.other")
    pictures = tuple(Picture(name, "A title", (3, 2), compute, draw) for name in ("a", "b"))
    module.PICTURES = pictures  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(command.METHODS, "other", "a figure of another paper")
    return module


@pytest.mark.usefixtures("method")
def test_a_method_is_a_module_and_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for folder, seed in (("new/1", "1"), ("2", "1"), ("3", "2")):
        out = tmp_path / folder
        assert main(["reproduce", "other", "--out", str(out), "--seed", seed, "--quick"]) == 0
        assert capsys.readouterr().out == f"{out}/other.json, 2 pictures in {out}\n"
        assert sorted(file.name for file in out.iterdir()) == ["a.png", "b.png", "other.json"]
        runs.append({file.name: file.read_bytes() for file in out.iterdir()})
    assert runs[0] == runs[1], "the seed decides"
    assert all(runs[0][name] != runs[2][name] for name in runs[0])
    document = json.loads(runs[0]["other.json"])
    figures = document.pop("figures")
    expected = {"method": "other", "wagma": version("wagma"), "seed": 1, "quick": True}
    assert document == expected
    assert figures["a"]["x"] != figures["b"]["x"], "each figure has draws of its own"
    assert figures["a"]["most"] is None
    assert figures["a"]["quick"] is True


def test_claims_are_printed(
    method: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def claims(figures: dict[str, Numbers]) -> list[tuple[str, str, str]]:
        return [("x grows", "yes", f"{figures['a']['x'][0]:g}")]

    method.CLAIMS = claims  # type: ignore[attr-defined]
    assert main(["reproduce", "other", "--out", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "other.json").read_text())
    here = f"{document['figures']['a']['x'][0]:g}"
    assert document["claims"] == [{"claim": "x grows", "paper": "yes", "here": here}]
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "| claim | paper | here |",
        "| --- | --- | --- |",
        f"| x grows | yes | {here} |",
    ]


@pytest.mark.usefixtures("method")
def test_help_names_the_methods(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Ended):
        main(["reproduce", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "dropcompute: Figs. 1, 3, 4, 13 and 14" in text
    assert "other: a figure of another paper" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none-such", "--out", "x"], "invalid choice: 'none-such'"),
        (["dropcompute"], "--out"),
        (["dropcompute", "--out", "x", "--seed", "-1"], "argument --seed"),
        (["dropcompute", "--out", "FILE"], "FILE cannot be written"),
        (["dropcompute", "--out", "FILE/x"], "FILE/x cannot be written"),
    ],
)
def test_what_is_wrong_is_said(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(Ended) as end:
        main(["reproduce", *(word.replace("FILE", str(file)) for word in words)])
    assert end.value.code == 2
    assert said.replace("FILE", str(file)) in capsys.readouterr().err


def test_numbers_for_json() -> None:
    value = {1: np.array([1.23456789, math.inf]), "n": np.int64(3), "s": ("x", None, True)}
    assert plain(value) == {"1": [1.23457, None], "n": 3, "s": ["x", None, True]}


# ---- DropCompute ---------------------------------------------------------------------------------


@pytest.mark.parametrize("preempt", [True, False])
def test_a_simulation_is_that_of_plain_loops(preempt: bool) -> None:
    rng = np.random.default_rng(2)
    calibration, times = (0.45 + delays(0.45, (20, 16, 6), rng) for _ in range(2))
    found = dropcompute.simulate(calibration, times, preempt=preempt)
    tau = found["threshold"]
    finished, seconds = 0, 0.0
    for step in times:
        latest = 0.0
        for worker in step:
            now = 0.0
            for micro_batch in worker:
                if preempt and now + micro_batch >= tau:
                    now = tau
                    break
                now += micro_batch
                finished += 1
                if now >= tau:
                    break
            latest = max(latest, now)
        seconds += latest
    assert 0 < finished < times.size
    assert found["throughput"] == pytest.approx(finished / seconds)
    assert found["drop_rate"] == pytest.approx(1 - finished / times.size)
    assert found["predicted"] > 1


def quick(name: str, method: ModuleType = dropcompute) -> tuple[Picture, Numbers]:
    (picture,) = (each for each in method.PICTURES if each.name == name)
    return picture, plain(picture.compute(np.random.default_rng(1), True))


def test_a_scale_graph() -> None:
    scale = quick("fig1")[1]["near"]
    assert scale["workers"] == sorted(scale["workers"])
    for way in ("stopped", "tested"):
        assert min(scale[way]["speedup"]) > 1
        assert scale[way]["speedup"][-1] > scale[way]["speedup"][0], "more workers gain more"
    for low, high in (
        (scale["baseline"], scale["tested"]["throughput"]),
        (scale["tested"]["throughput"], scale["stopped"]["throughput"]),
        (scale["stopped"]["throughput"], scale["linear"]),
    ):
        assert low[-1] < high[-1]


def test_speedups_over_the_threshold() -> None:
    picture, numbers = quick("fig3")
    curves = numbers["delays"]
    assert max(curves["simulation"]) == pytest.approx(curves["speedup"], abs=0.01)
    assert curves["step_time_by_theory"] < curves["step_time"], "the noise has a heavy tail"
    for found in numbers.values():
        given = np.array(found["analytical_given_step_time"])
        assert np.abs(given - found["simulation"]).max() < 0.05
    with Image.open(io.BytesIO(png(picture, numbers))) as image:
        assert min(image.size) > 300


@pytest.mark.long
def test_a_quick_reproduction(tmp_path: Path) -> None:
    out = tmp_path / "figures"
    assert main(["reproduce", "dropcompute", "--out", str(out), "--quick"]) == 0
    names = ["fig1", "fig3", "fig4", "fig13", "fig14"]
    figures = json.loads((out / "dropcompute.json").read_text())["figures"]
    assert list(figures) == names
    assert all((out / f"{name}.png").stat().st_size > 10_000 for name in names)
    for panel in (*figures["fig13"].values(), *figures["fig14"].values()):
        if "ratio" in panel:
            assert panel["ratio"] == pytest.approx(panel["ratio_of_the_paper"], rel=0.025)
    gains = [curve["best_speedup"] for curve in figures["fig4"]["workers"].values()]
    assert gains[0] < gains[-1]


# ---- K-sync and fastest-k ------------------------------------------------------------------------


def test_a_package_that_a_method_needs_is_named(
    method: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    method.NEEDS = ("none_such",)  # type: ignore[attr-defined]
    with pytest.raises(Ended):
        main(["reproduce", "other", "--out", "x"])
    assert "none_such is not installed: python -m pip install none_such" in capsys.readouterr().err


def test_run_times_of_ksync() -> None:
    numbers = quick("fig6", ksync)[1]
    for name in ("Pareto(2, 1)", "1 + exp(1)"):
        for kind in ("k-sync", "k-batch-async"):
            # The variance of the largest of 8 Pareto values is infinite: one value may be most of
            # the sum.
            exact = numbers[name][f"{kind}, exact"][:7]
            assert numbers[name][kind][:7] == pytest.approx(exact, rel=0.05)
    assert numbers["Pareto(2, 1)"]["k-async"][6] > numbers["Pareto(2, 1)"]["k-sync"][6]
    assert numbers["1 + exp(1)"]["k-async"][3] < numbers["1 + exp(1)"]["k-sync"][3]


def test_training_with_stale_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two gradients per update, one fresh and one two versions old, beside plain loops."""
    staleness = np.array([[0, min(i, 2)] for i in range(200)])
    made = Simulation(np.arange(1.0, 201.0), staleness, staleness == 0)
    monkeypatch.setattr(ksync.ksync, "simulate", lambda *_: made)
    times, expon = np.array([0.5, 40.5, 80.5]), stats.expon()
    losses = ksync.train("k-async", 2, times, np.random.default_rng(3), expon)
    rng = np.random.default_rng(3)
    images, labels = ksync.load()
    took = update_time("k-async", expon, 8, 2).mean
    chosen = rng.integers(len(images), size=(int(1.1 * 80.5 / took) + 50, 2))
    weights, expected = [rng.normal(scale=0.01, size=(65, 10))], []
    for i in range(81):
        if i in (0, 40, 80):
            logits = images @ weights[i]
            logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
            expected.append(-logits[np.arange(len(labels)), labels].mean())
        total = np.zeros((65, 10))
        for row, old in zip(chosen[i], (i, max(i - 2, 0)), strict=True):
            powers = np.exp(images[row] @ weights[old])
            gradient = np.outer(images[row], powers / powers.sum())
            gradient[:, labels[row]] -= images[row]
            gradient[:64] += 0.02 * weights[old][:64]
            total += gradient
        weights.append(weights[i] - 0.01 * total / 2)
    assert losses == pytest.approx(np.array(expected))
    assert losses[-1] < losses[0] - 0.5


def test_the_adaptive_bound_is_the_lowest() -> None:
    picture, numbers = quick("fig1-2", fastest_k)
    bounds = np.array(numbers["bounds"])
    assert (np.array(numbers["adaptive_bound"]) <= bounds.min(axis=0) * (1 + 1e-5)).all()
    with Image.open(io.BytesIO(png(picture, numbers))) as image:
        assert min(image.size) > 300


def made_run(*times: float) -> FastestKRun:
    """A run whose errors are 8, 2, 3, 5 and 7, and whose iterations send 2 and 20 d-vectors."""
    whole = 2 * np.arange(1, 6)
    return FastestKRun(
        times=np.array(times),
        ks=np.array([1, 1, 2, 2, 2]),
        weights=np.zeros(1),
        errors=np.array([8.0, 2.0, 3.0, 5.0, 7.0]),
        downloads=whole,
        uploads=10 * whole,
    )


def test_runs_in_intervals_of_time() -> None:
    run = made_run(0.5, 1.0, 2.5, 3.5, 9.0)
    found = fastest_k._binned(run, 4.0, 4)
    assert found["times"].tolist() == [1, 2, 3, 4]
    assert found["errors"] == pytest.approx([8, 2, 3, 5])
    halves = fastest_k._binned(run, 4.0, 2)
    assert halves["errors"] == pytest.approx([4, 15**0.5])
    assert halves["communicated"].tolist() == [44, 88]
    with pytest.raises(ValueError, match="ends at 9, 10 is needed"):
        fastest_k._binned(run, 10.0, 4)


def test_an_interval_without_an_iteration_has_the_error_before() -> None:
    found = fastest_k._binned(made_run(1.2, 1.4, 4.5, 4.6, 9.0), 6.0, 6)
    assert found["errors"] == pytest.approx([math.nan, 4, 2, 2, 15**0.5, 5], nan_ok=True)
    assert found["downloads"].tolist() == [0, 4, 4, 4, 8, 8]
    # The mean of runs is that at equal times, and of those times at which all errors are known.
    runs = [made_run(1.2, 1.4, 4.5, 4.6, 9.0), made_run(0.2, 2.4, 2.5, 5.5, 9.0)]
    curve = fastest_k._curve(runs, 6.0, 6)
    assert curve["times"].tolist() == [2, 3, 4, 5, 6]
    expected = [(4 + 8) / 2, (2 + 6**0.5) / 2, (2 + 3) / 2, (15**0.5 + 3) / 2, (5 + 5) / 2]
    assert curve["errors"] == pytest.approx(expected)
    assert curve["since"] == [0, 1.4]


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "names"),
    [
        ("ksync", ["fig5", "fig6", "fig7", "fig8", "fig9"]),
        ("fastest-k", ["fig1-2", "fig3-4", "fig5-6"]),
    ],
)
def test_quick_reproductions(method: str, names: list[str], tmp_path: Path) -> None:
    assert main(["reproduce", method, "--out", str(tmp_path), "--quick"]) == 0
    figures = json.loads((tmp_path / f"{method}.json").read_text())["figures"]
    assert list(figures) == names
    assert all((tmp_path / f"{name}.png").stat().st_size > 10_000 for name in names)
    if method == "ksync":
        ends = figures["fig8"]["at_the_end"]
        assert ends["asynchronous"] < ends["4-batch-async"] < ends["synchronous"]
    else:
        assert figures["fig1-2"]["adaptive_k_changes_at"][0] == pytest.approx(496.9, abs=0.05)
