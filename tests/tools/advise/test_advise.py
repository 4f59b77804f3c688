import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from profiles import delayed, profile_of

from wagma.advise import Advice, advise
from wagma.advise.candidates import candidates
from wagma.advise.network import network_of
from wagma.advise.search import _Search
from wagma.cli import Ended, main
from wagma.collectives import tuning
from wagma.collectives.tuning import Schedule
from wagma.profile import TrainingProfile, save
from wagma.simulate import NETWORKS, Workload
from wagma.simulate.network import FREE


@pytest.fixture(scope="module")
def found() -> Advice:
    """Return the advice for four ranks with delays."""
    return advise(profile_of(delayed(4)))


@pytest.fixture
def only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one method be tried, for tests that need no more."""
    monkeypatch.setattr("wagma.advise.search.candidates", lambda work: [next(candidates(work))])


def test_delays_of_changing_ranks_are_avoided(found: Advice) -> None:
    assert len(found.best) == 3
    assert len({proposal.family for proposal in found.best}) == 3
    # On average a step takes 175 ms, and the slowest of four 305 ms.
    ideal = 4 / delayed(4).mean()
    assert found.now.throughput == pytest.approx(found.measured, rel=0.1)
    assert 0.9 * ideal < found.best[0].throughput < 1.1 * ideal
    assert found.best[0].gain == pytest.approx(
        found.best[0].throughput / found.now.throughput - 1, abs=1e-9
    )
    gains = [proposal.throughput for proposal in found.best]
    assert gains == sorted(gains, reverse=True)


def test_local_sgd_is_predicted_as_by_its_formula() -> None:
    times = delayed(4, steps=300)
    work = Workload.from_profile(profile_of(times), versions=300)
    periods = work.compute.reshape(4, -1, 20).sum(axis=2)
    [local] = [c for c in candidates(work) if 'wagma.LocalSGD("auto", 20)' in c.call(c.method)]
    made = _Search(work, FREE, 0).proposal(local, 0.0)
    assert made.throughput == pytest.approx(4 * 300 / periods.max(axis=0).sum())


def test_lines_for_ddp_say_to_take_it_off(found: Advice) -> None:
    said = "First take DistributedDataParallel off the model"
    assert found.method == "DistributedDataParallel" and said in found.text()
    assert said not in replace(found, method="AllreduceSGD").text()
    assert said not in replace(found, best=()).text()
    assert "take your own averaging" in replace(found, method=None).text()


def test_lines_say_less_where_a_method_is_slower(found: Advice) -> None:
    slower = replace(found.best[0], gain=-0.162, goodput=1e-300)
    text = replace(found, best=(slower,), left_out=()).text()
    assert "Not tried" not in text
    assert ", 16.2% less;" in text
    assert max(map(len, text.splitlines())) <= 100


def test_equal_ranks_stay_synchronous() -> None:
    rng = np.random.default_rng(0)
    found = advise(profile_of(0.1 + 0.0005 * rng.random((4, 60))))
    assert found.best == ()
    assert "Stay synchronous" in found.text()


def test_rank_that_is_always_slow_gets_less_work() -> None:
    times = 0.1 + 0.0005 * np.random.default_rng(0).random((4, 60))
    times[2] *= 2
    found = advise(profile_of(times), time_to_loss=True)
    assert "Rank 2" in found.cause
    assert "Cannikin" in [proposal.family for proposal in found.best]
    # Shares of 2, 2, 1, 2 sevenths of four batches.
    [cannikin] = [proposal for proposal in found.best if proposal.family == "Cannikin"]
    assert cannikin.throughput == pytest.approx(4 / (4 * 2 / 7 * 0.1), rel=0.05)


def test_stale_gradients_count_against_a_method(found: Advice) -> None:
    careful = advise(profile_of(delayed(4)), time_to_loss=True)
    assert any(proposal.risk.startswith("high") for proposal in found.best)
    assert not any(proposal.risk.startswith("high") for proposal in careful.best)
    assert all((p.consensus or 0) <= 1 for p in careful.best)


def test_noise_scale_counts_with_time_to_loss() -> None:
    profile = profile_of(delayed(4))
    with pytest.raises(ValueError, match="give both"):
        advise(profile, noise_scale=1.0)
    quiet = advise(profile, time_to_loss=True, noise_scale=0.0)
    # Without noise four gradients are worth one, so that updates per second count.
    assert quiet.now.goodput == pytest.approx(quiet.now.throughput / 4)
    assert quiet.text().count(", goodput ") == len(quiet.best) > 0
    for each in quiet.best:
        assert 1.03 * quiet.now.goodput <= each.score(time_to_loss=True) <= each.goodput


def test_batches_of_a_server_do_not_count() -> None:
    work = Workload(np.full((4, 300), 0.1))
    [served] = [c for c in candidates(work) if '"k-async", k=1' in c.call(c.method)]
    made = _Search(work, FREE, 0).proposal(served, 0.0)
    assert made.throughput == pytest.approx(3 / 0.1, rel=0.05)
    assert "MPI" in made.needs and "trains no more" in made.needs


def test_steps_with_parts_may_end_early(found: Advice) -> None:
    work = Workload.from_profile(profile_of(delayed(4), parts=8))
    families = {candidate.family for candidate in candidates(work)}
    assert {"DropCompute", "DropCompute, preempting"} <= families
    assert "DropCompute" not in found.text().split("Not tried")[0]


@pytest.mark.parametrize("latency", [1.0, 7.0])
def test_network_takes_as_long_as_measured(latency: float) -> None:
    sizes = [1 << 10, 1 << 16, 1 << 20, 1 << 24]
    took = {s: latency * 20e-6 + 3e-10 * s for s in sizes}
    profile = profile_of(delayed(8))
    measured = TrainingProfile(
        **{**vars(profile), "communication_sizes": {s: (100, 100 * t) for s, t in took.items()}}
    )
    network, whence = network_of(measured)
    assert whence == "measured, on the pattern of node"
    for size in sizes[:1] + sizes[-1:]:
        assert network.allreduce(size, 8) == pytest.approx(took[size], rel=0.25)


def test_network_of_another_method_is_nominal() -> None:
    profile = profile_of(delayed(4), hosts=2)
    grouped = TrainingProfile(**{**vars(profile), "method": "WAGMA"})
    network, whence = network_of(grouped)
    assert whence == "nominal numbers of ethernet"
    assert network.latency == NETWORKS["ethernet"].latency
    assert network.ranks_per_node == 2


def test_network_between_hosts_is_not_scaled_by_one_host() -> None:
    profile = profile_of(delayed(4), communication=0.01)
    network, whence = network_of(profile, "ethernet")
    assert whence == "measured on a node, nominal numbers of ethernet"
    assert network.allreduce(1 << 20, 4) == pytest.approx(0.01)
    assert (network.latency, network.gap_per_byte) == (
        NETWORKS["ethernet"].latency,
        NETWORKS["ethernet"].gap_per_byte,
    )


@pytest.mark.usefixtures("only_one")
def test_scale_beyond_the_profile_is_warned_about() -> None:
    found = advise(profile_of(delayed(2, steps=40)), 33)
    assert found.ranks == 33
    assert any("copies of the 2" in warning for warning in found.warnings)
    assert any("name their network" in warning for warning in found.warnings)
    named = advise(profile_of(delayed(2, steps=40)), 33, network="ethernet")
    assert not any("name their network" in warning for warning in named.warnings)


def test_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(profile_of(delayed(4)), tmp_path / "profile.json")
    words = [str(tmp_path / "profile.json"), "--json", str(tmp_path / "advice.json")]
    assert main(["advise", *words]) == 0
    printed = capsys.readouterr().out
    assert "optimizer = wagma.DistributedOptimizer(optimizer, algorithm, model=model)" in printed
    written = json.loads((tmp_path / "advice.json").read_text())
    assert [each["family"] in printed for each in written["best"]] == [True] * 3


@pytest.mark.usefixtures("only_one")
def test_command_takes_measured_messages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(profile_of(delayed(2, steps=40)), tmp_path / "profile.json")
    slow = dict.fromkeys(("latency", "overhead", "gap"), 0.1) | {"gap_per_byte": 0.0}
    tuning.write(tmp_path / "tune.json", "here", Schedule(), {"node": slow})
    words = ["--network", str(tmp_path / "tune.json")]
    assert main(["advise", str(tmp_path / "profile.json"), *words]) == 0
    # Of 2 ranks both send and receive: 300 ms beside at least 100 ms of computing.
    found = re.search(
        r"2 ranks: ([0-9.]+) local batches/s, .*as given", capsys.readouterr().out, re.S
    )
    assert found is not None and 2.5 < float(found[1]) < 5


@pytest.mark.parametrize(
    ("steps", "words", "said"),
    [
        (5, [], "profile.json: the profile has 5 steps, too few"),
        (40, ["--ranks", "1"], "--ranks"),
        (40, ["--noise-scale", "1"], "--noise-scale: it counts with --time-to-loss alone"),
        (40, ["--ranks", f"{10**14}"], f"--ranks {10**14}: so many do not fit"),
        (40, ["--json", "/nowhere/advice.json"], "/nowhere/advice.json cannot be written"),
    ],
)
def test_command_says_what_is_wrong(
    steps: int, words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(profile_of(delayed(2, steps)), tmp_path / "profile.json")
    with pytest.raises(Ended) as ended:
        main(["advise", str(tmp_path / "profile.json"), *words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
