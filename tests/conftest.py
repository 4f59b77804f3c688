"""For all tests: the modules beside this can be imported, and options are what tests say."""

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
