"""When a report says that its clocks or starts were not accurate enough."""

import pytest
from bench_reports import OWN, point, series

from wagma.benchmarks.accuracy import warnings

GOOD = {"shared": False, "error_us": 0.2, "drift_us": 0.2, "missed_starts": 0}
FOUND = [point(series(own=OWN * 10))]  # 4.5 us, 80 calls


@pytest.mark.parametrize("more", [{}, {"missed_starts": 4}, {"shared": True, "error_us": 0.0}])
def test_what_is_small_beside_the_latency_is_not_told(more: dict[str, float]) -> None:
    assert warnings(GOOD | more, FOUND) == []


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"error_us": 0.3}, "may differ by 0.5 us, the shortest latency is 4.5 us"),
        ({"drift_us": 0.8}, "may differ by 1 us"),
        ({"missed_starts": 5}, "5 starts had gone by when a rank knew of them, of 80 calls"),
    ],
)
def test_what_is_not_small_is_told(more: dict[str, float], text: str) -> None:
    (found,) = warnings(GOOD | more, FOUND)
    assert text in found


def test_nothing_was_measured() -> None:
    assert warnings(GOOD | {"missed_starts": 5}, []) == []
