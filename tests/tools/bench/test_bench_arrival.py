"""Arrival patterns: what each says, the same on every rank."""

from pathlib import Path

import numpy as np
import pytest

from wagma.benchmarks.arrival import FORMS, offsets, parse

MS = 1_000_000
RANDOM = ("one-late:1ms", "uniform:1ms", "lognormal:1ms")


def made(text: str, ranks: int = 4, iterations: int = 1000, seed: int = 1) -> np.ndarray:
    return offsets(parse(text), ranks, iterations, seed)


def test_together() -> None:
    assert not made("together").any()


def test_one_rank_is_late_drawn_anew() -> None:
    table = made("one-late:1ms")
    assert ((table == MS).sum(axis=1) == 1).all()
    assert ((table == 0).sum(axis=1) == 3).all()
    counts = (table == MS).sum(axis=0)
    assert (counts > 150).all()  # of 1000, about 250 each


def test_one_rank_is_always_late() -> None:
    assert (made("one-late:300us:2") == [0, 0, 300_000, 0]).all()


def test_a_ramp() -> None:
    assert (made("ramp:3us") == [0, 1000, 2000, 3000]).all()
    assert (made("ramp:3us", ranks=1) == 0).all()


def test_uniform() -> None:
    table = made("uniform:1ms", iterations=5000)
    assert table.min() >= 0
    assert table.max() <= MS
    assert np.allclose(np.percentile(table, [10, 50, 90]), [0.1 * MS, 0.5 * MS, 0.9 * MS], rtol=0.1)
    assert abs(np.corrcoef(table[:, 0], table[:, 1])[0, 1]) < 0.1


def test_lognormal_is_drop_computes() -> None:
    table = made("lognormal:1ms", iterations=20_000)
    assert table.max() == 5.5 * MS  # the cap
    assert np.median(table) == pytest.approx(0.5 * np.exp(-0.5) * MS, rel=0.05)
    assert np.array_equal(made("lognormal"), made("lognormal:1ms"))
    assert made("lognormal:1ms:0.5:1:2").max() == 2 * MS


def test_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "a:b.csv"  # with a colon
    trace.write_text("step,rank,seconds\n0,1,0.5  # late\n2,0,0.25\n")
    half, quarter = 500 * MS, 250 * MS
    rows = [[0, half], [0, 0], [quarter, 0]]
    assert made(f"trace:{trace}", ranks=2, iterations=7).tolist() == [*rows, *rows, rows[0]]


def test_a_trace_that_does_not_parse(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("step,rank,seconds\n0,1,soon\n")
    with pytest.raises(ValueError, match=r"trace\.csv, line 2: seconds is 'soon'"):
        made(f"trace:{trace}")
    with pytest.raises(FileNotFoundError):
        made("trace:/no/such/file")


@pytest.mark.parametrize("text", ["together", "ramp:1ms", *RANDOM])
def test_shape_and_type(text: str) -> None:
    table = made(text, ranks=3, iterations=5)
    assert table.shape == (5, 3)
    assert table.dtype == np.int64
    assert (table >= 0).all()
    assert made(text, ranks=3, iterations=0).shape == (0, 3)


@pytest.mark.parametrize("text", RANDOM)
def test_draws_follow_from_the_seed_and_the_iteration_alone(text: str) -> None:
    pattern = parse(text)
    table = offsets(pattern, 4, 50, 7)
    assert np.array_equal(offsets(pattern, 4, 50, 7), table)
    assert np.array_equal(offsets(pattern, 4, 20, 7, first=30), table[30:])
    assert not np.array_equal(offsets(pattern, 4, 50, 8), table)


@pytest.mark.parametrize("name", ["one-late", "ramp", "uniform", "lognormal"])
def test_an_amplitude_takes_the_place_of_t(name: str) -> None:
    given = offsets(parse(f"{name}:1ms"), 4, 30, 1, amplitude=2e-3)
    assert np.array_equal(given, made(f"{name}:2ms", iterations=30))
    assert np.array_equal(given, offsets(parse(name), 4, 30, 1, amplitude=2e-3))
    assert not offsets(parse(name), 4, 30, 1, amplitude=0.0).any()


def test_amplitudes_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="together has no T: choose from one-late, ramp"):
        offsets(parse("together"), 4, 3, 1, amplitude=1e-3)
    with pytest.raises(ValueError, match="uniform: T is missing; the form is uniform:T"):
        offsets(parse("uniform"), 4, 3, 1)


@pytest.mark.parametrize("name", FORMS)
def test_patterns_remember_how_they_were_written(name: str) -> None:
    text = "trace:x.csv" if name == "trace" else name
    assert parse(text).text == text
    assert parse(text) == parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("late", "unknown pattern 'late': choose from together, one-late:T"),
        ("", "unknown pattern ''"),
        ("together:1ms", "'1ms' is too much; the form is together"),
        ("ramp:1ms:2", "'2' is too much; the form is ramp:T"),
        ("ramp:", "'' is no time"),
        ("one-late:1ms:last", "'last' is no rank"),
        ("one-late:1ms:-1", "'-1' is no rank"),
        ("uniform:-1ms", "'-1ms' is no time from 0"),
        ("lognormal:1ms:0", "mean is 0.0: more than 0 is needed"),
        ("lognormal:1ms:x", "'x' is no number; the form is lognormal"),
        ("trace:", "the file is missing; the form is trace:FILE"),
    ],
)
def test_what_is_no_pattern(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected.replace("[", r"\[")) as error:
        parse(text)
    if text and text != "late":
        assert str(error.value).startswith(text)  # names the value


def test_a_rank_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="rank is 4: the 4 ranks are 0 to 3"):
        made("one-late:1ms:4")
