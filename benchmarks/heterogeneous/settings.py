"""What a benchmark of uneven batches is asked for, and how options say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from wagma.launch import values

if TYPE_CHECKING:
    from wagma.theory.cannikin.clusters import ClusterName

Method = Literal["even", "lb-bsp", "adaptdl", "cannikin"]
METHODS: tuple[Method, ...] = get_args(Method)
ADAPTIVE = ("adaptdl", "cannikin")  # these choose the total batch


@dataclass(frozen=True)
class Slowdown:
    """A rank that becomes slower."""

    rank: int  # which, from 0
    factor: float  # by which its times are multiplied, > 0; below 1 it becomes faster
    epoch: int  # the first one in which they are, from 1

    def __str__(self) -> str:
        return f"{self.rank}:{self.factor:g}:{self.epoch}"


@dataclass(frozen=True)
class Settings:
    """The options; see the command's help.

    `batch` None: 32 samples per rank. `out` None: nothing is written.
    """

    cluster: ClusterName
    methods: tuple[str, ...]
    batch: int | None
    batch_range: tuple[int, int] | None
    noise_scale: int | None
    epochs: int
    steps: int
    step_time: float
    slowdown: tuple[Slowdown, ...]
    parameters: int
    transport: str
    out: str | None


def methods(text: str) -> tuple[str, ...]:
    """Return the methods that a text such as "even,cannikin" names, each once."""
    found = values.names(text, METHODS)
    if not found:
        raise ValueError(f"{text!r} names no method: choose from {', '.join(METHODS)}")
    return found


def batch_range(text: str) -> tuple[int, int]:
    """Return the smallest and the largest total batch of a text such as 128:1024."""
    words = text.split(":")
    if len(words) != 2:
        raise ValueError(f"{text!r} is no range: write SMALLEST:LARGEST, as in 128:1024")
    smallest, largest = (values.integer(word, 1) for word in words)
    if smallest >= largest:
        raise ValueError(f"{text!r} is no range: the first number has to be below the second")
    return smallest, largest


def slowdowns(text: str) -> tuple[Slowdown, ...]:
    """Return what a text such as "2:1.5:6,0:2:8" says: rank, factor and epoch of each."""
    return tuple(_slowdown(word.strip()) for word in text.split(","))


def _slowdown(text: str) -> Slowdown:
    words = text.split(":")
    if len(words) != 3:
        raise ValueError(f"{text!r} is no slowdown: write RANK:FACTOR:EPOCH, as in 2:1.5:6")
    try:
        factor = float(words[1])
    except ValueError:
        raise ValueError(f"{words[1]!r} is no factor: write a number such as 1.5") from None
    if not 0.01 <= factor <= 100:
        raise ValueError(f"the factor {words[1]} is out of range: 0.01 to 100 is possible")
    return Slowdown(values.integer(words[0], 0), factor, values.integer(words[2], 2))


def check(settings: Settings, ranks: int, nodes: int) -> None:
    """Check that so many ranks can do what is asked for, on a cluster with so many nodes.

    Raises:
        ValueError: they cannot.
    """
    if ranks > nodes:
        raise ValueError(
            f"--cluster {settings.cluster} has {nodes} nodes, and this run has {ranks} ranks, one "
            f"for each node: start {nodes} or fewer, or take another cluster"
        )
    smallest = settings.batch if settings.batch_range is None else settings.batch_range[0]
    if smallest is not None and smallest < ranks:
        option = "--batch" if settings.batch_range is None else "--batch-range"
        raise ValueError(f"{option}: {smallest} samples are too few for {ranks} ranks: one each")
    for one in settings.slowdown:
        if one.rank >= ranks:
            raise ValueError(f"--slowdown {one}: this run has ranks 0 to {ranks - 1}")
        if one.epoch > settings.epochs:
            raise ValueError(f"--slowdown {one}: this run has {settings.epochs} epochs")
