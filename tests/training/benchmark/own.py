"""Define objects that a user may name in --algorithms, and that the benchmark refuses."""

from typing import Any

import wagma


def policy(comm: Any) -> wagma.DropCompute:
    return wagma.DropCompute(wagma.AllreduceSGD(comm), 2)


def nothing(comm: Any) -> None:
    comm.Get_rank()


def broken(comm: Any) -> None:
    raise ZeroDivisionError(f"no algorithm over {comm}")
