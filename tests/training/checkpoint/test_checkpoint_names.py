"""The pure parts of checkpoints: names and their order, manifests, wholeness, differences."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wagma.checkpoint.manifest import Manifest, Training, differences, why_not_whole
from wagma.checkpoint.names import Place, data_name, manifest_name, newest_first, ranks_of
from wagma.checkpoint.reading import Plan

TRAINING = Training(
    "WAGMA", {"group_size": "2"}, "ComputePolicy", "SGD", [2], {"w": "float32 [2]"}, []
)


def part(rank: int, size: int = 2, token: str = "a", run: int = 1, version: int = 7) -> Manifest:
    return Manifest(rank, size, run, token, version, f"rank-{rank:05d}.pt", 9, "crc32:0", TRAINING)


def whole(size: int) -> dict[int, Manifest | str]:
    return {rank: part(rank, size) for rank in range(size)}


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 10**12)), unique=True))
def test_later_runs_and_versions_come_first_whatever_the_order(
    places: list[tuple[int, int]],
) -> None:
    names = [str(Place(*place)) for place in places]
    others = ["lock", "run-1-version-2", "run-001-version-00000002.tmp", "x" + str(Place(1, 2))]
    assert newest_first([*others, *names]) == [Place(*one) for one in sorted(places, reverse=True)]


def test_names_of_a_ranks_files() -> None:
    assert ranks_of(
        [manifest_name(3), manifest_name(123456), data_name(4), "rank-00001.json.tmp"]
    ) == {3, 123456}


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert Manifest.read(part(1).text()) == part(1)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "Expecting value"),
        ("[]", "format None"),
        (part(0).text().replace('"format": 1', '"format": 2'), "format 2"),
        (part(0).text().replace('"size": 2', '"size": 3'), "not as it was written"),
        ('{"format": 1}', "not as it was written"),
        (replace(part(0), size="2").text(), "size='2'"),
        (part(2).text(), "rank 2 of 2"),
        (replace(part(0), file="../rank-00000.pt").text(), "outside its folder"),
        (replace(part(0), training=replace(TRAINING, groups=None)).text(), "groups=None"),
    ],
)
def test_a_text_that_is_no_manifest_is_refused(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Manifest.read(text)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_checkpoint_is_whole_with_the_manifests_of_all_its_ranks(size: int) -> None:
    assert why_not_whole(whole(size)) is None
    for missing in range(size):
        rest = {rank: one for rank, one in whole(size).items() if rank != missing}
        assert why_not_whole(rest) in (
            "no rank has finished its part",
            f"the part of rank {missing} of {size} is missing",
        )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({2: part(2, 2)}, "different jobs"),
        ({1: part(1, 3, token="b")}, "different jobs"),
        ({1: part(1, 3, run=2)}, "different jobs"),
        ({1: part(0, 3)}, "manifest of rank 1 is that of rank 0"),
        ({1: "is torn"}, "manifest of rank 1 is torn"),
    ],
)
def test_a_checkpoint_of_parts_that_do_not_belong_together_is_not_whole(
    changes: dict[int, Manifest | str], why: str
) -> None:
    assert why in (why_not_whole(whole(3) | changes) or "")


def test_everything_that_does_not_match_is_listed() -> None:
    other = Training(
        "LocalSGD", {}, "DropCompute", "Adam", [1, 1], {"w": "float64 [2]", "v": "int64 []"}, ["s"]
    )
    assert differences(TRAINING, TRAINING) == []
    lines = differences(TRAINING, other)
    assert lines == [
        "algorithm: saved WAGMA, here LocalSGD",
        "compute policy: saved ComputePolicy, here DropCompute",
        "inner optimizer: saved SGD, here Adam",
        "parameters in each group: saved [2], here [1, 1]",
        "tensor w: saved float32 [2], here float64 [2]",
        "tensor v: here int64 [], not saved",
        "extra 's': here, not saved",
    ]
    assert "extra 's': saved, not here" in differences(other, TRAINING)


def test_arguments_are_compared_on_as_many_ranks_only() -> None:
    other = replace(TRAINING, arguments={"group_size": "4"})
    assert differences(TRAINING, other) == ["argument of WAGMA group_size: saved 2, here 4"]
    assert differences(TRAINING, other, same_size=False) == []


def test_a_long_list_is_cut() -> None:
    many = replace(TRAINING, tensors={f"t{i}": "float32 [1]" for i in range(100)})
    lines = differences(many, replace(many, tensors={}))
    assert len(lines) == 21
    assert lines[-1] == "and 80 more"


@settings(deadline=None)  # the machine may be busy
@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_each_saved_model_is_added_up_by_one_rank(
    saved: int, size: int, data: st.DataObject
) -> None:
    versions = data.draw(st.lists(st.integers(0, 3), min_size=saved, max_size=saved))
    plans = [Plan.of(rank, size, versions, replicas=False) for rank in range(size)]
    summed = sorted(rank for plan in plans for rank in plan.summed)
    assert summed == ([] if size == saved else list(range(saved)))
    assert all(plan.newest is None and plan.own < saved for plan in plans)
    for rank, plan in enumerate(Plan.of(r, size, versions, replicas=True) for r in range(size)):
        taken = plan.own if plan.newest is None else plan.newest
        assert versions[taken] == max(versions)
        assert plan.own == (rank if size == saved else rank % saved)
