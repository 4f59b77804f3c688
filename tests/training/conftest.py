"""Tests of the training benchmark; one that hangs is ended with the stacks of its threads."""

import watchdog

WATCHDOG_S = 240.0  # all algorithms on eight ranks, on a busy machine

pytest_configure = watchdog.keep_stderr
watched = watchdog.every_test(WATCHDOG_S)
