"""What the ranks compute: seconds by rank and version. Pure."""

from dataclasses import dataclass
from typing import Any, Self, SupportsIndex

import numpy as np
import numpy.typing as npt

from wagma.inject.checks import check_count
from wagma.inject.faults import Fault
from wagma.inject.injector import parse
from wagma.theory.checks import Floats, check_numbers, check_time

_BLOCK = 32  # versions that a bootstrap keeps together, where there are four times as many


@dataclass(frozen=True, eq=False)
class Workload:
    """Seconds that each rank computes before it calls each version; read-only arrays.

    Attributes:
        compute: seconds, finite and >= 0, float64: (ranks, versions).
        micro_batches: seconds of the M micro-batches of each of them, float64: (ranks, versions,
            M), for methods that stop between these; None: unknown.
        model_bytes: bytes of what a version averages, >= 0.
        sync_bytes: bytes of what a synchronisation averages; None: `model_bytes`.

    Raises:
        ValueError: a shape or a number is wrong.
        TypeError: something is no number.
    """

    compute: Floats
    micro_batches: Floats | None = None
    model_bytes: int = 0
    sync_bytes: int | None = None

    def __post_init__(self) -> None:
        compute = _times("compute", self.compute, 2, "(ranks, versions)")
        if (idle := np.flatnonzero(compute.sum(axis=1) == 0)).size:
            raise ValueError(
                f"compute[{idle[0]}] is 0 at every version: a rank that computes is needed; leave "
                "the rank out"
            )
        object.__setattr__(self, "compute", compute)
        if self.micro_batches is not None:
            parts = _times("micro_batches", self.micro_batches, 3, "(ranks, versions, M)")
            if parts.shape[:2] != compute.shape:
                raise ValueError(
                    f"micro_batches has the shape {parts.shape}: {compute.shape} with the "
                    "micro-batches as a third axis is needed, as compute has that shape"
                )
            object.__setattr__(self, "micro_batches", parts)
        check_count("model_bytes", self.model_bytes, 0)
        if self.sync_bytes is not None:
            check_count("sync_bytes", self.sync_bytes, 0)

    @property
    def ranks(self) -> int:
        """Number of ranks, P."""
        return len(self.compute)

    @property
    def versions(self) -> int:
        """Number of versions."""
        return len(self.compute.T)

    @property
    def bytes_at_sync(self) -> int:
        """Bytes of what a synchronisation averages."""
        return self.model_bytes if self.sync_bytes is None else self.sync_bytes

    @classmethod
    def injected(
        cls,
        spec: str,
        compute_seconds: float,
        ranks: SupportsIndex,
        versions: SupportsIndex,
        seed: int = 0,
        micro_batches: SupportsIndex = 1,
        model_bytes: int = 0,
    ) -> Self:
        """Return steps of a constant time with the delays of `wagma.inject`.

        Args:
            spec: of the delays, as `wagma.inject.parse` takes it. A step of the delays is a
                micro-batch, as in `wagma bench training`.
            compute_seconds: of a step without delay, > 0.
            ranks: P, >= 1.
            versions: of every rank, >= 1.
            seed: of the delays.
            micro_batches: M equal parts of a step, >= 1.
            model_bytes: see `Workload`.

        Raises:
            ValueError: a value is out of its range, or the text is no imbalance of P ranks.
            TypeError: a value is of a wrong type.
        """
        size, steps = check_count("ranks", ranks, 1), check_count("versions", versions, 1)
        parts = check_count("micro_batches", micro_batches, 1)
        seconds = check_time("compute_seconds", compute_seconds, positive=True)
        drawn = parse(spec, size, seed)
        if any(isinstance(event, Fault) for event in drawn.events):
            raise ValueError(
                f"spec is {spec!r}: only delays are simulated; leave stops and kills out"
            )
        table = drawn.table(steps * parts)
        # A time per rank, version and micro-batch.
        each = seconds / parts + table.reshape(steps, parts, size).transpose(2, 0, 1)
        return cls(each.sum(axis=2), each, model_bytes)

    @classmethod
    def from_profile(
        cls,
        profile: Any,
        ranks: SupportsIndex | None = None,
        versions: SupportsIndex | None = None,
        seed: int = 0,
    ) -> Self:
        """Return times drawn from those of a training, by a block bootstrap.

        Blocks of 32 successive versions are drawn, the same for all ranks of the profile: what is
        slow together, or again and again, stays so. More ranks than the profile has are copies of
        its ranks, all of them before one is copied twice; each set of copies draws its own blocks.

        Args:
            profile: with ``compute`` (P, n) and ``input`` (P, n) or None, in seconds;
                ``micro_batches`` (P, n, M) or None; ``model_bytes``. A rank arrives after both its
                input and its computing; what is in no micro-batch of a step is added to the first.
            ranks: how many; None: as many as the profile has.
            versions: how many; None: as many as the profile has.
            seed: of the draws.

        Raises:
            ValueError: a shape or a number is wrong.
        """
        computing = _times("profile.compute", profile.compute, 2, "(ranks, steps)")
        waited = getattr(profile, "input", None)
        own = computing + (0.0 if waited is None else _times("profile.input", waited, 2, "(P, n)"))
        whole = cls(own, profile.micro_batches, profile.model_bytes)
        size = whole.ranks if ranks is None else check_count("ranks", ranks, 1)
        count = whole.versions if versions is None else check_count("versions", versions, 1)
        rng = np.random.default_rng(check_count("seed", seed, 0))
        length = min(_BLOCK, max(1, whole.versions // 4))
        sets = -(-size // whole.ranks)
        starts = rng.integers(whole.versions - length + 1, size=(sets, -(-count // length)))
        drawn = (starts[:, :, np.newaxis] + np.arange(length)).reshape(sets, -1)[:, :count]
        source = np.arange(size) % whole.ranks
        steps = drawn[np.arange(size) // whole.ranks]  # (ranks, versions)
        parts = None if whole.micro_batches is None else whole.micro_batches.copy()
        if parts is not None:
            parts[:, :, 0] += np.maximum(whole.compute - parts.sum(axis=2), 0.0)
        return cls(
            whole.compute[source[:, np.newaxis], steps],
            None if parts is None else parts[source[:, np.newaxis], steps],
            whole.model_bytes,
        )


def _times(name: str, values: npt.ArrayLike, axes: int, form: str) -> Floats:
    """Return times as a read-only array of so many axes; raise ValueError or TypeError."""
    try:
        times = check_numbers(name, values).copy()
    except TypeError:
        rows = values if isinstance(values, (list, tuple)) else []
        lengths = {len(row) for row in rows if isinstance(row, (list, tuple, np.ndarray))}
        if len(lengths) > 1:
            raise ValueError(
                f"{name} has rows of {', '.join(map(str, sorted(lengths)))} times: give every rank "
                "the same number of versions; cut the longer ones off"
            ) from None
        raise
    if times.ndim != axes or not times.size:
        raise ValueError(f"{name} has the shape {times.shape}: {form} is needed, each at least 1")
    wrong = ~(np.isfinite(times) & (times >= 0))
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"{name}[{', '.join(map(str, place))}] is {float(times[place])!r}: a finite number of "
            "seconds, at least 0, is needed; leave the version out on all ranks"
        )
    times.flags.writeable = False
    return times
