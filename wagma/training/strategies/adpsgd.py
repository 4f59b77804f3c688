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


class ADPSGD(GroupAveraging):
    """Average the model with one other rank's after every local step, without waiting.

    From Lian et al., "Asynchronous Decentralized Parallel Stochastic Gradient Descent" (ICML 2018).
    Each version pairs the ranks at random, with the same draw on all ranks; with an odd number one
    rank stays alone. The rank of a pair that arrives first averages with its partner's newest
    published model. The partner arrives later, and merges its own model into that average. Any two
    ranks may be paired, while the paper needs a bipartite graph to avoid deadlocks. Models are
    averaged after the step, not concurrently with it.

    No version waits for all ranks: models drift apart further than with `WAGMA`, see
    ``docs/algorithms.md``. Only parameters are averaged, as with `WAGMA`.

    Args:
        comm: the ranks that train together; "auto": those that the launcher started, over MPI or as
            torchrun does; see `PartialAllreduce`.
        grace: seconds that a version waits for a partner that is about to arrive, or "auto". The
            paper's algorithm has 0.
        window: versions that a rank may be ahead of the slowest; None: 64.
        seed: seed of the pairing, the same on all ranks.
        waits: timeout, stall_warning and transport, see `Algorithm`.

    Raises:
        what `Algorithm` does. Creating the optimizer raises errors in the other arguments, on every
        rank.
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
        super().__init__(comm, sync_period=None, grouping="pairs", **waits)
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
