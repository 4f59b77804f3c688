"""Tests that start ranks without MPI; one that hangs is ended with the stacks of its threads."""

import watchdog

WATCHDOG_S = 240.0  # torchrun takes its time on a busy machine

pytest_configure = watchdog.keep_stderr
watched = watchdog.every_test(WATCHDOG_S)
