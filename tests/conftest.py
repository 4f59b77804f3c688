"""For all tests: the modules beside this can be imported, and options are what tests say."""

import gc
import os

# They would override the options that tests set.
for _name in (
    "WAGMA_TRANSPORT",
    "WAGMA_STALL_WARNING",
    "WAGMA_REDO_AFTER",
    "WAGMA_SHM_LIMIT",
    "WAGMA_PROGRESS",
    "WAGMA_PROGRESS_CPU",
):
    os.environ.pop(_name, None)


# What is imported stays: the garbage collector need not look at it, neither while tests are
# collected nor later. (It stays off in xdist's controller, which collects none and keeps little.)
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
