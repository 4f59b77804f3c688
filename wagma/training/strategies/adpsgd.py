"""AD-PSGD: models averaged in pairs, without waiting for the partner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Unpack

from wagma.collectives import GroupAllreduce
from wagma.training.ranks import Waits
from wagma.training.strategies.groups import GroupAveraging
from wagma.units import plural

if TYPE_CHECKING:
    import torch

    from wagma.collectives.rendezvous.meeting import Comm

__all__ = ["ADPSGD"]


class ADPSGD(GroupAveraging):
    """Averages the model after every local step with that of one other rank, waiting for nobody.

    Of Lian et al., "Asynchronous Decentralized Parallel Stochastic Gradient Descent" (ICML 2018).
    The partner is drawn per version, alike on all ranks and every other rank as often (one rank is
    alone where their number is odd). A rank that comes first averages with the newest model that
    its partner has published; the partner, which comes later, merges its own model into that
    average. There is no deadlock to be avoided, so that all ranks may be partners (the paper's
    graph is bipartite), and models are averaged after the step and not beside it.

    No version waits for all ranks: models drift apart further than with `WAGMA`, see
    ``docs/algorithms.md``. Only parameters are averaged, as with `WAGMA`.

    Args:
        comm: the ranks that train together; "auto": those that the launcher
            started, over MPI or as torchrun does; see `PartialAllreduce`.
        grace: seconds that a version stays open for a partner that is about to arrive, or "auto".
            The paper's algorithm to the letter has 0.
        window: versions that a rank may be ahead of the slowest; None: 64.
        seed: of the draws, the same on all ranks.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Raises:
        what `Algorithm` does. What is wrong with the other arguments is raised, on every rank, when
        the optimizer is made.
    """

    wait_avoiding = True

    def __init__(
        self,
        comm: Comm = "auto",
        *,
        grace: float | Literal["auto"] = "auto",
        window: int | None = None,
        seed: int = 0,
        **waits: Unpack[Waits],
    ) -> None:
        super().__init__(
            comm,
            sync_period=None,
            grouping="pairs",
            **waits,
        )
        self.group_size = min(self.size, 2)
        self._grace = grace
        self._window = window
        self._seed = seed

    def _make(self, like: torch.Tensor) -> GroupAllreduce:
        return GroupAllreduce(
            self.comm,
            like,
            group_size=self.group_size,
            grouping=self._grouping,
            grace=self._grace,
            window=self._window,
            seed=self._seed,
            **self.waits,
        )

    def __repr__(self) -> str:
        return f"ADPSGD({plural(self.size, 'rank')})"
