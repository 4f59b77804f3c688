"""What a rank does between posting a reduction and waiting for it."""

import time
from collections.abc import Callable

import numpy as np

# What is done, in the words of a report's header.
ARITHMETIC = "arithmetic on arrays in the first cache"
SLEEPING = "sleeping, since ranks outnumber cores"

WORDS = 512  # of each array: together they stay in the first cache


class Computing:
    """Computes for as long as it is told to; not thread-safe.

    Args:
        clock: ns.
        crowded: ranks outnumber cores. They then sleep: a computing rank would preempt a reducing
            one, and the time of a reduction would include other ranks' computing.
    """

    def __init__(self, clock: Callable[[], int], *, crowded: bool) -> None:
        self._clock = clock
        self._crowded = crowded
        self._x = np.zeros(WORDS, np.float32)
        self._y = np.ones(WORDS, np.float32)

    def spend(self, ns: int, tests: int, test: Callable[[], object]) -> tuple[int, int]:
        """Compute for `ns`, interrupted by `tests` calls of `test`, whose time comes on top.

        Returns:
            ns computed, and ns in `test`.
        """
        clock = self._clock
        began, testing = clock(), 0
        for i in range(tests):
            self._until(began + testing + ns * (i + 1) // (tests + 1))
            asked = clock()
            test()
            testing += clock() - asked
        self._until(began + testing + ns)
        return clock() - began - testing, testing

    def _until(self, due: int) -> None:
        clock, x, y = self._clock, self._x, self._y
        if self._crowded:
            time.sleep(max(0, due - clock()) * 1e-9)
        while clock() < due:
            np.add(x, y, out=x)
