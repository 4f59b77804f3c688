"""Collectives of the papers' methods: `PartialAllreduce` with fixed options.

| class | averages | a version starts with | a late rank's contribution | method |
|---|---|---|---|---|
| `GroupAllreduce` | models, in groups | one member of the group | an older one | WAGMA-SGD |
| `SoloAllreduce` | gradients | any one rank | is added to its next | Eager-SGD (solo) |
| `MajorityAllreduce` | gradients | one rank, drawn | is added to its next | Eager-SGD (majority) |
| `QuorumAllreduce` | gradients | k ranks | is left out | K-sync, fastest-k SGD |
| `SyncAllreduce` | either | all ranks | (no rank is late) | Allreduce-SGD, Local SGD |

AD-PSGD averages models in pairs: ``GroupAllreduce(comm, x, group_size=2, grouping="pairs")``.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, ClassVar, cast

from .partial_allreduce import PartialAllreduce

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import SupportsIndex, Unpack

    from .options import Arguments, CommonArguments, WorldArguments
    from .rendezvous.meeting import Comm


_WORLD: Arguments = {"group_size": None, "activation": "group", "grouping": "dynamic"}


def _choose(kind: type[PartialAllreduce], options: Mapping[str, Any], **chosen: Any) -> Arguments:
    """Return `options` and the options that the class has `chosen`; refuse options in both."""
    for name in options:
        if name in chosen:
            raise TypeError(f"{kind.__name__} chooses {name} itself: use PartialAllreduce")
    return cast("Arguments", {**chosen, **options})


class GroupAllreduce(PartialAllreduce):
    """Wait-avoiding group allreduce: a version starts with one member of a rank's group.

    It averages models as WAGMA-SGD does (Li et al., "Breaking (Global) Barriers in Parallel
    Stochastic Optimization with Wait-Avoiding Group Averaging", TPDS 2021); the exact activation of
    the paper is ``activation="world", grace=0``.

    ``GroupAllreduce(comm, x, group_size=4, sync_period=10)`` is
    ``PartialAllreduce(comm, x, group_size=4, sync_period=10, quorum=1)``; everything else is the
    same.

    Args:
        comm: an intracommunicator, None or "auto", see `PartialAllreduce`.
        x: array that gives shape and dtype, and this rank's first contribution: in host memory
            (numpy, torch, a C-contiguous buffer, DLPack) or on an NVIDIA GPU (torch, CuPy, DLPack).
        group_size: maximum members of a group.
        options: see `Options`; quorum is 1.
    """

    def __init__(
        self, comm: Comm, x: Any, *, group_size: SupportsIndex, **options: Unpack[CommonArguments]
    ) -> None:
        super().__init__(
            comm, x, **_choose(GroupAllreduce, options, group_size=group_size, quorum=1)
        )


class SoloAllreduce(PartialAllreduce):
    """Solo allreduce: a version of all ranks starts with any one of them.

    It averages gradients as Eager-SGD does (Li et al., "Taming Unbalanced Training Workloads in
    Deep Learning with Partial Collective Operations", PPoPP 2020): a late gradient is added to the
    rank's next one. Each result reaches every rank, see `Outcome.results`.

    ``SoloAllreduce(comm, x)`` is ``PartialAllreduce(comm, x, quorum=1, late="carry")``.

    Args:
        comm: an intracommunicator, None or "auto", see `PartialAllreduce`.
        x: array that gives shape and dtype, and this rank's first contribution.
        options: see `Options`; quorum is 1, the group is the world, late is "carry" unless given.
    """

    def __init__(self, comm: Comm, x: Any, **options: Unpack[WorldArguments]) -> None:
        chosen: WorldArguments = {"late": "carry", **options}
        super().__init__(comm, x, **_choose(SoloAllreduce, chosen, quorum=1, **_WORLD))


class MajorityAllreduce(PartialAllreduce):
    """Majority allreduce: a version of all ranks starts with a rank that is drawn for it.

    This is the other form of Eager-SGD (see `SoloAllreduce`): every rank draws the same rank from
    `seed` and the version. On average half of the others have arrived before it.

    ``MajorityAllreduce(comm, x)`` is
    ``PartialAllreduce(comm, x, quorum="majority", late="carry")``.

    Args:
        comm: an intracommunicator, None or "auto", see `PartialAllreduce`.
        x: array that gives shape and dtype, and this rank's first contribution.
        options: see `Options`; quorum is "majority", the group is the world, late is "carry" unless
            given.
    """

    def __init__(self, comm: Comm, x: Any, **options: Unpack[WorldArguments]) -> None:
        chosen: WorldArguments = {"late": "carry", **options}
        super().__init__(comm, x, **_choose(MajorityAllreduce, chosen, quorum="majority", **_WORLD))


class QuorumAllreduce(PartialAllreduce):
    """Allreduce of the first k ranks: the others are left out of the version.

    It averages gradients as K-sync SGD (Dutta et al., "Slow and Stale Gradients Can Win the Race",
    AISTATS 2018) and fastest-k SGD do, without their server. The result is the mean of k gradients,
    or of more if several arrive together. Each result reaches every rank, see `Outcome.results`.

    ``QuorumAllreduce(comm, x, k)`` is ``PartialAllreduce(comm, x, quorum=k, late="skip")``.

    Args:
        comm: an intracommunicator, None or "auto", see `PartialAllreduce`.
        x: array that gives shape and dtype, and this rank's first contribution.
        k: ranks that start a version, 1 to the number of ranks. It may change later, see `k`,
            unless it is the number of ranks.
        options: see `Options`; quorum is `k`, the group is the world, late is "skip" unless given.
    """

    _quorum: ClassVar[str] = "k"

    def __init__(
        self, comm: Comm, x: Any, k: SupportsIndex, **options: Unpack[WorldArguments]
    ) -> None:
        chosen: WorldArguments = {"late": "skip", **options}
        super().__init__(comm, x, **_choose(QuorumAllreduce, chosen, quorum=k, **_WORLD))

    @property
    def k(self) -> int:
        """Return the number of ranks that start this rank's next version.

        A new value holds from that version on; setting it sends no message. Set it between calls,
        in the thread that calls. All ranks have to call a version with the same k, except for sync
        versions; otherwise every rank that still calls raises QuorumMismatchError, which names the
        version, both values and their ranks. A late rank has not called the versions that it gets
        as `Outcome.results`, so they may have another k.

        k can change with late="skip" and "carry". A collective that was made with k = all ranks
        reduces in place and keeps no results for late ranks: its k is fixed. To start with all
        ranks and lower k later, make the collective with fewer and set k to all before the first
        call. Setting the current value is always allowed.

        Raises:
            TypeError: k is no integer.
            ValueError: k is less than 1 or more than the number of ranks, or cannot change.
            HandleError: the handle cannot be used, or a request is pending.
        """
        return self._get_quorum()

    @k.setter
    def k(self, k: SupportsIndex) -> None:
        if isinstance(k, bool) or not hasattr(k, "__index__"):
            raise TypeError(f"k={k!r} must be an integer, 1 to the number of ranks ({self.size})")
        number = operator.index(k)
        if not 1 <= number <= self.size:
            raise ValueError(f"k={number} must be 1 to the number of ranks ({self.size})")
        self._set_quorum(number)


class SyncAllreduce(PartialAllreduce):
    """Allreduce of all ranks, in which each rank waits for all.

    With gradients in each step it is Allreduce-SGD; with models every tau steps it is Local SGD
    (Stich, "Local SGD Converges Fast and Communicates Little", ICLR 2019). Arrays of `empty()` are
    reduced in place.

    ``SyncAllreduce(comm, x)`` is ``PartialAllreduce(comm, x, quorum="all")``.

    Args:
        comm: an intracommunicator, None or "auto", see `PartialAllreduce`.
        x: array that gives shape and dtype, and this rank's first contribution.
        options: see `Options`; quorum is "all", the group is the world.
    """

    def __init__(self, comm: Comm, x: Any, **options: Unpack[WorldArguments]) -> None:
        super().__init__(comm, x, **_choose(SyncAllreduce, options, quorum="all", **_WORLD))
