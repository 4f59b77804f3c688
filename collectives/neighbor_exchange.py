"""Collective of decentralized training: weighted averages with a few neighbours per version."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsFloat

from . import _engine
from .creation import create
from .graph_options import NeighborOptions
from .options import with_keywords
from .rendezvous.meeting import CollectiveMeta, Comm, Meeting

if TYPE_CHECKING:
    from typing import Unpack

    from .graph_options import NeighborArguments
    from .stats import Stats


class NeighborExchange(metaclass=CollectiveMeta):
    """Weighted averages with neighbours, the collective of D-PSGD and SGP.

    ``exchange(x)`` executes one version per call: it publishes `x` and waits until every rank that
    sends to this one at that version has published its own array. A rank waits for these neighbours
    only: a straggler delays its neighbours in this version, their neighbours in the next one, and
    so on. (With `PartialAllreduce` no rank waits for a straggler.) No rank is ever late, and the
    results of all runs are the same, to the bit.

    With P ranks, at version t, with distances modulo P::

        graph           distances that a rank sends to               neighbours
        "ring"          1 and -1 (2 ranks: each other; 1: none)      2
        "exponential"   2^((t n + i) mod ceil(log2 P)), i < n        n = `neighbors`
                        (more than ceil(log2 P): all of these and
                        the smallest other distances)

    A rank with n neighbours gives a share of 1/(n + 1) to each of them and to itself. The matrix of
    shares is doubly stochastic: the mean over all ranks does not change, and repeated exchanges
    converge to it (`topology.neighbors` returns the matrix).

    This collective has no `sync`. For a mean over all ranks keep a
    ``PartialAllreduce(comm, x, quorum="all")`` beside it. It has no `iallreduce`, `lend` or `empty`
    either: publishing copies a contribution, so that a slow neighbour does not delay this rank.

    Creation, with keyword arguments that are the fields of `NeighborOptions`, is collective over
    `comm`, and errors are raised on every rank::

        NeighborExchange(comm, like, *, graph="ring", neighbors=1, average=True, transport="auto",
            memory="auto", timeout=None, stall_warning=60.0, name=None, shm_limit=None,
            progress="sleep:1000", progress_cpu=None)

    The environment overrides transport, memory, stall_warning, shm_limit, progress and
    progress_cpu: WAGMA_TRANSPORT and so on. The communicator is not used afterwards.

    Args:
        comm: mpi4py intracommunicator; None, which needs no MPI: see `PartialAllreduce`.
        like: array that gives shape, memory and dtype (float16, bfloat16, float32 or float64):
            numpy, torch, CuPy, a C-contiguous buffer or DLPack, in host memory on all ranks, or on
            GPUs on all (docs/gpu.md). Its elements are not used.
        options: see `NeighborOptions`. Shared memory takes twice the array per rank.

    Raises:
        TypeError, ValueError: an argument is wrong; the array holds integers; `neighbors` is too
            large; `comm` is None and no launcher has set the ranks.
        MismatchError: the ranks passed different arguments.
        SegmentError: /dev/shm is too small.
        DeviceError: the GPU, its driver or NVRTC is not available.
        TransportError, ImportError, NotImplementedError, RuntimeError: see `PartialAllreduce`.
        PeerError, StallError: another rank ended; it did not arrive within `timeout`.

    As a context manager it is closed at the end; an exception marks this rank as failed, and so
    does the exit of the interpreter before `close`. Thread-safety: different collectives may be
    used by different threads at once, one collective by one thread at a time.

    Attributes:
        options: the options in force.
    """

    @with_keywords(NeighborOptions)
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
        """Replace `x` by this rank's average of version `self.version`; advance the version by one.

        With shares A[r][j] of this version (`topology.neighbors`), weights c[j] and contributions
        x[j] of the ranks j that send to this rank r, itself among them, and with
        w = sum of A[r][j] c[j]::

            average=True    x = sum of A[r][j] c[j] x[j], divided by w
            average=False   x = sum of A[r][j] c[j] x[j]

        The outcome's `weight` is w in both cases. With average=True this is push-sum: where x is
        the de-biased model z and `weight` the push-sum weight, the numerators are c[j] z[j], and
        ``outcome.weight`` is the next weight::

            weight = outcome.weight    # after: outcome = exchanged.exchange(z, weight)

        Sums are computed in ascending order of ranks, in float32 for 16-bit elements, so that they
        are the same in every run. A contribution of weight 0 is not read; if all weights are 0, x
        stays unchanged and `merged` is False. A closed neighbour counts with weight 0: its share is
        missing (in w as well), and shares for it are lost.

        Args:
            x: array of the collective's shape, dtype and memory (the host's, or a GPU's): numpy,
                torch, CuPy, a C-contiguous buffer or DLPack; overwritten.
            weight: c of this rank, finite and >= 0.

        Returns:
            The outcome: `weight`, `waited`, `merged`, and the `contributors`: the ranks whose
            weight was not 0. All of `versions` are this version; `late` is False.

        Raises:
            TypeError, ValueError: x or weight is wrong; the collective stays usable.
            PeerError, StallError: a neighbour is dead or missing; the collective is broken.
            HandleError: the collective cannot be used.
        """
        return self._handle.allreduce(x, weight)

    @property
    def version(self) -> int:
        """Return the version of the next `exchange`; the first is 0."""
        return self._handle.version

    @property
    def rank(self) -> int:
        """Return this rank."""
        return self._handle.rank

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        return self._handle.size

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the arrays."""
        return self._handle.shape

    @property
    def dtype(self) -> str:
        """Return the name of the element type."""
        return self._handle.dtype

    @property
    def name(self) -> str | None:
        """Return the name that warnings show."""
        return self._handle.name

    @property
    def hint(self) -> str | None:
        """Return the advice that warnings about long waits add."""
        return self._handle.hint

    @hint.setter
    def hint(self, text: str | None) -> None:
        self._handle.hint = text

    @property
    def transport(self) -> str:
        """Return the transport in use: "shm" or "mpi"."""
        return self._handle.transport

    @property
    def device(self) -> str | None:
        """Return the name of the GPU that has the arrays; None: they are in host memory."""
        return self._handle.device

    @property
    def memory(self) -> str:
        """Return where contributions are: "host"; "staged" for arrays on a GPU, see `Options`."""
        return self._handle.memory

    @property
    def closed(self) -> bool:
        """Return whether it was closed or has failed."""
        return self._handle.closed

    def stats(self) -> Stats:
        """Return counters of this rank since creation; local, also after `close()`.

        `ranks` is empty: counters of other ranks are gathered at sync versions only.
        """
        return self._handle.stats()

    def dump_state(self) -> str:
        """Return the state and the last events of this rank as text; from any thread."""
        return self._handle.dump_state()

    def lost(self) -> list[int]:
        """Return the ranks that are known to have failed or died; see `PartialAllreduce.lost`."""
        return self._handle.lost()

    def close(self) -> None:
        """Leave the collective: weight 0 from the next version on, and no rank waits for this one.

        With transport="shm" it is local and does not block. With "mpi" it is collective: it returns
        when all ranks have closed (or failed). Close the collectives of a program in the same order
        on all ranks. `timeout` counts from the last sign of life of a rank, see
        `PartialAllreduce.close`. Repeated calls, and calls in a forked child, do nothing.

        Raises:
            PeerError, StallError: with transport="mpi"; it is closed all the same.
            KeyboardInterrupt, or what another signal handler raised: likewise.
        """
        self._handle.close()

    def fail(self) -> None:
        """Mark this rank as failed: every wait that needs it raises PeerError at once."""
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
        device = ""
        if self.device is not None:
            device = f"device={self.device!r}, memory={self.memory!r}, "
        state = "closed" if self.closed else f"version={self.version}"
        return (
            f"{type(self).__name__}({name}rank={self.rank}, size={self.size}, shape={self.shape}, "
            f"dtype={self.dtype}, transport={self.transport!r}, {device}graph={options.graph!r}, "
            f"neighbors={options.neighbors}, average={options.average}, {state}, "
            f"segment_bytes={self.stats().segment_bytes})"
        )
