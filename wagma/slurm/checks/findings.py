"""Define what checks read (`Job`) and what they yield (`Finding`)."""

from dataclasses import dataclass
from functools import cached_property

from wagma.slurm.plan import Component, Signal, components, signal_of
from wagma.slurm.script import Launch, Script


@dataclass(frozen=True, order=True)
class Finding:
    """Describe one mistake."""

    line: int  # of the file, from 1
    code: str  # a short name of the mistake
    text: str  # what is wrong
    remedy: str  # what to write instead


@dataclass(frozen=True)
class Job:
    """Hold a script, and what several checks ask of it."""

    script: Script  # as it was read
    checkpoint_s: float | None = None  # seconds that a checkpoint takes; None: unknown

    @cached_property
    def options(self) -> dict[str, str]:
        """Return the options of the first component, which runs the script."""
        return self.script.options()

    @cached_property
    def components(self) -> list[Component]:
        """Return what each component asks for."""
        return components(self.script)

    @cached_property
    def tasks(self) -> int:
        """Return how many ranks all components have."""
        return sum(one.tasks for one in self.components)

    @cached_property
    def signal(self) -> Signal | None:
        """Return the signal before the time limit; None: there is none."""
        return signal_of(self.options)

    @cached_property
    def ranks(self) -> list[Launch]:
        """Return the launches of programs that may know ranks."""
        return [one for one in self.script.launches if not one.is_plain]

    @cached_property
    def trainings(self) -> list[Launch]:
        """Return the launches that may outlast a job: wagma's own commands are left out."""
        return [one for one in self.ranks if not one.tool]

    @cached_property
    def code(self) -> str:
        """Return the text without comments, and without the text of sourced files."""
        return self.script.code

    @cached_property
    def has_gpus(self) -> bool:
        """Return whether it asks for GPUs."""
        return any(one.gpus for one in self.components)
