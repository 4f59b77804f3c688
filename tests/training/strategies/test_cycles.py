"""After how many versions groups come again."""

import pytest

from wagma.collectives import topology
from wagma.training.strategies.cycles import group_cycle


@pytest.mark.parametrize("size", [*range(1, 20), 32, 48])
def test_groups_repeat_after_a_cycle(size: int) -> None:
    for group_size in range(1, size + 1):
        cycle = group_cycle(size, group_size, "dynamic")
        for version in range(min(cycle, 40)):
            assert topology.groups(size, group_size, version) == topology.groups(
                size, group_size, version + cycle
            )


@pytest.mark.parametrize(("size", "group_size", "cycle"), [(4, 2, 2), (8, 4, 3), (8, 8, 1)])
def test_no_shorter_cycle_for_powers_of_two(size: int, group_size: int, cycle: int) -> None:
    assert group_cycle(size, group_size, "dynamic") == cycle
    shown = [topology.groups(size, group_size, version) for version in range(cycle)]
    assert len({str(groups) for groups in shown}) == cycle


def test_fixed_groups_have_no_cycle() -> None:
    assert group_cycle(8, 4, "fixed") == group_cycle(6, 2, "pairs") == 1
