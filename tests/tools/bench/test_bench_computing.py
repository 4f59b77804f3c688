"""Compute between posting and waiting, as the benchmark has ranks do."""

import time

import pytest

from wagma.benchmarks.computing import Computing

pytestmark = pytest.mark.alone


@pytest.mark.parametrize("crowded", [False, True])
def test_time_is_computed_and_tests_come_on_top(crowded: bool) -> None:
    computing = Computing(time.perf_counter_ns, crowded=crowded)
    tested: list[int] = []

    def test() -> None:
        tested.append(time.perf_counter_ns())
        time.sleep(0.002)

    began = time.perf_counter_ns()
    computed, testing = computing.spend(12_000_000, 3, test)
    overall = time.perf_counter_ns() - began
    assert computed >= 12_000_000
    assert testing >= 3 * 2_000_000
    assert computed + testing <= overall
    # Every quarter of the computing ends with a test, but the last.
    quarters = [at - began - i * 2_000_000 for i, at in enumerate(tested)]
    assert len(quarters) == 3
    assert all(at >= (i + 1) * 3_000_000 for i, at in enumerate(quarters))


def test_without_tests_nobody_is_asked() -> None:
    computing = Computing(time.perf_counter_ns, crowded=False)

    def test() -> None:
        pytest.fail("was asked")

    computed, testing = computing.spend(1_000_000, 0, test)
    assert computed >= 1_000_000
    assert testing == 0


def test_who_sleeps_uses_no_core() -> None:
    computing = Computing(time.perf_counter_ns, crowded=True)
    began = time.process_time_ns()
    computing.spend(200_000_000, 0, lambda: None)
    assert time.process_time_ns() - began < 50_000_000
