"""One rank of a pytest launch: LOG.RANK.log gets its output. Arguments: LOG, then pytest's."""

import os
import sys

import pytest


def main() -> int:
    log, *arguments = sys.argv[1:]
    rank = os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
    # Descriptors, not sys.stdout: the engine, MPI and a crash write there too.
    output = os.open(
        f"{log}.{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644
    )
    os.dup2(output, 1)
    os.dup2(output, 2)
    # A test that hangs leaves the stacks of its ranks in the logs. Ranks that tidied up the same
    # folder of temporary files would get into each other's way.
    own = [
        "-o",
        "faulthandler_timeout=60",
        "-p",
        "no:cacheprovider",
        f"--basetemp={log}.{rank}.tmp",
    ]
    return pytest.main([*own, *arguments])


if __name__ == "__main__":
    sys.exit(main())
