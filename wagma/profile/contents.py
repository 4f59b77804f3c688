"""What the ranks of a training did, per step. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wagma.units import percent_text, time_text

if TYPE_CHECKING:
    from wagma.profile.diagnosis import Diagnosis

Seconds = NDArray[np.float64]

# Where the time of a step goes: disjoint, and together the step.
PARTS = ("input", "compute", "communication", "wait")


@dataclass(frozen=True, eq=False)
class TrainingProfile:
    """What each of P ranks did in each of n steps, as `wagma.Profile` recorded it.

    `input`, `compute`, `communication` and `wait` of a step add up to its duration. A rank's own
    time is the first three of these: a slow rank has a longer one, and the others wait.

    Attributes:
        input: seconds in which ``profile.batches`` waited for the next batch, float64 (P, n); 0
            where the loop does not use it: loading is then part of `compute`.
        compute: seconds of everything else up to the arrival at a collective, float64 (P, n).
        wait: seconds in collectives until the last rank arrived, float64 (P, n).
        communication: other seconds in collectives, float64 (P, n): copies, sums, messages.
        hosts: host of each rank.
        micro_batches: the part of `compute` up to the end of each backward pass, float64 (P, n, M);
            None: steps had no backward pass, or not all the same number M of them.
        model_bytes: bytes of the trained parameters; 0: unknown.
        communication_sizes: number of collectives by their bytes, and the seconds of communication
            in these, without waiting, both summed over ranks and steps.
        method: the algorithm of wagma, "DistributedDataParallel", or None: neither was seen.
        hook_seconds: seconds that recording itself took on each rank, float64 (P,).

    Raises:
        ValueError: the arrays have other shapes, or times are not finite or negative.
    """

    input: Seconds
    compute: Seconds
    wait: Seconds
    communication: Seconds
    hosts: tuple[str, ...]
    micro_batches: Seconds | None
    model_bytes: int
    communication_sizes: Mapping[int, tuple[int, float]]
    method: str | None
    hook_seconds: Seconds

    def __post_init__(self) -> None:
        ranks, steps = len(self.hosts), self.compute.shape[-1] if self.compute.ndim else 0
        if ranks == 0 or steps == 0:
            raise ValueError(f"hosts and compute: {ranks} ranks and {steps} steps; 1 is the least")
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(PARTS, (ranks, steps))
        shapes["hook_seconds"] = (ranks,)
        if self.micro_batches is not None:
            shapes["micro_batches"] = (ranks, steps, *self.micro_batches.shape[-1:])
        for name, shape in shapes.items():
            times: Seconds = getattr(self, name)
            if times.shape != shape:
                raise ValueError(f"{name} has shape {times.shape}; it has to be {shape}")
            for wrong in np.argwhere(~(np.isfinite(times) & (times >= 0)))[:1]:
                place = ", ".join(map(str, wrong))
                raise ValueError(
                    f"{name}[{place}] is {times[tuple(wrong)]}: times are finite, 0 or more"
                )

    @property
    def ranks(self) -> int:
        """The number of ranks P."""
        return len(self.hosts)

    @property
    def steps(self) -> int:
        """The number of recorded steps n, the same for all ranks."""
        return int(self.compute.shape[1])

    @property
    def own(self) -> Seconds:
        """Seconds of each step that a rank does not wait for others, float64 (P, n)."""
        return self.input + self.compute + self.communication

    @property
    def durations(self) -> Seconds:
        """Seconds of each step, float64 (P, n)."""
        return self.own + self.wait

    @property
    def hook_share(self) -> float:
        """Share of the recorded time that recording itself took, on the rank where it is most."""
        return float(np.max(self.hook_seconds / np.maximum(self.durations.sum(axis=1), 1e-9)))

    def table(self) -> str:
        """Return a line of text per rank: its step, and the parts of it, on average."""
        width = max(len("host"), *map(len, self.hosts))
        lines = [
            f"{'rank':>5} {'host':<{width}} {'step':>9}" + "".join(f" {part:>19}" for part in PARTS)
        ]
        for rank, host in enumerate(self.hosts):
            step = float(self.durations[rank].mean())
            parts = [float(getattr(self, part)[rank].mean()) for part in PARTS]
            lines.append(
                f"{rank:>5} {host:<{width}} {time_text(step):>9}"
                + "".join(f" {time_text(t):>10} {percent_text(t / (step or 1)):>8}" for t in parts)
            )
        return "\n".join(lines)

    def diagnosis(self) -> Diagnosis:
        """Name the slow rank and what makes it slow; see `wagma.profile.diagnosis.diagnose`.

        Raises:
            ValueError: the profile has too few steps; the message says how many are needed.
        """
        from wagma.profile.diagnosis import diagnose

        return diagnose(self)
