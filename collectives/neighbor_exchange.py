"""The collective of decentralized training: averages with a few neighbours per version."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsFloat

from . import _engine
from .creation import create
from .graph_options import NeighborOptions
from .rendezvous.meeting import CollectiveMeta, Comm, Meeting

if TYPE_CHECKING:
    from typing import Unpack

    from .graph_options import NeighborArguments
    from .stats import Stats

__all__ = ["NeighborExchange"]


class NeighborExchange(metaclass=CollectiveMeta):
    """Weighted averages with neighbours, the collective of D-PSGD and SGP.

    ``exchange(x)`` takes version after version: it publishes `x` and waits until every rank that
    sends to this one at the version has published its own. Ranks wait for these neighbours and for
    nobody else: a straggler delays its neighbours in this version, theirs in the next one, and so
    on. (With `PartialAllreduce` nobody waits for it.) A rank is never late and never a version off:
    what it gets is the same in every run, to the bit.

    Of P ranks and at version t, with distances modulo P::

        graph           a rank sends to                              neighbours
        "ring"          1 and -1 (2 ranks: each other; 1: nobody)    2
        "exponential"   2^((t n + i) mod ceil(log2 P)), i < n        n = `neighbors`
                        (more than ceil(log2 P): all of these and
                        the smallest other distances)

    A rank with n neighbours gives a share of 1/(n + 1) to each of them and to itself, so that the
    matrix of shares is doubly stochastic: the mean of all ranks' arrays stays what it is, and
    repeated exchanges bring everybody there (`topology.neighbors` has the matrix).

    A collective of all ranks is not what this is for: it has no `sync`. Who needs a mean of all
    ranks keeps a ``PartialAllreduce(comm, x, quorum="all")`` beside it. Nor does it post
    (`iallreduce`), lend, or have an array of its own (`empty`): a contribution is copied when it is
    published, so that a neighbour that comes later does not make this rank wait.

    Creation is collective over `comm`, and errors are raised on every rank. The environment
    overrides transport, stall_warning, shm_limit, progress and progress_cpu: WAGMA_TRANSPORT and so
    on. The communicator is not used afterwards.

    Args:
        comm: mpi4py intracommunicator; None, which needs no MPI: see `PartialAllreduce`.
        like: array that gives shape and dtype (float16, bfloat16, float32 or float64): numpy, torch
            on the CPU, a C-contiguous buffer or DLPack. Its elements are not used.
        graph, neighbors, average: see `NeighborOptions`.
        transport: "shm": the ranks share memory on one node, twice the array per rank. "mpi": they
            send messages, and may be on any nodes; where a rank computes, a thread takes and sends
            what is under way (`progress`). "auto": "shm" where all are on one node, or "mpi".
        timeout: seconds until a wait ends in StallError; None: never.
        stall_warning: seconds between warnings about a stuck wait; None: no warnings.
        name: shown in warnings and by repr.
        shm_limit, progress, progress_cpu: see `Options`.

    Raises:
        TypeError, ValueError: an argument is wrong, as are integer arrays and more `neighbors` than
            there are; `comm` is None and no launcher has told the ranks.
        MismatchError: the ranks passed different arguments.
        SegmentError: /dev/shm is too small.
        TransportError, ImportError, NotImplementedError, RuntimeError: see `PartialAllreduce`.
        PeerError, StallError: another rank ended; it did not come within `timeout`.

    Used as a context manager it is closed at the end; an exception marks this rank as failed. Left
    open at the exit of the interpreter, too. Thread-safety: different collectives may be used by
    different threads at once, one collective by one thread at a time.

    Attributes:
        options: the options in force.
    """

    def __init__(self, comm: Comm, like: Any, **options: Unpack[NeighborArguments]) -> None:
        self.met = True

        def make(
            over: _engine.Segment | _engine.Channel, meeting: Meeting, used: NeighborOptions
        ) -> _engine.Handle:
            self._handle = _engine.Handle(
                over, meeting.rank, like, name=used.name, watch=meeting.check
            )
            return self._handle

        read = partial(NeighborOptions.of, collective=type(self).__name__)
        self.options, _ = create(comm, like, options, read, make)

    def exchange(self, x: Any, weight: SupportsFloat = 1.0) -> _engine.Outcome:
        """`x` becomes this rank's combination of version `self.version`, which moves on by one.

        With shares A[r][j] of this version (`topology.neighbors`), weights c[j] and contributions
        x[j] of the ranks j that send to this rank r, itself among them, and with
        w = sum of A[r][j] c[j]::

            average=True    x = sum of A[r][j] c[j] x[j], divided by w
            average=False   x = sum of A[r][j] c[j] x[j]

        The outcome's `weight` is w in both cases. With average=True this is push-sum: where x is
        the de-biased model z and `weight` the push-sum weight, the numerators are c[j] z[j], and
        ``outcome.weight`` is the next weight::

            weight = outcome.weight    # after: outcome = exchanged.exchange(z, weight)

        Sums are taken by ascending rank, of 16-bit elements in float32, so that they are the same
        in every run. With weight 0 a contribution is not read; where all weights are 0, x stays as
        it is and `merged` is False. A neighbour that has closed counts as one of weight 0: its
        share is missing (in w as well), and what others would give to it is lost.

        Args:
            x: array of the collective's shape and dtype: numpy, torch on the CPU, a C-contiguous
                buffer or DLPack; overwritten.
            weight: c of this rank, finite and >= 0.

        Returns:
            What the version gave: `weight`, `waited`, `merged`, and of `contributors`, the ranks
            whose weight was not 0, the `versions`, which are all this one; `late` is False.

        Raises:
            TypeError, ValueError: x or weight is wrong; the collective stays usable.
            PeerError, StallError: a neighbour is dead or missing; the collective is broken.
            HandleError: the collective cannot be used.
        """
        return self._handle.allreduce(x, weight)

    @property
    def version(self) -> int:
        """The version that the next `exchange` takes; the first is 0."""
        return self._handle.version

    @property
    def rank(self) -> int:
        """This rank."""
        return self._handle.rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._handle.size

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the arrays."""
        return self._handle.shape

    @property
    def dtype(self) -> str:
        """Name of the element type."""
        return self._handle.dtype

    @property
    def name(self) -> str | None:
        """What warnings call it."""
        return self._handle.name

    @property
    def hint(self) -> str | None:
        """What warnings about waits that last say besides."""
        return self._handle.hint

    @hint.setter
    def hint(self, text: str | None) -> None:
        self._handle.hint = text

    @property
    def transport(self) -> str:
        """What "auto" came to: "shm" or "mpi"."""
        return self._handle.transport

    @property
    def closed(self) -> bool:
        """Whether it was closed, or has failed."""
        return self._handle.closed

    def stats(self) -> Stats:
        """Counters of this rank since creation; local, and works after `close()` too.

        There are none of other ranks (`ranks` is empty): these meet at sync versions.
        """
        return self._handle.stats()

    def dump_state(self) -> str:
        """What this rank is doing and what it did last, as text; from any thread."""
        return self._handle.dump_state()

    def lost(self) -> list[int]:
        """The ranks that are known to have failed or died; see `PartialAllreduce.lost`."""
        return self._handle.lost()

    def close(self) -> None:
        """This rank departs: weight 0 from the next version on, and nobody waits for it.

        With transport="shm" it is local and does not block. With "mpi" it is collective: it returns
        when all ranks have closed (or failed); the collectives of a program are closed in the same
        order on all ranks. `timeout` counts from the last sign of life of a rank, see
        `PartialAllreduce.close`. Harmless when repeated, or in a forked child.

        Raises:
            PeerError, StallError: with transport="mpi"; it is closed all the same.
            KeyboardInterrupt, or what another signal handler raised: likewise.
        """
        self._handle.close()

    def fail(self) -> None:
        """Marks this rank as failed: every wait that needs it ends in PeerError at once."""
        self._handle.fail()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._handle.__exit__(kind, error, traceback)

    def __repr__(self) -> str:
        options = self.options
        name = "" if self.name is None else f"name={self.name!r}, "
        state = "closed" if self.closed else f"version={self.version}"
        return (
            f"{type(self).__name__}({name}rank={self.rank}, size={self.size}, shape={self.shape}, "
            f"dtype={self.dtype}, transport={self.transport!r}, graph={options.graph!r}, "
            f"neighbors={options.neighbors}, average={options.average}, {state}, "
            f"segment_bytes={self.stats().segment_bytes})"
        )
