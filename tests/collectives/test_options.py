"""Options: translation for the engine, what is refused, and the environment."""

import ast
import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from wagma.collectives import (
    GroupAllreduce,
    NeighborExchange,
    NeighborOptions,
    Options,
    PartialAllreduce,
)
from wagma.collectives._engine import check_options
from wagma.collectives.graph_options import NeighborArguments
from wagma.collectives.options import Arguments


def engine(size: int = 4, **options: Any) -> dict[str, int | float]:
    return check_options(Options(**options).engine(size=size, count=10, dtype=0))


def test_defaults() -> None:
    assert engine() == {
        "size": 4,
        "group_size": 4,
        "quorum": 4,
        "late": 0,
        "missed": 0,
        "activation": 0,
        "grouping": 0,
        "graph": 0,
        "neighbors": 0,
        "dtype": 0,
        "average": 1,
        "memory": 0,
        "count": 10,
        "sync_period": 0,
        "window": 64,
        "grace": -1,
        "timeout": -1,
        "stall_warning": 60,
        "redo_after": 200e-6,
        "shm_limit": 0,
        "seed": 0,
        "progress": 0,
        "progress_sleep": 1e-3,
        "progress_cpu": -1,
        "schedule_switch": 8 << 10,
        "schedule_chunk": 256 << 10,
        "schedule_part": 32 << 10,
        "schedule_direct": 16,
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
        "seed": 2**64 - 1,
        "progress_cpu": 3,
    }
    used = engine(**given)
    assert {name: used[name] for name in given} == {**given, "average": 0, "stall_warning": -1}


# The numbers are those of the enumerations in csrc/include/wagma_options.h.
@pytest.mark.parametrize(
    ("option", "value", "number", "others"),
    [
        ("late", "stale", 0, {}),
        ("late", "skip", 1, {}),
        ("late", "carry", 2, {}),
        ("missed", "once", 0, {}),
        ("missed", "fast-forward", 1, {}),
        ("activation", "group", 0, {"quorum": 1, "group_size": 2}),
        ("activation", "world", 1, {"quorum": 1, "group_size": 2}),
        ("grouping", "dynamic", 0, {}),
        ("grouping", "fixed", 1, {}),
        ("grouping", "pairs", 2, {}),
        ("quorum", "majority", -1, {}),
        ("quorum", "all", 4, {}),
    ],
)
def test_words_reach_the_engine(
    option: str, value: str, number: int, others: dict[str, Any]
) -> None:
    assert engine(**{option: value}, **others)[option] == number


@pytest.mark.parametrize(
    ("given", "window"),
    [
        ({"sync_period": 9}, 9),
        ({"late": "skip"}, 8),
        ({"late": "carry", "sync_period": 9}, 8),
        ({"late": "carry", "window": 3}, 3),
    ],
)
def test_the_default_window(given: dict[str, Any], window: int) -> None:
    assert engine(**given)["window"] == window


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_pairs_are_groups_of_two(size: int) -> None:
    pair = min(size, 2)
    assert engine(size, grouping="pairs")["group_size"] == pair
    assert engine(size, grouping="pairs", group_size=pair)["group_size"] == pair
    with pytest.raises(ValueError, match=rf"group_size=3 and grouping='pairs': .* pass {pair}$"):
        engine(size, grouping="pairs", group_size=3)


@pytest.mark.parametrize(
    ("option", "value", "known"),
    [
        ("late", "STALE", "'stale', 'skip' or 'carry'"),
        ("late", "never", "'stale', 'skip' or 'carry'"),
        ("missed", "twice", "'once' or 'fast-forward'"),
        ("activation", "solo", "'group' or 'world'"),
        ("grouping", "ring", "'dynamic', 'fixed' or 'pairs'"),
        ("quorum", "minority", "an int, 'all' or 'majority'"),
        ("transport", "carrier pigeon", "'auto', 'shm' or 'mpi'"),
        ("progress", "thread", "'spin', 'yield', 'sleep:US' or 'main'"),
        ("progress", "sleep", "'spin', 'yield', 'sleep:US' or 'main'"),
        ("progress", "spin:5", "'spin', 'yield', 'sleep:US' or 'main'"),
    ],
)
def test_unknown_words_are_answered_with_the_known_ones(
    option: str, value: str, known: str
) -> None:
    with pytest.raises(ValueError, match=f"{option}='{value}' .*{known}"):
        engine(**{option: value})


@pytest.mark.parametrize(
    ("value", "number", "seconds"),
    [
        ("sleep:1000", 0, 1e-3),
        ("sleep:10", 0, 10e-6),
        ("sleep:1000000", 0, 1.0),
        ("yield", 1, 1e-3),
        ("spin", 2, 1e-3),
        ("main", 3, 1e-3),
    ],
)
def test_progress(value: str, number: int, seconds: float) -> None:
    used = engine(progress=value)
    assert (used["progress"], used["progress_sleep"]) == (number, pytest.approx(seconds))


@pytest.mark.parametrize("micros", ["9", "1000001", "", "US", "1e3", "-5", " 50", "٣"])
def test_sleeps_that_are_wrong(micros: str) -> None:
    with pytest.raises(ValueError, match=f"progress='sleep:{micros}'.* 10 to 1000000"):
        engine(progress=f"sleep:{micros}")


LATE_RULES = [
    ({"late": "skip", "missed": "fast-forward"}, "missed='fast-forward' and late='skip'"),
    ({"late": "carry", "missed": "fast-forward"}, "missed='fast-forward' and late='carry'"),
    ({"late": "skip", "activation": "world", "group_size": 2}, "pass activation='group', or gr"),
    ({"late": "carry", "activation": "world", "group_size": 3}, "pass activation='group', or gr"),
    ({"late": "carry", "activation": "world", "grouping": "pairs"}, "and group_size=2"),
]


@pytest.mark.parametrize(("given", "message"), LATE_RULES)
@pytest.mark.parametrize("quorum", [1, "all", "majority"])
def test_late_rules_that_make_no_sense(given: dict[str, Any], message: str, quorum: Any) -> None:
    with pytest.raises(ValueError, match=message):
        engine(quorum=quorum, **given)


@pytest.mark.parametrize("late", ["stale", "skip", "carry"])
def test_a_world_that_is_the_group_is_nothing_special(late: str) -> None:
    assert engine(late=late, activation="world")["activation"] == 0


@pytest.mark.parametrize(
    ("given", "most"),
    [
        ({"group_size": 2}, r"1 to 2 \(the members of a group\)"),
        ({"grouping": "pairs"}, r"1 to 2 \(the members of a group\)"),
        ({}, r"1 to 4 \(the number of ranks\)"),
        ({"group_size": 2, "activation": "world"}, r"1 to 4 \(the number of ranks\)"),
    ],
)
def test_the_largest_quorum(given: dict[str, Any], most: str) -> None:
    largest = int(re.findall(r"1 to (\d)", most)[0])
    engine(quorum=largest, **given)
    with pytest.raises(ValueError, match=f"quorum={largest + 1} must be {most}, 'all' or 'major"):
        engine(quorum=largest + 1, **given)


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("quorum", 0, ValueError),
        ("quorum", 5, ValueError),
        ("quorum", 1.5, TypeError),
        ("quorum", None, TypeError),
        ("group_size", 0, ValueError),
        ("group_size", 5, ValueError),
        ("group_size", -1, ValueError),
        ("group_size", "4", TypeError),
        ("group_size", 2**40, ValueError),
        ("sync_period", 0, ValueError),
        ("sync_period", 2.0, TypeError),
        ("sync_period", True, TypeError),
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
        ("stall_warning", 0, ValueError),
        ("stall_warning", False, TypeError),
        ("stall_warning", float("nan"), ValueError),
        ("redo_after", -1, ValueError),
        ("redo_after", "x", TypeError),
        ("shm_limit", 0, ValueError),
        ("shm_limit", 1.0, TypeError),
        ("average", 1, TypeError),
        ("average", "no", TypeError),
        ("seed", 1.0, TypeError),
        ("seed", True, TypeError),
        ("seed", -1, ValueError),
        ("seed", 2**64, ValueError),
        ("late", None, TypeError),
        ("late", 1, TypeError),
        ("missed", [], TypeError),
        ("activation", True, TypeError),
        ("grouping", b"pairs", TypeError),
        ("transport", None, TypeError),
        ("progress", 1000, TypeError),
        ("progress_cpu", -1, ValueError),
        ("progress_cpu", 2**20, ValueError),
        ("progress_cpu", 2**40, ValueError),
        ("progress_cpu", "0", TypeError),
    ],
)
def test_wrong_values_are_named(option: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=option) as caught:
        engine(**{option: value})
    assert "WAGMA_" not in str(caught.value)


@pytest.mark.parametrize("dtype", [4, 5])
def test_integers_are_not_averaged(dtype: int) -> None:
    with pytest.raises(TypeError, match=r"average=True .* integers .* pass average=False"):
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
        "WAGMA_PROGRESS": "spin",
        "WAGMA_PROGRESS_CPU": "1",
        "HOME": "/",
    }
    used = Options(stall_warning=7.0, group_size=2).with_environment(environ)
    assert used == Options(
        transport="shm",
        stall_warning=2.5,
        redo_after=0.001,
        shm_limit=1_000_000,
        progress="spin",
        progress_cpu=1,
        group_size=2,
    )
    assert Options(progress_cpu=1).with_environment({"WAGMA_PROGRESS_CPU": "None"}) == Options()
    assert Options().with_environment({"WAGMA_STALL_WARNING": "none"}).stall_warning is None
    assert Options().with_environment({}) == Options()


def test_the_last_core_of_a_rank_that_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {4, 5})
    for cores, core in ((8, 5), (2, None)):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        used = Options().with_environment({"WAGMA_PROGRESS_CPU": "last"})
        assert used.progress_cpu == core


@pytest.mark.parametrize(
    "variable", ["WAGMA_STALL_WARNING", "WAGMA_REDO_AFTER", "WAGMA_SHM_LIMIT", "WAGMA_PROGRESS_CPU"]
)
def test_a_wrong_variable_is_named(variable: str) -> None:
    with pytest.raises(ValueError, match=f"{variable}='much'"):
        Options().with_environment({variable: "much"})


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("WAGMA_TRANSPORT", "tcp", "transport='tcp' must be 'auto', 'shm' or 'mpi'"),
        ("WAGMA_PROGRESS", "foo", "progress='foo' must be 'spin'"),
        ("WAGMA_PROGRESS", "sleep:5", "progress='sleep:5': the microseconds"),
        ("WAGMA_PROGRESS_CPU", "-1", "progress_cpu=-1 must be the number of a core"),
        ("WAGMA_PROGRESS_CPU", "9999", "progress_cpu is 9999"),
        ("WAGMA_PROGRESS_CPU", "x", "not a number: it sets the option progress_cpu; give it one"),
        ("WAGMA_REDO_AFTER", "soon", "not a number: it sets the option redo_after; give it one"),
        ("WAGMA_SHM_LIMIT", "0", "shm_limit=0 must be at least 1"),
        ("WAGMA_REDO_AFTER", "nan", "redo_after=nan must be 0 or more seconds"),
        ("WAGMA_STALL_WARNING", "1e99", "stall_warning is 1e+99"),
        ("WAGMA_STALL_WARNING", "0", "stall_warning=0 must be 0.1 seconds or more, or None"),
    ],
)
def test_a_variable_that_its_option_refuses_is_named(variable: str, text: str, said: str) -> None:
    told = re.escape(f"{variable}={text!r} in the environment")
    with pytest.raises(ValueError, match=f"{told}(:| is) {re.escape(said)}"):
        Options(transport="shm").with_environment({variable: text})


def names_of(options: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(options)}


def test_arguments_are_the_options() -> None:
    assert Arguments.__optional_keys__ == names_of(Options)
    assert NeighborArguments.__optional_keys__ == names_of(NeighborOptions)


@pytest.mark.parametrize(
    ("collective", "options"), [(PartialAllreduce, Options), (NeighborExchange, NeighborOptions)]
)
def test_signatures_show_every_option(collective: Any, options: Any) -> None:
    shown = inspect.signature(collective)
    assert list(shown.parameters)[:2] == ["comm", "like"]
    keywords = list(shown.parameters.values())[2:]
    assert {each.name: each.default for each in keywords} == dataclasses.asdict(options())
    assert {each.kind for each in keywords} == {inspect.Parameter.KEYWORD_ONLY}
    # The docstring repeats the creation; its words are those of the signature.
    (call,) = re.findall(
        rf"^ +{collective.__name__}\(comm, like, \*, ([^)]*)\)", inspect.getdoc(collective), re.M
    )
    told = dict(each.split("=") for each in re.split(r",\s+", call))
    assert {name: ast.literal_eval(text) for name, text in told.items()} == {
        each.name: each.default for each in keywords
    }


def test_signatures_of_methods_show_their_own_arguments() -> None:
    assert list(inspect.signature(GroupAllreduce).parameters) == [
        "comm",
        "x",
        "group_size",
        "options",
    ]


def test_binding_knows_every_option_of_the_engine() -> None:
    # The binding writes the struct as a whole: a field that it does not know would hold anything.
    [header] = (Path(__file__).parents[2] / "csrc").rglob("wagma_options.h")
    struct = re.search(r"typedef struct wagma_options \{(.*?)\n\}", header.read_text(), re.DOTALL)
    assert struct is not None
    declared = re.findall(r"^    \w+ (\w+);", struct[1], re.MULTILINE)
    assert declared[0] == "struct_size"
    assert set(declared[1:]) == set(engine())
