"""Loading: the choice of a checkpoint, the files that each rank reads, and the resume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wagma.checkpoint.averages import ModelSum
from wagma.checkpoint.errors import CheckpointMismatchError, together
from wagma.checkpoint.files import DamagedError, read_data
from wagma.checkpoint.folder import Folder
from wagma.checkpoint.manifest import Manifest, OtherFormat, differences, why_not_whole
from wagma.checkpoint.names import Place
from wagma.checkpoint.parts import Parts, lacking, load_random
from wagma.launch.logs import RankLogger
from wagma.training.strategies.gradients import GradientAveraging
from wagma.units import plural, rank_list

_REMEDY = "load it with the version of wagma that saved it, or save into another folder"


class _LackingError(Exception):
    """A checkpoint lacks parts that this wagma saves."""


@dataclass(frozen=True)
class Plan:
    """The saved ranks whose files a rank reads."""

    own: int  # saved rank whose inner state, algorithm state, random state and objects to continue
    # saved rank whose model and inner state to take instead; None: those of `own`
    newest: int | None
    # saved ranks whose models to sum for the mean; empty if models are not averaged
    summed: tuple[int, ...]
    resized: bool  # whether the number of ranks has changed

    @classmethod
    def of(cls, rank: int, size: int, versions: list[int], *, replicas: bool) -> Plan:
        """Return the plan of a rank.

        Args:
            rank: this rank.
            size: number of ranks now.
            versions: versions of the saved ranks.
            replicas: whether models and inner states are equal at equal versions.
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
    """The state that a rank has read and continues with.

    Attributes:
        place: name of the checkpoint.
        versions: versions of the saved ranks.
        plan: plan of this rank.
        optimizer, model, modules, random, extra: parts of states, see `Parts.state`; `model` is one
            of the models in `models`.
        models: sum of the models that this rank has read; None: models are not averaged.
    """

    place: Place
    versions: list[int]
    plan: Plan
    optimizer: dict[str, Any]
    model: dict[str, Any]
    modules: dict[str, Any]
    random: dict[str, Any]
    extra: dict[str, Any]
    models: ModelSum | None


def read_newest(folder: Folder, parts: Parts, log: RankLogger) -> Read | None:
    """Read the newest complete checkpoint; None if there is none; collective.

    Raises:
        CheckpointMismatchError: the checkpoint is of another training; on every rank.
        CheckpointError: the folder cannot be read.
    """
    algorithm = parts.optimizer.algorithm
    refused: list[str] = []  # names of damaged checkpoints, on rank 0
    while True:

        def find() -> list[Any] | None:
            if algorithm.rank != 0:
                return None
            return _next_whole(folder, refused, log)

        found = together(algorithm, find, f"read {folder.path}")[0]
        if found is None:
            return None
        place, versions = Place(*found[:2]), found[2]
        if isinstance(versions, str):
            raise CheckpointMismatchError(str(folder.path_of(place)), [versions])
        got = _read_on_all(folder, parts, place, versions)
        if isinstance(got, Read):
            return got
        refused.append(str(place))
        folder.damaged.add(place)
        if algorithm.rank == 0:
            log.warning("%s is damaged, trying the checkpoint before it: %s", place, got)


def _next_whole(folder: Folder, refused: list[str], log: RankLogger) -> list[Any] | None:
    """Return run, version and the ranks' versions of the newest complete checkpoint.

    A checkpoint of another format has, in place of the ranks' versions, a line that says so.
    """
    for place in folder.places():
        if str(place) in refused:
            continue
        manifests = folder.manifests(place)
        for rank, one in manifests.items():
            if isinstance(one, OtherFormat):  # beginning anew would lose the training
                line = f"format: the manifest of rank {rank} {one}: {_REMEDY}"
                return [place.run, place.version, line]
        why = why_not_whole(manifests)
        if why is None:
            versions = [one.version for one in manifests.values() if isinstance(one, Manifest)]
            return [place.run, place.version, versions]
        refused.append(str(place))
        log.warning("%s is incomplete, trying the checkpoint before it: %s", place, why)
    return None


def _read_on_all(folder: Folder, parts: Parts, place: Place, versions: list[int]) -> Read | str:
    """Return what this rank has read, or as a string what is damaged on any rank."""
    algorithm = parts.optimizer.algorithm
    replicas = isinstance(algorithm, GradientAveraging)
    plan = Plan.of(algorithm.rank, algorithm.size, versions, replicas=replicas)
    read: list[Read] = []

    def read_part() -> dict[str, Any]:
        try:
            manifest = folder.manifest(place, plan.own)
            if isinstance(manifest, str):
                raise DamagedError(f"the manifest of rank {plan.own} {manifest}")
            mine = parts.training(parts.model_state())
            other = differences(manifest.training, mine, same_size=not plan.resized)
            if not other:
                read.append(_read(folder, place, versions, plan))
        except DamagedError as error:
            return {"damaged": str(error), "other": []}
        except _LackingError as error:
            return {"damaged": None, "other": [str(error)]}
        return {"damaged": None, "other": other}

    results = together(algorithm, read_part, f"read {place}")
    damaged = {rank: one["damaged"] for rank, one in enumerate(results) if one["damaged"]}
    if damaged:
        return "; ".join(dict.fromkeys(damaged.values()))
    other: dict[str, list[int]] = {}
    for rank, one in enumerate(results):
        for line in one["other"]:
            other.setdefault(line, []).append(rank)
    if other:
        everywhere = [line for line, ranks in other.items() if len(ranks) == algorithm.size]
        some = [
            f"{line} (on {rank_list(ranks)})"
            for line, ranks in other.items()
            if len(ranks) < algorithm.size
        ]
        raise CheckpointMismatchError(str(folder.path_of(place)), everywhere + some)
    return read[0]


def _read(folder: Folder, place: Place, versions: list[int], plan: Plan) -> Read:
    own = _read_part(folder, place, plan.own)
    models = ModelSum(own["model"]) if plan.resized and plan.newest is None else None
    for rank in plan.summed:
        part = own if rank == plan.own else _read_part(folder, place, rank)
        assert models is not None
        models.add(part["model"])
    newest = own
    if plan.newest not in (None, plan.own):
        newest = _read_part(folder, place, plan.newest)
    optimizer = _merge(own["optimizer"], newest["optimizer"], plan, versions)
    return Read(
        *(place, versions, plan, optimizer, newest["model"], newest["modules"]),
        *(own["random"], own["extra"], models),
    )


def _read_part(folder: Folder, place: Place, rank: int) -> dict[str, Any]:
    """Return the state that a rank has saved.

    Raises:
        DamagedError: a file is missing or differs from what was written.
        _LackingError: the file was saved by a wagma that saved less.
    """
    manifest = folder.manifest(place, rank)
    if isinstance(manifest, str):
        raise DamagedError(f"the manifest of rank {rank} {manifest}")
    try:
        state = read_data(folder.path_of(place) / manifest.file, manifest.bytes, manifest.checksum)
    except DamagedError as error:
        raise DamagedError(f"{manifest.file} {error}") from error
    if names := lacking(state):
        raise _LackingError(f"format: saved without {', '.join(names)}: {_REMEDY}")
    return state


def _merge(
    own: dict[str, Any], newest: dict[str, Any], plan: Plan, versions: list[int]
) -> dict[str, Any]:
    """Return the optimizer state that a rank continues with.

    Args:
        own: optimizer state saved by the plan's `own`.
        newest: optimizer state saved by the plan's `newest`; `own` if that is None.
        plan: plan of this rank.
        versions: versions of the saved ranks.
    """
    state = dict(newest)
    if plan.resized:
        replicas = plan.newest is not None
        state["wagma"] = {"version": newest["wagma"]["version"] if replicas else min(versions)}
    elif plan.newest is not None:
        # Replicas share the newest state, but a pending gradient belongs to its own rank.
        common, mine = newest["wagma"]["state"], own["wagma"]["state"]
        pending = {name: mine[name] for name in ("pending",) if name in mine}
        state["wagma"] = {
            **newest["wagma"],
            "state": {**{k: v for k, v in common.items() if k != "pending"}, **pending},
            "policy_state": own["wagma"]["policy_state"],
        }
    return state


def resume(parts: Parts, read: Read, log: RankLogger) -> None:
    """Continue a training from what was read; collective.

    Raises:
        RuntimeError: the ranks are at different versions.
        what ``load_state_dict`` of a model or an object raises; on every rank.
    """
    algorithm = parts.optimizer.algorithm
    parts.optimizer.load_state_dict(read.optimizer)
    model, saved = read.model, len(read.versions)
    if read.models is not None:
        model = read.models.mean(algorithm, saved)

    def restore() -> None:
        parts.load_model(model, read.modules)
        parts.load_extra(read.extra)
        if not read.plan.resized:
            load_random(read.random)

    with algorithm.meet() as meeting:
        meeting.exchange(restore, last=True)
    if algorithm.rank != 0:
        return
    log.info("continues at version %d, of %s", algorithm.version, read.place)
    if read.plan.resized:
        log.warning(
            "%s is of %s: the model is %s, the algorithm's state and random numbers begin anew, "
            "inner state and other objects are those of rank r mod %d",
            read.place,
            plural(saved, "rank"),
            "that of the newest version" if read.models is None else "the mean of all models",
            saved,
        )
