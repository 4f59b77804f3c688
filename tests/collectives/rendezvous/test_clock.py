"""Clocks of several hosts: how far another one is ahead."""

import numpy as np
import pytest

from wagma.collectives.rendezvous import clock


def test_the_fastest_round_trip_gives_the_offset() -> None:
    # The other clock is 1000 ahead. The second answer took 10 ns there and 30 ns back.
    found = clock.estimate([0, 100, 200], [1200, 1110, 1290], [300, 140, 330])
    assert found == clock.Estimate(offset_ns=1110 - 120, round_trip_ns=40)
    assert found.error_ns == 20
    assert abs(found.offset_ns - 1000) <= found.error_ns


def test_offsets_are_within_half_a_round_trip() -> None:
    generator = np.random.default_rng(1)
    for true in (-(10**15), -7, 0, 123, 10**12):
        sent = np.cumsum(generator.integers(1000, 5000, 50))
        there, back = generator.integers(100, 900, (2, 50))
        answers = (sent + there + true).tolist()
        found = clock.estimate(sent.tolist(), answers, (sent + there + back).tolist())
        assert found.round_trip_ns == (there + back).min()
        assert abs(found.offset_ns - true) <= found.error_ns


def test_estimates_refuse_what_no_clock_can_have_said() -> None:
    with pytest.raises(ValueError, match="empty"):
        clock.estimate([], [], [])
    with pytest.raises(ValueError, match="shorter"):
        clock.estimate([1, 2], [1, 2], [3])
    with pytest.raises(ValueError, match="shorter"):
        clock.estimate([1], [1, 2], [3])
    with pytest.raises(ValueError, match="before its question"):
        clock.estimate([10], [5], [9])
