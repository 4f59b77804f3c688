"""What checks find, and what they have to go by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from wagma.slurm.plan import Component, Signal, components, signal_of
from wagma.slurm.script import Launch, Script

__all__ = ["Finding", "Job"]


@dataclass(frozen=True, order=True)
class Finding:
    """One mistake.

    Attributes:
        line: of the file, from 1.
        code: a short name of the mistake.
        text: what is wrong.
        remedy: what to write instead.
    """

    line: int
    code: str
    text: str
    remedy: str


@dataclass(frozen=True)
class Job:
    """A script with what checks ask of it again and again.

    Attributes:
        script: as it was read.
        checkpoint_s: seconds that a checkpoint takes; None: unknown.
    """

    script: Script
    checkpoint_s: float | None = None

    @cached_property
    def options(self) -> dict[str, str]:
        """The options of the first component, which runs the script."""
        return self.script.options()

    @cached_property
    def components(self) -> list[Component]:
        """What each component asks for."""
        return components(self.script)

    @cached_property
    def tasks(self) -> int:
        """The ranks of all components."""
        return sum(one.tasks for one in self.components)

    @cached_property
    def signal(self) -> Signal | None:
        """The signal before the time limit."""
        return signal_of(self.options)

    @cached_property
    def ranks(self) -> list[Launch]:
        """The launches of programs that may know ranks."""
        return [one for one in self.script.launches if not one.is_plain]

    @cached_property
    def trainings(self) -> list[Launch]:
        """The launches that may go on for longer than a job: no commands of wagma's own."""
        return [one for one in self.ranks if not one.tool]

    @cached_property
    def code(self) -> str:
        """The text without comments, that of sourced files not included."""
        return self.script.code

    @cached_property
    def has_gpus(self) -> bool:
        """Whether it asks for GPUs."""
        return any(one.gpus for one in self.components)
