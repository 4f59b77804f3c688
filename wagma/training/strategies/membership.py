"""The collectives of an algorithm, from their creation until this rank leaves them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self, TypeVar, Unpack

from wagma.collectives import PeerError, StallError
from wagma.collectives.rendezvous.meeting import Comm, Meeting
from wagma.collectives.rendezvous.reports import describe_ranks
from wagma.training.ranks import Ranks, Waits
from wagma.training.strategies.collective import Collective, close_all

C = TypeVar("C")


class Membership(Ranks):
    """The part of an `Algorithm` that owns its collectives and closes them."""

    def __init__(self, comm: Comm = "auto", **waits: Unpack[Waits]) -> None:
        super().__init__(comm, **waits)
        self._collectives: tuple[Collective, ...] = ()
        self._closed = False

    @property
    def collective(self) -> Collective:
        """The collective that averages; its own counter starts at 0 in every process."""
        return self._connected_collectives()[0]

    def _connected(self, kind: type[C]) -> C:
        """Return the collective of type `kind`."""
        return next(c for c in self._connected_collectives() if isinstance(c, kind))

    def _connected_collectives(self) -> tuple[Collective, ...]:
        if not self._collectives:
            raise RuntimeError(self._not_attached())
        return self._collectives

    def _not_attached(self) -> str:
        """Return the error message for an algorithm without an optimizer."""
        return (
            f"this {type(self).__name__} serves no optimizer yet: "
            "give it to wagma.DistributedOptimizer"
        )

    def hint(self, text: str | None) -> None:
        """Add `text` to all further warnings about waits for other ranks; None: add nothing."""
        for collective in self._collectives:
            collective.hint = text

    def meet(self) -> Meeting:
        """Return a context manager in which all ranks exchange and compare values; collective.

        Raises:
            PeerError: a rank of this training has failed.
            StallError: not all ranks arrived in time.
        """
        if not self._collectives:
            return super().meet()
        try:
            return Meeting(self.comm, self._patience, self._check_lost)
        except (PeerError, StallError) as error:  # ranks that arrive later learn of the failure
            self.__exit__(type(error), error, None)
            raise

    def _check_lost(self) -> None:
        """Raise PeerError if the collectives know that a rank cannot arrive any more."""
        lost = self.collective.lost()
        if lost:
            others = ", over a communicator of comm.Create_group() if they live"
            others = "" if self.comm in (None, "auto") else others
            raise PeerError(
                f"{describe_ranks(lost)} failed, died or left without close(), and all ranks have "
                f"to meet here: make a new optimizer without them{others}"
            )

    def check_open(self, call: str) -> None:
        """Check that this rank has not left the training.

        Args:
            call: the call that is refused otherwise, such as "step()".

        Raises:
            RuntimeError: `close` was called, or the with block has ended.
        """
        if self._closed:
            raise RuntimeError(
                f"{call} of a training that is closed: this {type(self).__name__} has left it, "
                "with close() or at the end of its with block. Make a new DistributedOptimizer "
                "with a new algorithm, and load the state_dict() of this one"
            )

    def close(self) -> None:
        """Leave the collectives; the other ranks go on without this one. May be called again.

        A model in a collective's array moves to memory of its own. With transport="mpi" the call
        returns when all ranks have left, see `PartialAllreduce.close`.
        """
        if self._collectives:
            with self._releasing():
                self._leave()

    def _leave(self) -> None:
        """Close the collectives."""
        close_all(self._collectives)

    def release(self) -> None:
        """Release the collectives' memory; called once for each `connect`."""

    @contextmanager
    def _releasing(self) -> Iterator[None]:
        """Release the memory after the block, in which this rank leaves.

        Leaving comes first: other ranks must not wait while a large model is copied, nor for ever
        if there is no memory for the copy.
        """
        released, self._closed = self._closed, True
        try:
            yield
        finally:
            if not released:
                self.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Close; after an exception the ranks that need this one get PeerError at once."""
        if error is None:
            self.close()
        elif self._collectives:
            with self._releasing():
                for collective in self._collectives:
                    collective.__exit__(kind, error, trace)
