"""Trainings whose ranks are processes that step when a script says so: the order is the test's.

Calls of the wait-avoiding collectives are posted, so that the script knows when a rank that has to
wait has arrived, and may go on with another one.
"""

import multiprocessing
import os
import traceback
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from references import COMMON, RARE, Vector, gradient
from torch.optim import Optimizer

import wagma
from wagma.collectives import Outcome, PartialAllreduce

LIVENESS_S = 60.0  # far beyond what any step takes: a hang becomes a failure
INNER: dict[str, Callable[..., Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.25),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.25, momentum=0.5),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.05),
}


@dataclass(frozen=True)
class Made:
    """What a step made of a rank."""

    version: int  # that the rank calls next
    model: Vector
    late: bool
    skipped: int
    weight: float
    contributors: tuple[int, ...]
    versions: tuple[int, ...]


class Team:
    """`size` ranks, processes of this one; a context manager that ends them."""

    def __init__(self, size: int) -> None:
        _warm_up()
        self.size = size
        self.alive = True
        context = multiprocessing.get_context("fork")
        job = f"test-{uuid.uuid4()}"
        self._pipes = []
        self._processes = []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, size, job, theirs), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *_: object) -> None:
        self.alive = False
        for process in self._processes:
            process.kill()
            process.join()

    def train(self, algorithm: str, inner: str, **arguments: Any) -> "Training":
        """A training of all ranks with ``wagma.ALGORITHM(None, **arguments)``."""
        self._send(range(self.size), (algorithm, arguments, inner))
        return Training(self)

    def _send(self, ranks: Iterable[int], command: object) -> None:
        for rank in ranks:
            self._pipes[rank].send(command)

    def _receive(self, rank: int) -> Any:
        assert self._pipes[rank].poll(LIVENESS_S), f"rank {rank} said nothing"
        kind, value = self._pipes[rank].recv()
        assert kind != "error", f"rank {rank}: {value}"
        return value


class Training:
    """One training of a team; a context manager. A team that fails in it is ended."""

    def __init__(self, team: Team) -> None:
        self._team = team

    def __enter__(self) -> "Training":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._team.__exit__()
            return
        self._team._send(range(self._team.size), "end")
        for rank in range(self._team.size):
            self.made(rank)

    def arrive(self, rank: int, command: str = "step") -> Made | None:
        """One rank's step; None: it waits for others, and `made` has it when they have come."""
        self._team._send([rank], command)
        made: Made | None = self._team._receive(rank)
        return made

    def made(self, rank: int) -> Made:
        """What became of a step that waited."""
        while (made := self._team._receive(rank)) is None:
            pass
        assert isinstance(made, Made)
        return made

    def together(self, command: str = "step") -> list[Made]:
        """A step of all ranks, in whatever order."""
        self._team._send(range(self._team.size), command)
        return [self.made(rank) for rank in range(self._team.size)]


def _warm_up() -> None:
    """Imports here, once and not in every rank, what the first steps of a process import."""
    for make in INNER.values():
        optimizer = make([torch.nn.Parameter(torch.zeros(1))])
        optimizer.zero_grad()
        optimizer.step()
    _ = wagma.DistributedOptimizer


def _serve(rank: int, size: int, job: str, pipe: Connection) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), WAGMA_JOB=job)
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    torch.set_num_threads(1)
    try:
        while True:
            _train(rank, pipe, *pipe.recv())
    except EOFError:
        pass
    except BaseException:
        pipe.send(("error", traceback.format_exc()))
    os._exit(0)  # what happens at a normal exit is tested elsewhere


def _train(
    rank: int, pipe: Connection, name: str, arguments: dict[str, Any], inner_name: str
) -> None:
    tensors = [torch.nn.Parameter(torch.zeros(n, dtype=torch.float64)) for n in (COMMON, RARE)]
    inner = INNER[inner_name](tensors)
    algorithm = getattr(wagma, name)(None, **arguments)
    with wagma.DistributedOptimizer(inner, algorithm) as optimizer:
        if isinstance(algorithm.collective, PartialAllreduce):
            _post(algorithm.collective, pipe)
        saved: dict[str, Any] = {}
        for command in iter(pipe.recv, "end"):
            model = torch.cat([tensor.detach() for tensor in tensors]).numpy()
            optimizer.zero_grad()
            if command == "step":
                new = gradient(rank, optimizer.version, model)
                tensors[0].grad = torch.from_numpy(new[:COMMON].copy())
                if new[-1] > 0:
                    tensors[1].grad = torch.from_numpy(new[COMMON:-1].copy())
                optimizer.step()
            elif command == "passive":
                algorithm.passive_step(inner)
            elif command == "synchronize":
                optimizer.synchronize()
            elif command == "save":
                saved = optimizer.state_dict()
            elif command == "load":
                optimizer.load_state_dict(saved)
            else:
                assert command == "weigh"
                algorithm.load_state({"weight": 1.0 + rank})
            pipe.send(("made", _describe(optimizer, tensors)))
    pipe.send(("made", _describe(optimizer, tensors)))


def _post(collective: PartialAllreduce, pipe: Connection) -> None:
    """Makes its calls say when they wait."""

    def posting(x: Any, weight: float = 1.0) -> Outcome:
        request = collective.iallreduce(x, weight)
        outcome = request.test()
        if outcome is None:
            pipe.send(("waits", None))
            outcome = request.wait()
        return outcome

    collective.allreduce = posting  # type: ignore[method-assign]


def _describe(optimizer: wagma.DistributedOptimizer, tensors: list[torch.Tensor]) -> Made:
    model = np.concatenate([tensor.detach().numpy() for tensor in tensors])
    outcome = optimizer.outcome
    if outcome is None:
        return Made(optimizer.version, model, False, 0, 1.0, (), ())
    return Made(
        optimizer.version,
        model,
        outcome.late,
        outcome.skipped,
        outcome.weight,
        outcome.contributors,
        outcome.versions,
    )
