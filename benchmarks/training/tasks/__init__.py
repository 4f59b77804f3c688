"""What is trained: data that need no network, a small model, how it is evaluated."""

from dataclasses import dataclass
from importlib import import_module

from .task import Batch, Task

__all__ = ["TASKS", "Batch", "Defaults", "Task", "load"]


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a task is trained with unless something else is asked for."""

    summary: str  # for the help
    steps: int  # versions
    batch: int  # samples per rank and step
    learning_rate: float  # of the task's optimizer
    target: float  # of `Task.evaluate`, whose time is reported
    packages: tuple[str, ...] = ()  # that its data come from


# Each is a module with a function `load`, imported when it is used: it needs torch.
TASKS = {
    "digits": Defaults("handwritten digits, a CNN", 300, 32, 0.05, 0.95, ("sklearn",)),
    "charlm": Defaults("characters of Python's documentation, a Transformer", 200, 8, 5e-3, 0.25),
    "episodes": Defaults("a pole on a cart, a policy gradient", 200, 2, 0.01, 150.0),
}


def load(name: str, seed: int) -> Task:
    """Read or make the data of a task; a second or so, on one rank for all.

    Args:
        name: one of TASKS.
        seed: of the split into training and test data, and of what is drawn.

    Raises:
        ImportError: what it reads is not installed.
    """
    task: Task = import_module(f"{__name__}.{name}").load(seed)
    return task
