"""The records of all ranks, made one profile. Pure.

The time in a collective of wagma is its wait, which it measures, and the rest. Of another one only
arrival and return are known on each rank. It returns after the last rank has arrived: the wait of
a rank is the time from its own arrival to that of the last rank. Ranks of one host have one clock.
Hosts have their own: returns are taken as simultaneous between them.

A collective between the backward pass and the optimizer's step shows itself: no rank makes its step
before the last one has its gradients.
"""

from __future__ import annotations

import base64
import zlib
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from wagma.profile.contents import Seconds, TrainingProfile

IN_STEP = 0.9  # share of the gaps in which ranks wait for each other, if they do in all
QUICKEST = 0.1  # quantile of a collective's durations that is taken for its own, see `_alone`


def pack(numbers: array[float]) -> str:
    """Return numbers as text, for other ranks."""
    return base64.b85encode(zlib.compress(numbers.tobytes(), 1)).decode()


def _unpack(text: str, width: int) -> Seconds:
    """Return packed numbers as float64 (n, width)."""
    numbers = np.frombuffer(zlib.decompress(base64.b85decode(text)), np.float64)
    return numbers.reshape(-1, width)


def merge(records: Sequence[Mapping[str, Any]]) -> TrainingProfile:
    """Return the profile of the ranks, with as many steps as all of them have.

    Args:
        records: what each rank recorded, see `wagma.profile.recording.Profile`.

    Raises:
        ValueError: a rank has no recorded step.
    """
    rows = [_unpack(one["rows"], 6) for one in records]
    steps = min(map(len, rows))
    if not steps:
        raise ValueError("a rank has recorded no step")
    columns = np.stack([each[:steps] for each in rows]).transpose(2, 0, 1)
    total, fed, span, waited, versions, passes = columns
    hosts = tuple(one["host"] for one in records)
    calls = _with_gaps(_calls(records, "calls", steps), _calls(records, "gaps", steps), hosts)
    waits = _waits(calls, hosts)
    wait = waited + _by_step(calls, waits, steps)
    others = [each[:, 2] - each[:, 1] - one for each, one in zip(calls, waits, strict=True)]
    of_wagma = np.maximum(span - waited, 0.0)
    communication = of_wagma + _by_step(calls, others, steps)
    model_bytes = max(int(one["model_bytes"]) for one in records)
    sizes: dict[int, tuple[int, float]] = {}
    if versions.any():
        sizes[model_bytes] = (int(versions.sum()), float(of_wagma.sum()))
    all_sizes, seconds = np.concatenate([each[:, 3] for each in calls]), np.concatenate(others)
    for size in np.unique(all_sizes):
        count, spent = sizes.get(int(size), (0, 0.0))
        chosen = all_sizes == size
        sizes[int(size)] = (count + int(chosen.sum()), spent + float(seconds[chosen].sum()))
    return TrainingProfile(
        input=fed,
        compute=np.maximum(total - fed - wait - communication, 0.0),
        wait=wait,
        communication=communication,
        hosts=hosts,
        micro_batches=_micro_batches(records, passes),
        model_bytes=model_bytes or max(sizes, default=0),
        communication_sizes=sizes,
        method=next((one["method"] for one in records if one["method"]), None),
        hook_seconds=np.array([one["hook_seconds"] for one in records]),
    )


def _calls(records: Sequence[Mapping[str, Any]], name: str, steps: int) -> list[Seconds]:
    """Return the calls of each rank in the steps that all ranks have."""
    every = (_unpack(one[name], 4) for one in records)
    return [each[each[:, 0] < steps] for each in every]


def _with_gaps(
    calls: Sequence[Seconds], gaps: Sequence[Seconds], hosts: Sequence[str]
) -> list[Seconds]:
    """Return the collectives with the gaps before steps, if a collective is in these."""
    together = _together(gaps, hosts) if len(gaps) > 1 else None
    if together is not None:
        arrived, returned = together
        if np.mean(returned.min(axis=0) >= arrived.max(axis=0)) >= IN_STEP:
            return [np.concatenate(both) for both in zip(calls, gaps, strict=True)]
    return list(calls)


def _waits(calls: Sequence[Seconds], hosts: Sequence[str]) -> list[Seconds]:
    """Return the seconds of each collective in which a rank waited for the last one."""
    together = _together(calls, hosts)
    if together is None:
        return [_alone(each, np.concatenate(calls)) for each in calls]
    arrived, returned = together
    return list(np.clip(arrived.max(axis=0) - arrived, 0.0, returned - arrived))


def _together(calls: Sequence[Seconds], hosts: Sequence[str]) -> tuple[Seconds, Seconds] | None:
    """Return the arrivals and returns by one clock, (P, n); None: ranks made different calls."""
    first = calls[0][:, ::3]
    if not len(first) or not all(np.array_equal(each[:, ::3], first) for each in calls):
        return None
    arrived, returned = np.stack(calls)[:, :, 1:3].transpose(2, 0, 1)
    clocks = {
        host: np.median(returned[[one == host for one in hosts]].mean(axis=0) - returned[0])
        for host in set(hosts)
    }
    offsets = np.array([0.0 if h == hosts[0] else clocks[h] for h in hosts])[:, None]
    return arrived - offsets, returned - offsets


def _alone(calls: Seconds, all_calls: Seconds) -> Seconds:
    """Return the waits where collectives of ranks do not match: what takes longer than usual."""
    durations = calls[:, 2] - calls[:, 1]
    waits = np.zeros(len(calls))
    for size in np.unique(calls[:, 3]):
        same = all_calls[all_calls[:, 3] == size]
        usual = np.quantile(same[:, 2] - same[:, 1], QUICKEST)
        chosen = calls[:, 3] == size
        waits[chosen] = np.maximum(durations[chosen] - usual, 0.0)
    return waits


def _by_step(calls: Sequence[Seconds], seconds: Sequence[Seconds], steps: int) -> Seconds:
    """Return seconds of collectives, summed by step, float64 (P, steps)."""
    return np.stack(
        [
            np.bincount(each[:, 0].astype(int), one, minlength=steps)
            for each, one in zip(calls, seconds, strict=True)
        ]
    )


def _micro_batches(records: Sequence[Mapping[str, Any]], passes: Seconds) -> Seconds | None:
    """Return the seconds of the backward passes; None: not all steps have the same number.

    Args:
        records: what each rank recorded.
        passes: how many passes each step had, float64 (P, steps).
    """
    number = int(passes.flat[0])
    if not number or (passes != number).any():
        return None
    seconds = [_unpack(one["passes"], 1)[: passes.shape[1] * number] for one in records]
    return np.stack(seconds).reshape(*passes.shape, number)
