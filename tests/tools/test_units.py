"""Sizes, times and counts as people write and read them."""

import pytest

from wagma.units import (
    parse_duration,
    parse_seconds,
    parse_size,
    plural,
    rank_list,
    size_text,
    time_text,
)

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [
        *(("0", 0), ("100", 100), ("64k", 65536), ("100MiB", 100 * MIB), ("1.5 GiB", 3 * GIB // 2)),
        *(("1MB", 10**6), ("1.5 GB", 15 * 10**8), ("2KB", 2000), ("128M", 128 * MIB)),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "3 bytes", "nan", "1.2.3"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is no size: write bytes"):
        parse_size(text)


@pytest.mark.parametrize("text", ["-1", "0.5", "-4KiB", "1.3KiB"])
def test_sizes_are_whole_numbers(text: str) -> None:
    with pytest.raises(ValueError, match="is no whole number of bytes from 0"):
        parse_size(text)


def test_a_size_has_a_limit() -> None:
    assert parse_size("1024TiB") == 1 << 50
    with pytest.raises(ValueError, match="'1025 TiB' is out of range: write at most 1024 TiB"):
        parse_size("1025 TiB")


def test_size_texts() -> None:
    assert [size_text(n) for n in (0, 1023, 1024, 100 * MIB, 3 * GIB // 2)] == [
        *("0 B", "1023 B", "1 KiB", "100 MiB", "1.5 GiB")
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0.0), ("0.0", 0.0), ("3s", 3.0), ("300ms", 0.3), ("1.5 MS", 1.5e-3), ("50us", 5e-5)],
)
def test_times(text: str, seconds: float) -> None:
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["100", "0.3", "1e-3", "-2"])
def test_a_time_needs_a_unit(text: str) -> None:
    for read in (parse_seconds, parse_duration):
        with pytest.raises(ValueError, match=f"'{text}' has no unit: write {text}ms or {text}s"):
            read(text)


@pytest.mark.parametrize("text", ["", "soon", "3min", "nan", "inf", "nans"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is no time: write 300ms, 50us or 1s"):
        parse_seconds(text)


def test_times_have_limits() -> None:
    for text in ("-1ms", "1e7s"):
        with pytest.raises(ValueError, match=r"is no time from 0 to 1e\+06 s"):
            parse_seconds(text)
    for text in ("0", "61s"):
        with pytest.raises(ValueError, match="out of range: write more than 0 and at most 60s"):
            parse_duration(text, 60.0)
    assert parse_duration("60s", 60.0) == 60.0


def test_time_texts() -> None:
    assert [time_text(s) for s in (0, 3e-9, 15e-6, 0.0305, 1.234, 123.4, 1234)] == [
        *("0 s", "3 ns", "15.0 us", "30.5 ms", "1.23 s", "123 s", "1234 s")
    ]
    assert [time_text(s) for s in (999.4e-9, 999.6e-9, 999.6e-6, 0.9996, 999.6)] == [
        *("999 ns", "1.00 us", "1.00 ms", "1.00 s", "1000 s")
    ]


def test_one_is_singular() -> None:
    assert [plural(n, "rank") for n in (0, 1, 2, 1234)] == [
        *("0 ranks", "1 rank", "2 ranks", "1,234 ranks")
    ]
    assert [rank_list(ranks) for ranks in ([3], [0, 1, 2, 5])] == ["rank 3", "ranks 0-2, 5"]
