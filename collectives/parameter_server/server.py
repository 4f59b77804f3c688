"""Server: a rank that holds a part of the parameters and steps with the learners' gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import PeerError
from ..partial_allreduce import PartialAllreduce
from ..rendezvous.patience import Patience, Wait
from ..rendezvous.reports import describe_ranks
from .member import GRADIENT, MODEL, NEWS, Bytes, Code, Holder, ParameterServer, Shard
from .selection import Action, Kind, Selection
from .transfers import nap

if TYPE_CHECKING:
    from mpi4py import MPI


class Server(ParameterServer):
    """A rank that holds a part of the parameters.

    Args:
        holder: sums and applies gradients.
        gradient_bytes: size of a gradient.
        method, k: see `Selection`.

    Attributes:
        counts: counts of all learners' gradients, on the first server; see `Counts`.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        model: Bytes,
        gradient_bytes: int,
        shards: Sequence[Shard],
        ranks: PartialAllreduce,
        patience: Patience,
        *,
        holder: Holder,
        method: str,
        k: int,
    ) -> None:
        super().__init__(comm, model, shards, ranks, patience)
        self._holder = holder
        self._k = k
        self._shard = self.rank - self._first
        self._followers = self._servers[1:] if self.rank == self._first else range(0)
        self._received = np.zeros(gradient_bytes, np.uint8)
        self._selection = Selection(method, k, len(self._learners))
        self._idle: Wait | None = None  # runs while all learners are outside of their loops
        self.counts = self._selection.counts

    def serve(self) -> None:
        """Serve the learners until all have left their loops.

        Raises:
            PeerError, StallError: too few learners are left; no message came within `timeout`.
        """
        if self.rank != self._first:
            self._follow()
            return
        selection = self._selection
        if selection.is_over():
            self._idle = self._idle or self._wait(
                "step(), after all learners have left their loops,",
                hint="end the loops of the servers, too",
            )
            self._idle.check(selection.live())
            nap(self._idle.seconds)
        else:
            self._idle = None
            self._lead()
        self._return()

    def resume(self) -> None:
        """Continue the training after a call that all ranks have made."""
        self._selection.resume()

    def synchronize(self) -> None:
        """Send the final parameters to all learners, and between the servers."""
        self.serve()
        if self.rank == self._first:
            self._execute(self._selection.synchronize())
            self._return()
        else:
            self._follow()
        self._finish_gives()
        transfers = []
        for index, server in enumerate(self._servers):
            if server != self.rank:
                send = self._transfer(server, MODEL, self._model, self._shard, sends=True)
                transfers += [send, self._transfer(server, MODEL, self._model, index, sends=False)]
        for transfer in transfers:
            transfer.start()
        self._check_none_lost(self._finish(transfers, "synchronize()"))
        self.version = self._selection.version

    # ---- the first server ------------------------------------------------------------------------
    def _return(self) -> None:
        """Let all servers return to their callers."""
        self.stopped |= self._selection.stopped
        self._command(Code.RETURN, self._selection.version, self._selection.stopped)

    def _lead(self) -> None:
        selection, lost = self._selection, set[int]()
        wait = self._wait("step()")
        while True:
            for rank in self.lost():
                if rank in self._learners and rank not in lost:
                    lost.add(rank)
                    self._execute(selection.lose(rank))
            self._check_enough()
            if selection.is_over():
                return
            message = self._next_message()
            if message is None:
                wait.check(selection.computing())
                self._progress()
                self.waited += nap(wait.seconds)
                continue
            self._handle(*message)
            wait = self._wait("step()")

    def _handle(self, rank: int, content: list[float]) -> None:
        """Handle a learner's message."""
        selection = self._selection
        if rank in selection.lost():  # it sent this before it died
            return
        code, version, weight, empty, stops = content
        if code == Code.LEFT:
            self._left.add(rank)
            self._check_lost()
            self._execute(selection.leave(rank))
        elif code == Code.PAUSE:
            self._execute(selection.pause(rank))
        elif code == Code.OFFER:
            selection.stop |= bool(stops) or self.wants_stop()
            action = selection.offer(rank, int(version), empty=bool(empty))
            if action.kind is not Kind.TAKE:
                self._execute([action])
            elif self._take(action, bool(empty)):
                if not empty:
                    self._command(Code.ADD, weight)
                    self._holder.add(self._received, weight)
                self._execute(selection.add(action, empty=bool(empty)))

    def _take(self, action: Action, empty: bool) -> bool:
        """Receive the gradient of a learner, on all servers; return whether all have it."""
        self._tell(action.learner, Code.TAKE, action.staleness, action.waits)
        if empty:
            return True
        self._command(Code.RECEIVE, action.learner)
        complete = self._receive(action.learner)
        for rank in self._followers:
            _, received, stops, *_ = self._await(rank, "step()")
            complete &= bool(received)
            self._selection.stop |= bool(stops)
        return complete

    def _execute(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if action.kind is Kind.GIVE:
                version = self._selection.version
                self._command(Code.SEND, action.learner, version)
                self._tell(
                    action.learner, Code.GIVE, version, action.unused, self._selection.stopped
                )
                self._give(action.learner)
            elif action.kind is Kind.TELL:
                self._tell(action.learner, Code.GIVE, self._selection.version, tag=NEWS)
            elif action.kind is Kind.APPLY:
                self._command(Code.APPLY)
                self._apply()
            else:
                self._command(Code.DROP)
                self._holder.drop()

    def _command(self, code: Code, *numbers: float) -> None:
        for rank in self._followers:
            self._tell(rank, code, *numbers)

    def _check_enough(self) -> None:
        selection = self._selection
        ended = selection.is_over() and (selection.live() or not selection.lost())
        if ended or not selection.is_short():
            return
        gone = sorted({*selection.lost(), *(r for r in self._left if r in self._learners)})
        for rank in selection.live():
            self._tell(rank, Code.ENDED, gone[0])
        raise PeerError(
            f"{describe_ranks(gone)} failed, died or left, and {len(selection.live())} learners "
            f"are too few for k={self._k}: make a new optimizer without it, or with a smaller k"
        )

    # ---- all servers -----------------------------------------------------------------------------
    def _follow(self) -> None:
        """Execute the commands of the first server until it returns."""
        selection = self._selection
        while True:
            code, number, version, *_ = self._await(self._first, "step()")
            if code == Code.RECEIVE:
                received = self._receive(int(number))
                self._tell(self._first, Code.RECEIVED, received, self.wants_stop())
            elif code == Code.ADD:
                self._holder.add(self._received, number)
            elif code == Code.APPLY:
                selection.version += 1
                self._apply()
            elif code == Code.DROP:
                self._holder.drop()
            elif code == Code.SEND:
                selection.version = int(version)
                self._give(int(number))
            else:
                selection.version = int(number)
                self.stopped |= bool(version)
                return

    def _receive(self, learner: int) -> bool:
        transfer = self._transfer(learner, GRADIENT, self._received, self._shard, sends=False)
        transfer.start()
        self._finish([transfer], "step()")
        if not transfer.active:
            return True
        # Messages under way may still be written at any time: receive into new memory from now on.
        for (_, tag, _), other in list(self._transfers.items()):
            if tag == GRADIENT:
                self._forget(other)
        self._received = np.zeros_like(self._received)
        return False

    def _apply(self) -> None:
        self._finish_gives()  # they read the parameters
        self._holder.apply()
        self.version = self._selection.version

    def _give(self, learner: int) -> None:
        transfer = self._transfer(learner, MODEL, self._model, self._shard, sends=True)
        if transfer.active:
            self._finish_gives()
        transfer.start()

    def _finish_gives(self) -> None:
        active = [transfer for transfer in self._transfers.values() if transfer.active]
        lost = self._finish(active, "step()")
        for transfer in active:
            if transfer.peer in lost:
                self._forget(transfer)

    def _partners(self) -> Sequence[int]:
        return [rank for rank in range(self.size) if rank != self.rank]
