from collections.abc import Callable
from typing import Any, SupportsFloat, final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from wagma.collectives import Handle

Times = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

class PeerLeftError(RuntimeError): ...

def now() -> int: ...
def words_of(size: int) -> int: ...

class Meeting:
    margin_ns: int
    correction_ns: int
    def __init__(
        self,
        memory: Buffer | None,
        rank: int,
        size: int,
        *,
        crowded: bool,
        margin_ns: int = 3000,
        correction_ns: int = 0,
        timeout: SupportsFloat | None = None,
    ) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def crowded(self) -> bool: ...
    @property
    def missed(self) -> int: ...
    def now(self) -> int: ...
    def meet(self) -> None: ...
    def wait(self, arrival_ns: int = 0) -> int: ...
    def round_trip(self, volleys: int = 50) -> float | None: ...
    def leave(self) -> None: ...
    def agree(self, now: int) -> int: ...
    def check(self, rank: int) -> None: ...

@final
class Call: ...

def wagma_call(
    handle: Handle, *, weight: float = 1.0, allreduce: int, next_contribution: int
) -> Call: ...
def mpi_call(
    *,
    function: int,
    sendbuf: int,
    recvbuf: int,
    count: int,
    datatype: int,
    op: int,
    comm: int,
    handle_bytes: int,
    error: Callable[[int], BaseException],
) -> Call: ...
def outcome_dtype(size: int) -> np.dtype[np.void]: ...
def run(
    start: Meeting | None,
    call: Call,
    x_address: int,
    inputs: Bytes,
    arrivals: Times,
    began: Times,
    ended: Times,
    results: Bytes | None = None,
    outcomes: npt.NDArray[Any] | None = None,
) -> None: ...
