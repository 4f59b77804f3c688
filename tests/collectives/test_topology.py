"""The Python face of the grouping; the grouping itself is tested exhaustively in C."""

import pytest

from wagma.collectives import topology


def test_groups_of_the_paper() -> None:
    assert topology.groups(8, 4, 0) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert topology.groups(8, 4, 1) == [(0, 1, 4, 5), (2, 3, 6, 7)]


@pytest.mark.parametrize("size", range(1, 17))
def test_groups_partition_the_ranks(size: int) -> None:
    for group_size in range(1, size + 1):
        for version in range(9):
            groups = topology.groups(size, group_size, version)
            assert len(groups) == -(-size // group_size)
            assert groups == sorted(groups)
            assert sorted(rank for group in groups for rank in group) == list(range(size))
            sizes = {len(group) for group in groups}
            assert max(sizes) - min(sizes) <= 1
            for group in groups:
                assert group == tuple(sorted(group))
                for rank in group:
                    assert topology.group_of(rank, size, group_size, version) == group


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((0, 1, 0), "size"),
        ((4, 0, 0), "group_size"),
        ((4, 5, 0), "group_size"),
        ((4, 2, -1), "version"),
        ((1_000_000, 2, 0), "size"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[int, int, int], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        topology.groups(*arguments)


def test_rank_out_of_range() -> None:
    for rank in (-1, 4):
        with pytest.raises(ValueError, match="rank"):
            topology.group_of(rank, 4, 2, 0)


def test_versions_beyond_32_bits() -> None:
    assert len(topology.groups(6, 2, 2**39)) == 3
