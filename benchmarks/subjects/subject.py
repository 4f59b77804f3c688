"""What is timed: calls of one kind, each of which reduces this rank's array."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from wagma.launch.agreement import InputError

from ..checking import Holds
from ..contributions import Contributions, Vector

if TYPE_CHECKING:
    from .._loop import Call
    from ..gpus import Inputs


class UnavailableError(InputError):
    """A subject cannot be measured here; says why, and what to do."""


class Delivered(NamedTuple):
    """What has to be known of a call before the next one."""

    result: Vector | None  # the array to compare, until the next call; None: there is none
    wrong: str | None = None  # what is wrong with it beside the numbers, or None
    outcome: Any = None  # what the call says of itself; None: nothing


@dataclass(frozen=True)
class Taken:
    """What a call gave."""

    result: Vector | None  # the array to compare; None: there is none, and `wrong` says why
    holds: Holds  # contributions that are in it
    late: bool = False  # the rank's own contribution was late
    wrong: str | None = None  # what is wrong with it beside the numbers, or None
    # ranks that reduced together, whose calls must all name the same contributions
    group: tuple[int, ...] = ()
    named: tuple[tuple[int, int], ...] = ()  # contributions that the call itself names


class Subject(ABC):
    """One rank's part; not thread-safe. Closed by whoever made it.

    Attributes:
        name: of the series.
        library: "wagma", "mpi", "gloo", "nccl" or "copy".
        has_outcomes: calls from C have outcomes.
        carries: contributions that were late are added to later ones.
        version: of the next call that `taken` is asked of; the same on all ranks.
    """

    library: str
    has_outcomes = False
    carries = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = 0

    @abstractmethod
    def array(self) -> Any:
        """Return the array of the next call: of one dimension; on the host in the storage dtype."""

    def fill(self, contributions: Contributions, rank: int, version: int) -> None:
        """Write the contribution of a rank and version into the array of the next call."""
        contributions.write(self.array(), rank, version)

    def ready(self) -> None:  # noqa: B027, most are
        """Prepare the call, untimed, when the array has been filled."""

    @abstractmethod
    def caller(self) -> Callable[[], Any]:
        """Return the function that reduces; calling it is all that is timed."""

    @abstractmethod
    def delivered(self, outcome: Any) -> Delivered:
        """Return the result of the call that returned `outcome`; ask before the next call.

        `outcome` need not be kept: a call that finds the memory of the one before is faster.
        """

    @abstractmethod
    def taken(self, delivered: Delivered) -> Taken:
        """Return what to check of a call; ask once for each call, in order, at any later time."""

    def close(self) -> None:  # noqa: B027, most have nothing to close
        """Collective; every rank has come out of its last call."""


class Summed(Subject):
    """A library's sum of the arrays of the same ranks in every call, of which none is ever late.

    Args:
        name: of the series.
        x: array that is filled before each call.
        members: ranks whose arrays are added up.
        result: array that then has the sum; None: `x`.
    """

    def __init__(
        self, name: str, x: Vector, members: Sequence[int], result: Vector | None = None
    ) -> None:
        super().__init__(name)
        self._source, self._members = x, members
        self._result = x if result is None else result

    def array(self) -> Vector:
        """See `Subject`."""
        return self._source

    def delivered(self, outcome: Any) -> Delivered:  # noqa: ARG002
        """See `Subject`."""
        return Delivered(self._result)

    def taken(self, delivered: Delivered) -> Taken:
        """See `Subject`."""
        version = self.version
        self.version += 1
        return Taken(delivered.result, [(rank, version) for rank in self._members])


class OnGpu(Summed):
    """The same, with an array on a GPU that is written there.

    Args:
        name: of the series.
        inputs: what writes it.
        first: elements of the array at first.
        members: ranks whose arrays are added up.
        validate: whether results are compared: they are copied to the host for that.
    """

    def __init__(
        self, name: str, inputs: Inputs, first: Vector, members: Sequence[int], *, validate: bool
    ) -> None:
        super().__init__(name, first, members)
        self.inputs, self.validate = inputs, validate
        self.x = self.result = inputs.array(first)

    def fill(self, contributions: Contributions, rank: int, version: int) -> None:  # noqa: ARG002
        """See `Subject`."""
        self.inputs.write(self.x, rank, version)

    def ready(self) -> None:
        """See `Subject`."""
        self.inputs.gpu.finish()

    def delivered(self, outcome: Any) -> Delivered:  # noqa: ARG002
        """See `Subject`."""
        return Delivered(self.inputs.read(self.result) if self.validate else None)


class CSubject(Subject):
    """A subject that the loop in C can call, too."""

    @abstractmethod
    def c_call(self) -> Call | None:
        """Return the same call for the loop in C; None: not with these arguments."""

    @property
    @abstractmethod
    def address(self) -> int:
        """Return the address of the array that the C loop fills; 0: wagma's next contribution."""

    @abstractmethod
    def c_taken(self, result: Vector | None, outcome: Any) -> Taken:
        """Return the same as `taken` for a call from C: the result, if checked, and the outcome."""
