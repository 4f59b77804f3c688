"""Algorithms that stop at a threshold: what fits them, what they compute, and their figures."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from started import results, training, validator
from test_bound import SETTINGS
from test_measured import RANKS, record, run, settings, shown, trained

from wagma.benchmarks.training import table
from wagma.benchmarks.training.algorithms import check_name, find
from wagma.benchmarks.training.measured import figures, recorded_compute
from wagma.benchmarks.training.stopping import check, mean_step, summary
from wagma.inject import parse
from wagma.report.contents import read_training
from wagma.report.sections.throughput import _details
from wagma.simulate.methods import STOPPING

pytestmark = pytest.mark.training

STATS = {
    "threshold": 0.25,
    "drop_rate": 0.1,
    "expected_drop_rate": 0.125,
    "expected_speedup": 1.08,
    "measured_speedup": 1.05,
    "saved_seconds": 2.0,
}
SPLIT = replace(SETTINGS, micro_batches=4, steps=200)


def dropped(name: str = "dropcompute", **changed: Any) -> dict[str, Any]:
    """Eight micro-batches of four steps of four."""
    asked = settings(micro_batches=4, batch=8)
    records = [record(rank, micro_batches=8, stats={**STATS, **changed}) for rank in range(RANKS)]
    one = find(name, asked, RANKS)
    return figures(asked, one, 1, trained(*records), parse("none", RANKS))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"micro_batches": 12}, "--micro-batches 12: 32 samples .* give --batch 36"),
        ({"threshold": 0.1}, "--threshold 0.1: none of --algorithms wagma stops at one; add drop"),
        (
            {"algorithms": ("dropcompute",), "micro_batches": 1},
            "--micro-batches 1: dropcompute .* 2 or more",
        ),
        ({"algorithms": ("anytime",), "micro_batches": 1}, "--micro-batches 1: anytime"),
        ({"algorithms": ("anytime",), "compute": None}, "anytime needs --threshold, or --compute"),
        ({"algorithms": ("dropcompute",), "steps": 10}, "--steps 10: .* measures 10 versions"),
        ({"algorithms": ("dropcompute-local4",), "steps": 40}, "--steps 40: .* 40 versions"),
        ({"algorithms": ("dropcompute-local1",)}, "dropcompute-local1 has no local steps"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        check(replace(SPLIT, **changed))


def test_what_fits_is_not_refused() -> None:
    for name in STOPPING:
        assert check_name(name) == name
        check(replace(SPLIT, algorithms=(name,)))
        check(replace(SPLIT, algorithms=(name,), threshold=0.1, compute=None, steps=1))
    check(replace(SPLIT, algorithms=("dropcompute-local10",), micro_batches=1))
    check(SETTINGS)
    check(replace(SETTINGS, algorithms=("dropcompute_of_others:Strategy",)))


def test_the_mean_time_of_a_step_has_the_delays_of_all_its_parts() -> None:
    delays = parse("one-server:0:0.08", 8)  # 10 ms on average over the ranks
    assert mean_step(SPLIT, delays) == pytest.approx(0.1 + 4 * 0.01)


def test_only_what_was_computed_counts() -> None:
    found = dropped()
    assert found["throughput"] == 2 * 8 * 2 / 4.0
    assert found["ideal_throughput"] == 2 * 8 * 2 / found["ideal_seconds"]
    assert run()["dropping"] is None
    behind = figures(
        settings(micro_batches=2),
        find("allreduce", settings(), RANKS),
        1,
        trained(record(0, micro_batches=8, behind=4), record(1, micro_batches=8)),
        parse("none", RANKS),
    )
    assert behind["behind_share"] == 4 / 16


def test_delays_are_those_of_micro_batches() -> None:
    """A version that a rank has missed would have had them; one that was dropped takes no time."""
    delays = parse("one-server:1:2.0:3", RANKS)  # at the parts 0, 3, 6: of the versions 0, 1, 3
    late = record(1, versions=[0, 2], step_seconds=[3.5, 1.5], called_seconds=[1.0, 1.0])
    asked = settings(micro_batches=2)
    compute = recorded_compute(asked, [record(0), late], delays)
    assert compute[:, 1].tolist() == [2.5, 2.5, 0.5, 2.5]
    compute = recorded_compute(asked, [record(0), late], delays, dropped=True)
    assert compute[:, 1].tolist() == [2.5, 0.0, 0.5, 0.0]


def test_figures_of_dropping_are_means_of_the_ranks() -> None:
    assert summary([{}, {}]) is None
    other = {**STATS, "drop_rate": 0.3, "threshold": 0.25, "measured_speedup": float("nan")}
    found = summary([STATS, other])
    assert found == {**STATS, "drop_rate": 0.2, "measured_speedup": None}
    off = summary([{**STATS, "threshold": float("inf")}] * 2)
    assert off is not None
    assert off["threshold"] is None


def test_figures_of_dropping_are_shown() -> None:
    """In the table, in the document and in a report; and only where something stops."""
    result = shown(run(), dropped(), dropped("anytime", expected_speedup=float("nan")))
    validator().validate(result)
    printed = table.text(result)
    lines = {line.split("  ")[0]: line.split()[-3:] for line in printed.splitlines()}
    assert lines["dropped, %"] == ["-", "10.0", "10.0"]
    assert lines["threshold, ms"] == ["-", "250.0", "250.0"]
    assert lines["speed-up"] == ["-", "1.050", "1.050"]
    assert lines["expected speed-up"] == ["-", "1.080", "-"]
    assert "Dropped: of all micro-batches" in printed
    assert "ropped" not in table.text(shown(run()))
    details = _details(read_training("x.json", result))
    assert details.head[-4:] == ("dropped", "threshold", "speed-up of dropping", "expected")
    assert [cell.text for cell in details.rows[1][-4:]] == ["10.0%", "250.0 ms", "1.050", "1.080"]
    assert "dropped" not in _details(read_training("x.json", shown(run()))).head


# ---- real ranks ----------------------------------------------------------------------------------

STEPS = 16
PARTS = ("--micro-batches", "4", "--batch", "8", "--steps", str(STEPS))
# Rank 1 is delayed in the first of the four parts of 40 ms, to 180 ms. The threshold is 20 ms from
# each end of its second part, and 40 ms from the end of rank 0's last one.
DELAYED = ("--compute", "160ms", "--imbalance", "one-server:1:0.14:4")
STOPPED = "dropcompute,dropcompute-local2,dropcompute-preempt"
LINES = [
    [*PARTS, "--algorithms", "allreduce,dropcompute", "--threshold", "100s"],
    [*PARTS, *DELAYED, "--algorithms", STOPPED, "--threshold", "200ms"],
    [*PARTS, *DELAYED, "--algorithms", "dropcompute,anytime"],
]


@pytest.mark.long
def test_trainings_that_stop(tmp_path: Path) -> None:
    """Without drops the models are AllreduceSGD's; with drops the figures fit together."""
    (whole, _), (dropping, _), (auto, printed) = results(tmp_path, 2, LINES)
    allreduce, same = whole["runs"]
    assert same["curve"]["accuracy"] == allreduce["curve"]["accuracy"]
    assert same["consensus_distances"] == allreduce["consensus_distances"]
    assert (same["dropping"]["drop_rate"], allreduce["dropping"]) == (0, None)
    everything = 2 * STEPS * 8
    for each in dropping["runs"]:
        # Rank 1 has passed the threshold after two parts, or after one local step.
        rate = each["dropping"]["drop_rate"]
        assert 0.24 < rate <= 0.75
        assert each["throughput"] * each["wall_seconds"] == pytest.approx(everything * (1 - rate))
    between, _, amid = (each["dropping"]["drop_rate"] for each in dropping["runs"])
    assert amid >= between + 0.05, "the second part of rank 1 counts only between parts"
    found, anytime = (each["dropping"] for each in auto["runs"])
    assert found["expected_speedup"] >= 1
    assert anytime["threshold"] == pytest.approx(0.23), "160 ms and half of 140 ms"
    assert "a micro-batch of average cost sleeps until 40 ms" in " ".join(printed.split())


@pytest.mark.long
def test_what_does_not_fit_ends_the_command(tmp_path: Path) -> None:
    done = training(tmp_path, 2, "--algorithms", "dropcompute")
    assert done.returncode == 2
    assert done.stderr.count("--micro-batches 1: dropcompute stops between") == 1, done.stderr
