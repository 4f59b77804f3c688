"""LogGP of messages: the fit to times of round trips, and the file from which networks come."""

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import nnls

from wagma.cli import Ended, main
from wagma.collectives import tuning
from wagma.collectives.tuning import Schedule
from wagma.simulate import Network
from wagma.simulate.fitting import nonnegative
from wagma.simulate.tuned import network
from wagma.tune import loggp
from wagma.tune.loggp import RoundTrip

MEASURED = Schedule(1 << 15, 1 << 17, 1 << 12, 7)


def trips(once: float, gap: float, per_byte: float, noise: float = 0.0) -> list[RoundTrip]:
    """Return round trips of LogGP, of n messages of k bytes: 2 (L + 2 o) + (n - 1) g + n k G."""
    rng = np.random.default_rng(3)
    return [
        RoundTrip(n, k, (2 * once + (n - 1) * gap + n * k * per_byte) * (1 + noise * rng.normal()))
        for n, k in loggp.points(8 << 20)
    ]


@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize(("once", "gap", "per_byte"), [(1e-6, 3e-7, 1e-10), (5e-5, 2e-6, 1e-9)])
def test_the_numbers_of_messages_are_found(
    once: float, gap: float, per_byte: float, noise: float
) -> None:
    found = loggp.fit(trips(once, gap, per_byte, noise), sending=1e-7, reduce_per_byte=5e-11)
    # The gap is a small part of a round trip: noise of 5% hides some of it.
    near = {"rel": 1e-6} if noise == 0 else {"rel": 0.15}
    assert found.latency + 2 * found.overhead == pytest.approx(once, **near)
    assert found.gap_per_byte == pytest.approx(per_byte, **near)
    assert found.gap == pytest.approx(gap, rel=1e-6, abs=once * noise * 2)
    assert (found.overhead, found.reduce_per_byte) == (1e-7, 5e-11)


def test_no_number_of_messages_is_negative() -> None:
    """Four messages take less than one: the gap is 0, and the rest is as near as that allows."""
    found = loggp.fit(trips(1e-5, -1e-6, 1e-10), sending=1.0, reduce_per_byte=0.0)
    assert found.gap == 0
    assert found.latency == 0 and 0.5e-5 < 2 * found.overhead <= 1e-5
    assert found.gap_per_byte == pytest.approx(1e-10, rel=0.1)


def test_of_two_columns_the_fit_is_the_nearest_one() -> None:
    rng, bounded = np.random.default_rng(1), 0
    for _ in range(100):
        rows, values = rng.random((3, 2)), rng.random(3)
        factors, _ = nnls(rows, values)
        assert nonnegative(rows, values) == pytest.approx(factors, abs=1e-9)
        bounded += int((factors == 0).any())
    assert bounded > 10


def test_one_size_does_not_tell_the_numbers_apart() -> None:
    same = [RoundTrip(1, 1024, 1e-5), RoundTrip(4, 1024, 2e-5)]
    with pytest.raises(ValueError, match=r"sizes \[1024\] and the counts \[1, 4\]: two of each"):
        loggp.fit(same, 0.0, 0.0)


def test_a_simulation_takes_the_newest_messages(tmp_path: Path) -> None:
    file = tmp_path / "tune.json"
    numbers = dict.fromkeys(("latency", "overhead", "gap", "gap_per_byte", "reduce_per_byte"), 1e-6)
    slow, fast = numbers | {"latency": 3e-6}, numbers | {"latency": 2e-6}
    tuning.write(file, "a", MEASURED, {"node": fast, "between": slow})
    tuning.write(file, "b", MEASURED, {"node": fast})
    assert network(str(file)) == Network(**fast)
    tuning.write(file, "a", MEASURED, {"node": fast, "between": slow})
    assert network(str(file)) == Network(**slow)
    nodes = network(str(file), 4)
    assert (nodes.latency, nodes.ranks_per_node, nodes.intra) == (3e-6, 4, Network(**fast))
    assert tuning.read(file, "a") == MEASURED


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{\n"wagma": 1,\n"machines": {,}}', "FILE:3: is no JSON: "),
        ("{}", "FILE: wagma tune did not write it; write it with"),
        ('{"wagma": 2, "machines": {}}', "FILE: it is of format 2, and this wagma reads 1; write"),
        ('{"wagma": 1, "machines": {"a": {}}}', "FILE has no times of messages: write it with"),
        (
            '{"wagma": 1, "machines": {"a": {"messages": {"node": {"latency": NaN}}}}}',
            "FILE: a, messages 'node': ",
        ),
        (
            '{"wagma": 1, "machines": {"a": {"messages": {"node": {"latency": -1, "overhead": 0, '
            '"gap": 0, "gap_per_byte": 0}}}}}',
            "messages 'node': latency is -1.0: a finite number, at least 0",
        ),
        (None, "no such network, of none, node, ethernet, infiniband, slingshot, and no such file"),
    ],
)
def test_a_wrong_network_is_told(
    content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tune.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(Ended):
        main(["simulate", "--ranks", "2", "--network", str(file)])
    assert said.replace("FILE", str(file)) in capsys.readouterr().err
