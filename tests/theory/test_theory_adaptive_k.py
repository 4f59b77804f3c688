"""The policy of adaptive fastest-k SGD, beside a literal transcription of Algorithm 1."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from wagma.theory.fastest_k import AdaptiveK


def printed(products: list[float], k: int, n: int, step: int, thresh: int, burnin: int) -> Any:
    """Algorithm 1 line by line; `products` starts with the second iteration's. Yields each k."""
    count_negative, count_iter = 0, 1
    for j in range(len(products) + 1):
        if j > 0:
            count_negative = count_negative + (1 if products[j - 1] < 0 else -1)
        if count_negative > thresh and count_iter > burnin and k <= n - step:
            k = k + step
            count_negative = 0
            count_iter = 0
        count_iter = count_iter + 1
        yield k


@pytest.mark.parametrize("burnin", [0, 5, 40])
def test_it_is_the_algorithm_of_the_paper(burnin: int) -> None:
    rng = np.random.default_rng(3)
    products = rng.normal(-0.3, 1.0, 400).tolist()
    policy = AdaptiveK(2, 20, 3, 4, burnin)
    ks = [policy.update(product) for product in [None, *products]]
    assert ks == list(printed(products, 2, 20, 3, 4, burnin))
    assert ks[0] == 2
    assert ks[-1] == 20
    assert len(set(ks)) == 7


def switches(policy: AdaptiveK, products: Iterator[float | None]) -> list[int]:
    """Iterations, from 1, after which k is another."""
    found = []
    for iteration, product in enumerate(products, 1):
        before = policy.k
        if policy.update(product) != before:
            found.append(iteration)
    return found


def always(times: int, product: float = -1.0) -> Iterator[float | None]:
    return iter([None] + [product] * (times - 1))


def test_when_it_switches() -> None:
    # The count is above 2 after four iterations, since the first compares nothing; then three.
    assert switches(AdaptiveK(1, 8, 2, 2, 0), always(20)) == [4, 7, 10]
    # countIter is 6 in the sixth iteration; after a switch it starts with 1 in the next one.
    assert switches(AdaptiveK(1, 8, 2, 2, 5), always(20)) == [6, 12, 18]
    assert switches(AdaptiveK(1, 8, 2, 0, 0), always(20, product=0.0)) == []


def test_what_bounds_k() -> None:
    for policy, largest in (
        (AdaptiveK(1, 8, 2, 0, 0), 7),
        (AdaptiveK(1, 9, 2, 0, 0), 9),
        (AdaptiveK(10, 50, 10, 0, 0, k_max=40), 40),
        (AdaptiveK(10, 50, 10, 0, 0, k_max=39), 30),
        (AdaptiveK(2, 20, 1, 0, 0, k_max=8, schedule="double"), 8),
        (AdaptiveK(2, 20, 1, 0, 0, schedule="double"), 16),
        (AdaptiveK(4, 4, 1, 0, 0), 4),
    ):
        switches(policy, always(30))
        assert policy.k == largest


def test_a_checkpoint_goes_on() -> None:
    rng = np.random.default_rng(4)
    policy, other = (AdaptiveK(1, 10, 2, 3, 6) for _ in range(2))
    for product in rng.normal(-0.5, 1.0, 17):
        policy.update(product)
    other.load_state(policy.state())
    for product in rng.normal(-0.5, 1.0, 40):
        assert policy.update(product) == other.update(product)
    assert policy.state() == other.state()
    assert policy.k == 9


GOOD: dict[str, Any] = {"k0": 2, "n": 8, "step": 1, "thresh": 0, "burnin": 0}


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ({"k0": 0}, ValueError, "k0 is 0: at least 1"),
        ({"k0": 9}, ValueError, "k0 is 9: at most 8"),
        ({"k0": 1.5}, TypeError, "k0 is 1.5: an integer"),
        ({"n": 0}, ValueError, "n is 0"),
        ({"k_max": 1}, ValueError, "k_max is 1: at least 2"),
        ({"k_max": 9}, ValueError, "k_max is 9: at most 8"),
        ({"step": 0}, ValueError, "step is 0"),
        ({"thresh": -1}, ValueError, "thresh is -1.0"),
        ({"thresh": math.inf}, ValueError, "thresh is inf"),
        ({"burnin": math.nan}, ValueError, "burnin is nan"),
        ({"burnin": "soon"}, TypeError, "burnin is 'soon'"),
        ({"schedule": "triple"}, ValueError, "schedule is 'triple': one of additive, double"),
    ],
)
def test_wrong_arguments_are_named(
    wrong: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        AdaptiveK(**GOOD | wrong)


def test_wrong_values_change_nothing() -> None:
    policy = AdaptiveK(**GOOD)
    policy.update(None)
    before = policy.state()
    for call, argument, error, said in (
        (policy.update, math.nan, ValueError, "inner_product is nan"),
        (policy.update, "x", TypeError, "inner_product is 'x'"),
        (policy.load_state, {"k": 3}, ValueError, "state has no count_iter, count_negative"),
        (policy.load_state, before | {"k": 1}, ValueError, "k is 1: at least 2"),
        (policy.load_state, before | {"count_iter": 0.5}, TypeError, "count_iter is 0.5"),
        (policy.load_state, before | {"count_negative": 9}, ValueError, "count_negative is 9"),
    ):
        with pytest.raises(error, match=said):
            call(argument)  # type: ignore[operator]
        assert policy.state() == before
