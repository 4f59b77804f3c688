"""The figures of a training, from records that are made up, and the table and pictures of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from started import validator
from test_bound import SETTINGS

from wagma.benchmarks.training import plots, table
from wagma.benchmarks.training.algorithms import find
from wagma.benchmarks.training.measured import figures, recorded_compute
from wagma.benchmarks.training.output import document, write
from wagma.benchmarks.training.settings import Settings
from wagma.benchmarks.training.train import Trained
from wagma.cli import main
from wagma.inject import parse
from wagma.report import curves
from wagma.report.page import sections
from wagma.report.reading import read
from wagma.report.style import looks

pytestmark = pytest.mark.training

RANKS = 2


def settings(**changed: Any) -> Settings:
    return Settings(**{**vars(SETTINGS), "steps": 4, "group_size": 2, "batch": 10, **changed})


def record(rank: int, **changed: Any) -> dict[str, Any]:
    """Four steps of a second, half of each in the optimizer's step."""
    return {
        "rank": rank,
        "versions": [0, 1, 2, 3],
        "step_seconds": [1.0] * 4,
        "called_seconds": [0.5] * 4,
        "waited_seconds": [0.4] * 4,
        "delayed": [False] * 4,
        "late": [False] * 4,
        "staleness": {0: 8},
        "snapshot_seconds": [2.0, 4.0],
        "end_seconds": 4.0,
        "micro_batches": 4,
        "behind": 0,
        "stats": {},
        **changed,
    }


def trained(*records: dict[str, Any]) -> Trained:
    return Trained(
        list(records), [2, 4], snapshot_values=[0.5, 0.9], final_value=0.91, consensus=[0.1, 0.3]
    )


def run(name: str = "allreduce", *records: dict[str, Any], seed: int = 1) -> dict[str, Any]:
    one = find(name, settings(), RANKS)
    measured = trained(*(records or (record(0), record(1))))
    return figures(settings(), one, seed, measured, parse("none", RANKS))


def shown(*runs: dict[str, Any], **changed: Any) -> dict[str, Any]:
    environment = {
        "time": "now",
        "ranks": RANKS,
        "mpi": {},
        "versions": {},
        "transport": "shm",
        "hosts": [],
        "load_average": [0.0, 0.0, 0.0],
        "warnings": ["mind this"],
    }
    measures = ("test accuracy", True)
    asked = settings(**changed)
    return document(asked, environment, parse("none", RANKS), measures, list(runs), False)


def test_throughput_is_of_all_ranks_and_of_steps_that_were_made() -> None:
    assert run()["throughput"] == 2 * 4 * 10 / 4.0
    slow = record(1, versions=[0, 3], end_seconds=5.0, micro_batches=2)
    slow.update(
        {name: slow[name][:2] for name in ("step_seconds", "called_seconds", "late", "delayed")}
    )
    found = run("allreduce", record(0), slow)
    assert found["throughput"] == 6 * 10 / 5.0
    assert found["steps_per_rank"] == [4, 2]
    assert found["version_seconds"] == 5.0 / 4


def test_the_bound_is_of_what_was_computed() -> None:
    assert run()["ideal_seconds"] == 4 * 0.5
    assert run()["ideal_throughput"] == 80 / 2.0
    slower = record(1, called_seconds=[0.1, 0.5, 0.5, 0.5])
    assert run("allreduce", record(0), slower)["ideal_seconds"] == 0.9 + 3 * 0.5
    assert run("wagma", record(0, called_seconds=[0.5, 0.1, 0.5, 0.5]), slower)[
        "ideal_seconds"
    ] == pytest.approx(0.9 + 3 * 0.5)


def test_the_bound_of_others_is_unknown(tmp_path: Path) -> None:
    other = run("wagma:DiLoCo")
    assert other["label"] == "DiLoCo"
    assert other["ideal_throughput"] is other["ideal_seconds"] is None
    result = shown(run(), other)
    validator().validate(result)
    assert "Bound unknown: DiLoCo." in table.text(result)
    plots.draw(result, tmp_path)
    assert run("diloco10")["ideal_throughput"] == run("local10")["ideal_throughput"]


def test_versions_that_were_left_out_have_the_usual_time_and_their_delay() -> None:
    delays = parse("one-server:1:2.0:3", RANKS)  # at versions 0 and 3
    late = record(1, versions=[0, 2], step_seconds=[3.5, 1.5], called_seconds=[1.0, 1.0])
    compute = recorded_compute(settings(), [record(0), late], delays)
    assert compute.tolist() == [[0.5, 2.5], [0.5, 0.5], [0.5, 0.5], [0.5, 2.5]]


def test_own_computing_is_without_delays() -> None:
    delays = parse("one-server:1:0.2:2", RANKS)  # at versions 0 and 2
    one = find("allreduce", settings(), RANKS)
    found = figures(settings(), one, 1, trained(record(0), record(1)), delays)
    assert found["compute_seconds"] == pytest.approx((4 * 0.5 + 4 * 0.5 - 2 * 0.2) / 8)
    assert found["compute_deviation"] == pytest.approx(np.std([0.5] * 6 + [0.3] * 2))
    short = record(1, micro_batches=3)
    assert run("allreduce", record(0), short)["compute_seconds"] is None
    assert run("ddp")["compute_seconds"] is None, "its backward() waits for others"


def test_waiting_and_lateness() -> None:
    found = run("allreduce", record(0, late=[True] * 3 + [False]), record(1))
    assert found["late_share"] == 3 / 8
    assert found["waited_seconds_per_rank"] == pytest.approx([1.6, 1.6])
    assert found["waited_seconds"] == pytest.approx(1.6)
    assert found["communication_seconds"] is None, "everybody waited at every step"
    alone = record(1, waited_seconds=[0.4, 0.0, 0.0005, 0.4], called_seconds=[0.5, 0.2, 0.3, 0.5])
    assert run("allreduce", record(0), alone)["communication_seconds"] == pytest.approx(0.24975)


def test_staleness_is_that_of_all_contributions() -> None:
    found = run("wagma", record(0, staleness={0: 5, 3: 1}), record(1, staleness={3: 1, 1: 1}))
    assert found["staleness_histogram"] == {"0": 5, "1": 1, "3": 2}
    assert found["staleness_mean"] == 7 / 8
    assert run("local1", record(0, staleness={}), record(1, staleness={}))["staleness_mean"] is None


def test_the_averaged_model_exists_when_the_last_rank_is_there() -> None:
    late = record(1, snapshot_seconds=[3.0, 3.5])
    found = run("wagma", record(0), late)
    assert found["curve"] == {"versions": [2, 4], "seconds": [3.0, 4.0], "accuracy": [0.5, 0.9]}
    assert found["time_to_target"] == 4.0
    one = find("wagma", settings(), RANKS)
    never = figures(settings(target=0.95), one, 1, trained(record(0), late), parse("none", RANKS))
    assert never["time_to_target"] is None
    assert found["accuracy"] == 0.91
    assert found["consensus_distance"] == pytest.approx(0.2)


def test_a_document_is_what_the_schema_says(tmp_path: Path) -> None:
    checker = validator()
    checker.validate(shown(run(), run("wagma", seed=2), seeds=(1, 2)))
    checker.validate(shown())
    write(tmp_path / "result.json", shown(run()))
    assert (tmp_path / "result.json").read_text().endswith("}\n")
    for path in (("runs", 0, "throughput"), ("settings", "steps"), ("runs", 0, "late_share")):
        wrong: Any = shown(run())
        inner = wrong
        for part in path[:-1]:
            inner = inner[part]
        inner[path[-1]] = -1
        assert not checker.is_valid(wrong), path


def test_the_table_has_means_and_spreads() -> None:
    fast, slow = record(0, end_seconds=2.0), record(0, end_seconds=4.0)
    runs = [run("wagma", fast, fast), run("wagma", slow, slow, seed=2)]
    printed = table.text(shown(*runs, seeds=(1, 2)))
    assert "30.0 ± 14.1" in printed  # 40 and 20 samples/s
    assert "Mean ± standard deviation of 2 seeds." in printed
    assert "mind this" in printed
    assert "Mean" not in table.text(shown(*runs, seeds=(1, 2)), per_seed=True)
    assert "±" not in table.text(shown(runs[0])).split("Consensus")[0]
    runs[1]["time_to_target"] = None
    assert "4.00 (1 of 2)" in table.text(shown(*runs, seeds=(1, 2)))


def test_throughputs_are_compared_seed_by_seed() -> None:
    def lasting(name: str, *seconds: float) -> list[dict[str, Any]]:
        return [
            run(name, *[record(0, end_seconds=each)] * 2, seed=seed)
            for seed, each in enumerate(seconds, 1)
        ]

    runs = [*lasting("allreduce", 2.0, 4.0, 8.0), *lasting("auto", 2.5, 4.0, 7.0)]
    printed = table.text(shown(*runs, seeds=(1, 2, 3)))
    assert "same seed, median (range): Auto 1.000 (0.800 to 1.143)." in printed.replace("\n", " ")
    assert "same seed" not in table.text(shown(*runs[::3], seeds=(1,)))


def test_overrun_emulation_is_told() -> None:
    behind = record(0, behind=2)
    told = "gradients took longer than the emulated time in up to 25.0 % of the steps"
    assert told in table.text(shown(run("allreduce", behind, record(1)), run()))
    assert "gradients took longer" not in table.text(shown(run()))


def test_pictures_are_drawn(tmp_path: Path) -> None:
    many = [run("wagma", seed=seed) for seed in (1, 2)] + [run("allreduce"), run("local1")]
    many[-1]["staleness_histogram"] = {}
    for result in (shown(*many, seeds=(1, 2)), shown(many[-1])):
        for path in plots.draw(result, tmp_path):
            assert path.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(plots.NAMES)
    assert np.isclose(plots._ages(many[:2]).sum(), 1)


def test_error_bars_are_as_long_as_the_table_says() -> None:
    fast, slow = record(0, end_seconds=2.0), record(0, end_seconds=4.0)
    runs = [run("wagma", fast, fast), run("wagma", slow, slow, seed=2), run("local1")]
    figure = Figure()
    plots._throughput(figure, shown(*runs, seeds=(1, 2)))
    bars = [bar for bar in figure.axes[0].containers if isinstance(bar, ErrorbarContainer)]
    (lines,) = bars[0].lines[2]
    lengths = [end[0] - begin[0] for begin, end in lines.get_segments()]
    assert lengths == pytest.approx([2 * 10 * 2**0.5, 0])  # 40 and 20 samples/s: 30.0 ± 14.1


def test_algorithms_look_as_in_a_report(tmp_path: Path) -> None:
    """Pictures of both, of one file: the colours of bars, the colours and dashes of lines."""
    names = ("wagma-ff", "wagma", "wagma-nosync", "allreduce", "local10", "sgp1")
    made = json.loads(json.dumps(shown(*(run(name) for name in names))))
    (tmp_path / "x.json").write_text(json.dumps(made))
    parts = {section.name: section.parts for section in sections(read(tmp_path))}
    own, others = Figure(), Figure()
    plots._throughput(own, made)
    parts["throughput"][0].plot.draw(others)
    # Behind ours are the bounds; the report's begin with the last one.
    assert colours(own)[len(names) :] == colours(others)[::-1]
    assert len(set(colours(others))) == 5
    own, others = Figure(), Figure()
    plots._accuracy(own, made)
    parts["accuracy"][0].plot.draw(others)
    assert lines(own) == lines(others)
    assert len(set(map(str, lines(own)))) == 6


def colours(figure: Figure) -> list[str]:
    return [to_hex(bar.get_facecolor()) for bar in figure.axes[0].patches]


def lines(figure: Figure) -> list[tuple[str, str, Any]]:
    """Return label, colour and dashes of every line of all plots but their first, the target."""
    return [
        (line.get_label().strip(), to_hex(line.get_color()), line._unscaled_dash_pattern)
        for axes in figure.axes
        for line in axes.lines[1:]
    ]


def test_a_plot_has_five_lines_at_most() -> None:
    look = looks(["wagma"])["wagma"]
    for count, sizes in ((1, [1]), (5, [5]), (6, [3, 3]), (7, [4, 3]), (11, [4, 4, 3])):
        drawn = [curves.Line(str(n), look, [([1.0], [0.5])]) for n in range(count)]
        assert [len(each) for each in curves.panels(drawn)] == sizes


def test_seeds_are_a_mean_and_a_band() -> None:
    first, second = ([1.0, 2.0, 3.0], [0.0, 0.5, 1.0]), ([2.0, 4.0], [0.5, 0.9])
    seconds, mean, low, high = curves.band([first, second])
    assert (seconds[0], seconds[-1]) == (2.0, 4.0)
    assert (mean[0], low[0], high[0]) == (0.5, 0.5, 0.5)
    assert (mean[-1], low[-1], high[-1]) == pytest.approx((0.95, 0.9, 1.0)), "the first has ended"
    figure = Figure()
    runs = [run("wagma"), run("wagma", seed=2), run()]
    plots._accuracy(figure, shown(*runs, seeds=(1, 2)))
    (axes,) = figure.axes
    assert len(axes.lines) == 1 + 2, "the target, and a line for each algorithm"
    assert len(axes.collections) == 1, "the band of the one that has two seeds"
    said = figure.get_supxlabel()
    assert said == "dotted: the target, 90 %; lines and bands: mean, lowest and highest of 2 seeds"


def test_places_without_an_algorithm_stay_empty() -> None:
    figure = Figure()
    plots._staleness(
        figure, shown(*(run(name) for name in ("wagma", "sgp1", "dpsgd", "wagma-ff", "adpsgd")))
    )
    assert [axes.axison for axes in figure.axes] == [True] * 5 + [False] * 3
    lowest = [axes.xaxis.get_tick_params()["labelbottom"] for axes in figure.axes[:5]]
    assert lowest == [False, True, True, True, True]


def test_the_table_fits_a_terminal() -> None:
    names = ("wagma", "wagma-ff", "wagma-nosync", "allreduce", "local10", "sgp1", "dpsgd")
    printed = table.rows(shown(*(run(name) for name in names)))
    assert max(map(len, printed.splitlines())) <= table.WIDTH
    heads = [block.splitlines()[0] for block in printed.split("\n\n")]
    assert len(heads) == 2
    for name in names:
        assert sum(find(name, settings(), RANKS).label in head for head in heads) >= 1
    some = table.rows(shown(run()), ["s to", "samples/s"]).splitlines()
    assert [line.split("  ")[0] for line in some[2:]] == ["s to 90 %", "samples/s"]


def test_steps_on_time_are_those_that_were_not_delayed() -> None:
    slow = record(1, step_seconds=[9.0, 1.0, 2.0, 9.0], delayed=[True, False, False, True])
    found = run("wagma", record(0), slow)
    assert found["on_time_step_p50"] == 1.0
    assert found["on_time_step_p90"] == pytest.approx(1.5)
    every = [record(rank, delayed=[True] * 4) for rank in range(RANKS)]
    assert run("wagma", *every)["on_time_step_p50"] is None


@pytest.mark.long
def test_accuracy_and_waiting_in_one_picture(tmp_path: Path) -> None:
    never = {**run("local1"), "time_to_target": None}
    names = ("wagma-ff", "wagma-nosync", "allreduce", "sgp1")
    for runs in ([run("wagma"), never], [*(run(name) for name in names), run("wagma"), never]):
        plots.draw_overview(shown(*runs), tmp_path / "x.png")
        assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


# ---- tables and pictures of what was written before ----------------------------------------------


def written(folder: Path, **changed: Any) -> Path:
    """Results of two seeds of WAGMA and one of AllreduceSGD."""
    fast, slow = record(0, end_seconds=2.0), record(0, end_seconds=4.0)
    runs = [run("wagma", fast, fast), run("wagma", slow, slow, seed=2), run()]
    file = folder / "result.json"
    write(file, {**shown(*runs, seeds=(1, 2), compute=0.1), **changed})
    return file


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_what_was_written_is_printed_in_markdown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path)
    options = ["bench", "training", "--from", str(file), "--markdown"]
    assert main(options) == 0
    where, *above, blank, head, rule, first, second = capsys.readouterr().out.splitlines()
    assert above == [">", "> mind this"]  # a paragraph of its own
    rows = [first, second]
    assert where.startswith("> digits, 4 versions, 2 ranks, none of them delayed; tau 10. 100 ms")
    assert where.endswith("load average at start 0.00, 0.00, 0.00; now.")
    assert blank == ""
    assert cells(head)[:3] == ["algorithm", "samples/s", "of the bound, %"]
    assert set(cells(rule)) == {"---"}
    assert [cells(row)[:2] for row in rows] == [["WAGMA", "30.0 ± 14.1"], ["AllreduceSGD", "20.0"]]
    assert main([*options, "--per-seed"]) == 0
    rows = capsys.readouterr().out.splitlines()[6:]
    assert [cells(row)[:2] for row in rows] == [
        *(["WAGMA, seed 1", "40.0"], ["WAGMA, seed 2", "20.0"], ["AllreduceSGD, seed 1", "20.0"])
    ]
    assert len({len(cells(row)) for row in (head, rule, *rows)}) == 1


@pytest.mark.parametrize("options", [[], ["--markdown"]])
def test_what_was_interrupted_says_so(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, interrupted=True)
    assert main(["bench", "training", "--from", str(file), *options]) == 0
    printed = capsys.readouterr()
    assert "interrupted: what is above is not all" in printed.err
    assert ("> Interrupted: " in printed.out) == bool(options)  # what is redirected to a document


@pytest.mark.long
def test_what_was_written_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures = tmp_path / "new/pictures"
    options = ["--from", str(written(tmp_path)), "--plots", str(pictures)]
    assert main(["bench", "training", *options]) == 0
    assert sorted(path.name for path in pictures.iterdir()) == sorted(plots.NAMES)
    assert f"Picture: {pictures / 'throughput.png'}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--steps", "4"], "--steps: nothing is trained with --from; leave it out"),
        (["--group-size", "2"], "--group-size: nothing is trained with --from"),
        (["--json", "x.json"], "--json: nothing is trained with --from"),
        (["--plots", "/proc/none"], "--plots: cannot write /proc/none/throughput.png"),
        (["--from", "none.json"], "--from: none.json cannot be read: No such file"),
        (["--from", "empty.json"], "--from: empty.json: broken JSON at line 1"),
        (["--from", "other.json"], "--from: other.json: it is not as training.schema.json says"),
        (["--from", "nothing.json"], "--from: nothing.json: it has no runs"),
        (["--from", "null.json"], "--from: null.json: $.environment.load_average is not as"),
    ],
)
def test_what_cannot_be_shown_is_named(
    tmp_path: Path,
    options: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.json").touch()
    (tmp_path / "other.json").write_text('{"runs": []}')
    written(tmp_path, runs=[]).rename("nothing.json")
    environment = {**json.loads(written(tmp_path).read_text())["environment"], "load_average": None}
    written(tmp_path, environment=environment).rename("null.json")
    with pytest.raises(SystemExit) as end:
        main(["bench", "training", "--from", str(written(tmp_path)), *options])
    assert end.value.code == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""
