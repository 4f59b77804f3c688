"""Options: translation for the engine, what is refused, and the environment."""

import dataclasses
from typing import Any

import pytest

from wagma.collectives import Options
from wagma.collectives._engine import check_options
from wagma.collectives.options import Arguments


def engine(**options: Any) -> dict[str, int | float]:
    return check_options(Options(**options).engine(size=4, count=10, dtype=0))


def test_defaults() -> None:
    assert engine() == {
        "size": 4,
        "group_size": 4,
        "quorum": 4,
        "dtype": 0,
        "average": 1,
        "count": 10,
        "sync_period": 0,
        "window": 64,
        "grace": -1,
        "timeout": -1,
        "stall_warning": 60,
        "redo_after": 200e-6,
        "shm_limit": 0,
    }


def test_values_reach_the_engine() -> None:
    given = {
        "group_size": 3,
        "quorum": 2,
        "average": False,
        "sync_period": 7,
        "window": 5,
        "grace": 0.25,
        "timeout": 3,
        "stall_warning": None,
        "redo_after": 0.5,
        "shm_limit": 123456,
    }
    used = engine(**given)
    assert {name: used[name] for name in given} == {**given, "average": 0, "stall_warning": -1}


def test_the_window_is_the_sync_period() -> None:
    assert engine(sync_period=9)["window"] == 9


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("late", "skip"),
        ("late", "carry"),
        ("missed", "fast-forward"),
        ("activation", "world"),
        ("grouping", "pairs"),
        ("grouping", "fixed"),
        ("quorum", "majority"),
        ("transport", "mpi"),
        ("transport", "carrier pigeon"),
    ],
)
def test_what_is_not_supported_is_refused(option: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{option}='{value}' is not supported by this version"):
        engine(**{option: value})


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("quorum", 0, ValueError),
        ("quorum", 5, ValueError),
        ("quorum", 1.5, TypeError),
        ("quorum", None, None),
        ("group_size", 0, ValueError),
        ("group_size", 5, ValueError),
        ("group_size", -1, ValueError),
        ("group_size", "4", TypeError),
        ("group_size", 2**40, ValueError),
        ("sync_period", 0, ValueError),
        ("sync_period", 2.0, TypeError),
        ("sync_period", 2**70, ValueError),
        ("window", 0, ValueError),
        ("window", -3, ValueError),
        ("window", 2**40, ValueError),
        ("grace", -1, ValueError),
        ("grace", float("nan"), ValueError),
        ("grace", float("inf"), ValueError),
        ("grace", "soon", TypeError),
        ("grace", True, TypeError),
        ("timeout", -1.0, ValueError),
        ("timeout", "1", TypeError),
        ("timeout", [], TypeError),
        ("stall_warning", -1, ValueError),
        ("redo_after", -1, ValueError),
        ("redo_after", "x", TypeError),
        ("shm_limit", 0, ValueError),
        ("shm_limit", 1.0, TypeError),
        ("average", 1, TypeError),
        ("average", "no", TypeError),
        ("seed", 1.0, TypeError),
    ],
)
def test_wrong_values_are_named(option: str, value: Any, error: type[Exception] | None) -> None:
    if error is None:
        engine(**{option: value})
        return
    with pytest.raises(error, match=option):
        engine(**{option: value})


@pytest.mark.parametrize("dtype", [4, 5])
def test_integers_are_not_averaged(dtype: int) -> None:
    with pytest.raises(TypeError, match="integers"):
        check_options(Options().engine(4, 10, dtype))
    check_options(Options(average=False).engine(4, 10, dtype))


def test_the_engine_knows_no_other_options() -> None:
    with pytest.raises(TypeError, match="'colour'"):
        check_options({"size": 1, "colour": 3})


def test_the_environment_overrides() -> None:
    environ = {
        "WAGMA_TRANSPORT": "shm",
        "WAGMA_STALL_WARNING": "2.5",
        "WAGMA_REDO_AFTER": "0.001",
        "WAGMA_SHM_LIMIT": "1000000",
        "HOME": "/",
    }
    used = Options(stall_warning=7.0, group_size=2).with_environment(environ)
    assert used == Options(
        transport="shm",
        stall_warning=2.5,
        redo_after=0.001,
        shm_limit=1_000_000,
        group_size=2,
    )
    assert Options().with_environment({"WAGMA_STALL_WARNING": "none"}).stall_warning is None
    assert Options().with_environment({}) == Options()


@pytest.mark.parametrize("variable", ["WAGMA_STALL_WARNING", "WAGMA_REDO_AFTER", "WAGMA_SHM_LIMIT"])
def test_a_wrong_variable_is_named(variable: str) -> None:
    with pytest.raises(ValueError, match=f"{variable}='much'"):
        Options().with_environment({variable: "much"})


def test_arguments_are_the_options() -> None:
    fields = {field.name for field in dataclasses.fields(Options)}
    assert Arguments.__optional_keys__ == fields
