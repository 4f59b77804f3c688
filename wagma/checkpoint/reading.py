"""Which checkpoint is loaded, and what each rank reads of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wagma.checkpoint.averages import ModelSum
from wagma.checkpoint.errors import CheckpointMismatchError
from wagma.checkpoint.files import DamagedError, read_data
from wagma.checkpoint.folder import Folder
from wagma.checkpoint.manifest import Manifest, Training, differences, why_not_whole
from wagma.checkpoint.names import Place
from wagma.checkpoint.together import together
from wagma.launch.logs import RankLogger
from wagma.training.strategies.base import Algorithm
from wagma.training.strategies.gradients import GradientAveraging
from wagma.units import rank_list

__all__ = ["Plan", "Read", "merge", "read_newest"]


@dataclass(frozen=True)
class Plan:
    """Whose files of a checkpoint a rank reads.

    Attributes:
        own: whose inner state, algorithm's state, random numbers and other objects it continues.
        newest: whose model and inner state it takes in their place; None: nobody's.
        summed: whose models it adds up, for the mean of all; empty where models are not averaged.
        resized: the checkpoint is of another number of ranks.
    """

    own: int
    newest: int | None
    summed: tuple[int, ...]
    resized: bool

    @classmethod
    def of(cls, rank: int, size: int, versions: list[int], *, replicas: bool) -> Plan:
        """Return what a rank reads.

        Args:
            rank: which one.
            size: how many there are.
            versions: at which the ranks were that saved.
            replicas: models and inner states are equal at equal versions.
        """
        own, resized = rank % len(versions), size != len(versions)
        if replicas:
            newest = versions.index(max(versions))
            behind = resized or versions[own] < max(versions)
            return cls(own, newest if behind else None, (), resized)
        summed = tuple(range(rank, len(versions), size)) if resized else ()
        return cls(own, None, summed, resized)


@dataclass
class Read:
    """What a rank has read.

    Attributes:
        place: of the checkpoint.
        versions: at which the ranks were that saved.
        plan: of this rank.
        own, newest: states, see `Plan`.
        models: sum of those that this rank has added up; None: models are not averaged.
    """

    place: Place
    versions: list[int]
    plan: Plan
    own: dict[str, Any]
    newest: dict[str, Any] | None
    models: ModelSum | None


def read_newest(
    folder: Folder, algorithm: Algorithm, mine: Training, log: RankLogger
) -> Read | None:
    """Read the newest checkpoint that is whole on all ranks; None: there is none; collective.

    Raises:
        CheckpointMismatchError: it is of another training; on every rank.
        CheckpointError: the folder cannot be read.
    """
    refused: list[str] = []  # on rank 0: names of those that are damaged
    while True:

        def find() -> list[Any] | None:
            if algorithm.rank != 0:
                return None
            return _next_whole(folder, refused, log)

        found = together(algorithm, find, f"read {folder.path}")[0]
        if found is None:
            return None
        place, versions = Place(*found[:2]), found[2]
        got = _read_on_all(folder, algorithm, mine, place, versions)
        if isinstance(got, Read):
            return got
        refused.append(str(place))
        folder.damaged.add(place)
        if algorithm.rank == 0:
            log.warning("%s is damaged, the checkpoint before it is taken: %s", place, got)


def _next_whole(folder: Folder, refused: list[str], log: RankLogger) -> list[Any] | None:
    """Return run, version and the ranks' versions of the newest whole checkpoint."""
    for place in folder.places():
        if str(place) in refused:
            continue
        manifests = folder.manifests(place)
        why = why_not_whole(manifests)
        if why is None:
            versions = [one.version for one in manifests.values() if isinstance(one, Manifest)]
            return [place.run, place.version, versions]
        refused.append(str(place))
        log.warning("%s is not whole, the checkpoint before it is taken: %s", place, why)
    return None


def _read_on_all(
    folder: Folder, algorithm: Algorithm, mine: Training, place: Place, versions: list[int]
) -> Read | str:
    """Return what this rank has read; a text: what is damaged, on any rank."""
    replicas = isinstance(algorithm, GradientAveraging)
    plan = Plan.of(algorithm.rank, algorithm.size, versions, replicas=replicas)
    read: list[Read] = []

    def try_to() -> dict[str, Any]:
        try:
            manifest = folder.manifest(place, plan.own)
            if isinstance(manifest, str):
                raise DamagedError(f"the manifest of rank {plan.own} {manifest}")
            other = differences(manifest.training, mine, same_size=not plan.resized)
            if not other:
                read.append(_read(folder, place, versions, plan))
        except DamagedError as error:
            return {"damaged": str(error), "other": []}
        return {"damaged": None, "other": other}

    told = together(algorithm, try_to, f"read {place}")
    damaged = {rank: one["damaged"] for rank, one in enumerate(told) if one["damaged"]}
    if damaged:
        return "; ".join(dict.fromkeys(damaged.values()))
    other: dict[str, list[int]] = {}
    for rank, one in enumerate(told):
        for line in one["other"]:
            other.setdefault(line, []).append(rank)
    if other:
        everywhere = [line for line, ranks in other.items() if len(ranks) == algorithm.size]
        some = [
            f"{line} (on {rank_list(ranks)})"
            for line, ranks in other.items()
            if len(ranks) < algorithm.size
        ]
        raise CheckpointMismatchError(str(folder.of(place)), everywhere + some)
    return read[0]


def _read(folder: Folder, place: Place, versions: list[int], plan: Plan) -> Read:
    kept: dict[int, dict[str, Any]] = {}
    kept[plan.own] = _part(folder, place, plan.own)
    models = ModelSum(kept[plan.own]["model"]) if plan.resized and plan.newest is None else None
    for rank in plan.summed:
        part = kept[plan.own] if rank == plan.own else _part(folder, place, rank)
        assert models is not None
        models.add(part["model"])
    newest = None
    if plan.newest is not None:
        newest = kept.get(plan.newest) or _part(folder, place, plan.newest)
    return Read(place, versions, plan, kept[plan.own], newest, models)


def _part(folder: Folder, place: Place, rank: int) -> dict[str, Any]:
    """Return the state that a rank has saved.

    Raises:
        DamagedError: it is not what was written.
    """
    manifest = folder.manifest(place, rank)
    if isinstance(manifest, str):
        raise DamagedError(f"the manifest of rank {rank} {manifest}")
    try:
        return read_data(folder.of(place) / manifest.file, manifest.bytes, manifest.checksum)
    except DamagedError as error:
        raise DamagedError(f"{manifest.file} {error}") from error


def merge(read: Read) -> dict[str, Any]:
    """Return the state of the optimizer that a rank continues with."""
    own, newest = read.own["optimizer"], read.newest
    if newest is None:
        state = dict(own)
        if read.plan.resized:
            state["wagma"] = {"version": min(read.versions)}
        return state
    state = dict(newest["optimizer"])
    if read.plan.resized:
        state["wagma"] = {"version": state["wagma"]["version"]}
        return state
    # What the replicas have alike is that of the newest; a gradient that waits is this rank's own.
    merged = {**state["wagma"]["state"]}
    merged.pop("pending", None)
    if "pending" in own["wagma"]["state"]:
        merged["pending"] = own["wagma"]["state"]["pending"]
    state["wagma"] = {
        **state["wagma"],
        "state": merged,
        "policy_state": own["wagma"]["policy_state"],
    }
    return state
