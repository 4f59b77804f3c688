"""wagma's calls, in the form that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wagma.collectives import DeviceArray, Options, Outcome, PartialAllreduce
from wagma.collectives._engine import check_options
from wagma.collectives.arrays import DTYPES
from wagma.collectives.topology import group_of
from wagma.launch.packages import missing

from ..checking import COPIED_BYTES, Holds
from ..contributions import Contributions, Vector
from ..native import wagma_call
from ..settings import Settings, members
from .subject import CSubject, Delivered, Taken, UnavailableError

if TYPE_CHECKING:
    from mpi4py import MPI

    from .._loop import Call
    from ..gpus import Inputs


def _options(settings: Settings, ranks: int) -> dict[str, Any]:
    """Return the options of the collective; results are sums."""
    return {
        "average": False,
        "group_size": members(settings, ranks),
        "quorum": settings.quorum,
        "late": settings.late,
        "grace": settings.grace,
        "transport": settings.transport,
        "timeout": settings.timeout,
        "seed": settings.seed,
    }


def collective(settings: Settings, comm: MPI.Intracomm, first: Any) -> PartialAllreduce:
    """Return the handle that the settings ask for, made with `first`; its results are sums."""
    return PartialAllreduce(comm, first, **_options(settings, comm.Get_size()))


def check(settings: Settings, ranks: int) -> None:
    """Check that wagma's calls can be measured.

    Raises:
        TypeError, ValueError: an option is wrong.
        UnavailableError: something is not installed, or cannot be done.
    """
    dtype = DTYPES[settings.datatype]
    for size in settings.sizes:
        options = Options(**_options(settings, ranks)).with_environment()
        check_options(options.engine(ranks, size // dtype.storage.itemsize, dtype.code))
    if settings.buffer == "torch" or settings.datatype == "bfloat16":
        tensor(np.zeros(1, dtype.storage), settings.datatype)
    if settings.loop == "c" and not _from_c(settings):
        raise UnavailableError(
            f"--loop c: --form {settings.form} with --late {settings.late} and --buffer "
            f"{settings.buffer} can only be called from Python; pass --loop auto"
        )
    largest = max(settings.sizes)
    if settings.loop == "c" and settings.validate and largest > COPIED_BYTES:
        raise UnavailableError(
            f"--loop c with -c: a rank would copy its result of {largest} bytes while others still "
            f"reduce, which makes them slower; pass sizes up to {COPIED_BYTES} with -m, "
            "leave out -c, or pass --loop auto"
        )


def _from_c(settings: Settings) -> bool:
    """Whether calls can be made from C: there, nobody gets several results, or makes tensors."""
    return settings.buffer == "numpy" and (
        settings.form != "out-of-place" or settings.late == "stale"
    )


def tensor(array: Vector, datatype: str) -> Any:
    """Return the torch tensor over `array`; bfloat16 is held as uint16.

    Raises:
        UnavailableError: torch is not installed.
    """
    if said := missing("torch"):
        raise UnavailableError(
            f"{said}; or leave out what needs it (--buffer torch, -T bfloat16, the baselines gloo "
            "and nccl)"
        )
    import torch

    found = torch.from_numpy(array)
    return found.view(torch.bfloat16) if datatype == "bfloat16" else found


class _Said(NamedTuple):
    """Attributes of an `Outcome`, which is not kept."""

    version: int
    late: bool
    merged: bool
    contributors: tuple[int, ...]
    versions: tuple[int, ...]


# Fields of an outcome, read in C: this evicts little of a call's data from the caches.
_said = attrgetter(*_Said._fields)


class WagmaAllreduce(CSubject):
    """`PartialAllreduce.allreduce`; out of place with a look at the result; collective.

    Args:
        settings: form, buffer, datatype and the collective's options.
        comm: its ranks.
        first: contribution of version -1, in the storage dtype.
        inputs: what writes arrays on a GPU, in place those of the user; None: on the host. A call
            ends there when the caller's stream has the result.
    """

    library = "wagma"
    has_outcomes = True

    def __init__(
        self, settings: Settings, comm: MPI.Intracomm, first: Vector, inputs: Inputs | None = None
    ) -> None:
        super().__init__(f"wagma {settings.form}")
        self.carries = settings.late == "carry"
        self._out_of_place = settings.form == "out-of-place"
        self._stale = settings.late == "stale"
        self._settings = settings
        self._inputs = inputs
        bfloat16 = settings.datatype == "bfloat16"
        if inputs is not None:
            like = inputs.array(first)
        else:
            # numpy has no bfloat16: the handle learns it from the first array, takes uint16 then.
            like = tensor(first, settings.datatype) if bfloat16 else first
        self._coll = collective(settings, comm, like)
        self._allreduce = self._coll.allreduce
        if inputs is not None:
            self._array = self._argument = like
        elif not self._out_of_place:
            private = settings.form == "private"
            self._take(np.empty_like(first) if private else self._coll.empty())

    def _take(self, array: Any) -> None:
        s = self._settings
        self._array = array if self._inputs is None else self._inputs.gpu.taken(array)
        self._argument = tensor(array, s.datatype) if s.buffer == "torch" else self._array

    def array(self) -> Any:
        """See `Subject`."""
        if self._out_of_place:
            self._take(self._coll.next_contribution())
        return self._array

    def fill(self, contributions: Contributions, rank: int, version: int) -> None:
        """See `Subject`."""
        if self._inputs is None:
            super().fill(contributions, rank, version)
        else:
            self._inputs.write(self.array(), rank, version)

    def ready(self) -> None:
        """See `Subject`."""
        super().ready()
        self._finish()

    def _finish(self) -> None:
        """Wait until the caller's stream of a GPU has done all."""
        if self._inputs is not None:
            self._inputs.gpu.finish()

    def caller(self) -> Callable[[], Any]:
        """See `Subject`."""
        if self._out_of_place or self._inputs is not None:
            return self._reduce_and_look
        return partial(self._allreduce, self._argument)

    def _reduce_and_look(self) -> Outcome:
        outcome = self._allreduce(self._argument)
        self.look(outcome)
        return outcome

    def look(self, outcome: Outcome) -> None:
        """End a call: look at the result in place of one out of place, and wait for a GPU."""
        if self._out_of_place:
            _ = outcome.result if self._stale else outcome.results
        self._finish()

    def delivered(self, outcome: Outcome) -> Delivered:
        """See `Subject`."""
        said = _said(outcome)
        if self._inputs is not None and not self._settings.validate:
            return Delivered(None, None, said)
        array = None if self._out_of_place else self._on_host(self._array)
        if self._stale:
            result = self._on_host(outcome.result) if self._out_of_place else array
            return Delivered(result, None, said)
        results = [self._on_host(one) for one in outcome.results]
        # All ranks meet between calls: there is never more than one result to deliver.
        if len(results) != 1 or results[0] is None:
            return Delivered(None, f"{len(results)} results were delivered, not one", said)
        if array is not None and not np.array_equal(results[0], array):
            return Delivered(None, "what was delivered is not what the array became", said)
        return Delivered(results[0], None, said)

    def _on_host(self, x: Any) -> Vector | None:
        """Return an array as it is on the host, or a copy of one of a GPU; None of None."""
        if self._inputs is None or x is None:
            found: Vector | None = x
            return found
        taken = self._inputs.gpu.taken(x) if isinstance(x, DeviceArray) else x
        return self._inputs.read(taken)

    def taken(self, delivered: Delivered) -> Taken:
        """See `Subject`."""
        said = _Said(*delivered.outcome)
        s, coll, version, wrong = self._settings, self._coll, said.version, delivered.wrong
        holds = list(zip(said.contributors, said.versions, strict=True))
        group = group_of(coll.rank, coll.size, members(s, coll.size), version)
        named = tuple(holds)
        if version != self.version:
            wrong = f"the call took version {version} instead of {self.version}"
        elif not said.merged:
            # All ranks meet between calls: of nobody a newer result can have been merged before.
            wrong = f"version {version} was not merged into the array"
        else:
            wrong = wrong or self._misses(holds, version, said.late, group)
        self.version = version + 1
        if said.late and self._stale:
            holds.append((coll.rank, version))
        return Taken(delivered.result, holds, said.late, wrong, group, named)

    def _misses(self, holds: Holds, version: int, late: bool, group: tuple[int, ...]) -> str | None:
        """Return what is wrong with the contributors of a result."""
        s, coll = self._settings, self._coll
        contributors = tuple(rank for rank, _ in holds)
        fresh = [rank for rank, of in holds if of == version]
        least = len(group) if s.quorum == "all" else 1 if s.quorum == "majority" else s.quorum
        if (coll.rank in fresh) == late:
            return f"late is {late}, and those who were in time are {fresh}"
        if len(fresh) < min(int(least), len(group)):
            return f"only {fresh} were in time, quorum is {s.quorum}"
        if self._stale and contributors != group:
            return f"{contributors} contributed, the group is {group}"
        if not self._stale and (len(fresh) < len(holds) or not set(fresh) <= set(group)):
            return f"{holds} contributed to version {version}, the group is {group}"
        return None

    def c_call(self) -> Call | None:
        """See `Subject`."""
        return wagma_call(self._coll) if _from_c(self._settings) else None

    @property
    def address(self) -> int:
        """See `Subject`."""
        return 0 if self._out_of_place else self._array.ctypes.data

    def c_taken(self, result: Vector | None, outcome: Any) -> Taken:
        """See `Subject`."""
        n, merged = int(outcome["n"]), bool(outcome["merged"])
        contributors, versions = outcome["contributors"][:n], outcome["versions"][:n]
        delivered = int(outcome["results"])
        wrong = None
        if delivered != (0 if self._stale else 1):
            wrong = f"{delivered} results were delivered"
        said = _Said(
            int(outcome["version"]),
            bool(outcome["late"]),
            merged,
            tuple(contributors.tolist()),
            tuple(versions.tolist()),
        )
        taken = result if merged or not self._out_of_place else None
        return self.taken(Delivered(taken, wrong, said))

    def close(self) -> None:
        """See `Subject`."""
        self._coll.close()
