"""Read what a script asks Slurm for: nodes, tasks, cores, GPUs, times. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from wagma.slurm.options import number
from wagma.slurm.script import Script
from wagma.units import parse_limit

DEFAULT_SIGNAL_S = 60
SIGNAL_EARLY_S = 60  # Slurm may signal so much sooner than it was asked to
_GPU = re.compile(r"(?:gres[:/])?gpu(?:[:/][\w.-]+)??(?:[:=](\d+))?", re.ASCII)


@dataclass(frozen=True)
class Component:
    """Describe what one component of a job asks for; an ordinary job has one."""

    nodes: int | None  # how many; None: as many as the tasks need
    tasks: int  # ranks on all nodes
    per_node: int | None  # ranks on each node; None: as Slurm distributes them
    cores: int  # of each rank
    gpus: str  # text such as "1 per task"; "": none
    gpus_per_node: int  # how many on a node; 0: unknown, or none


@dataclass(frozen=True)
class Signal:
    """Describe the signal before the time limit."""

    name: str  # without SIG
    seconds: int  # how long before the limit
    to_batch: bool  # whether it goes to the batch shell alone, and not to what srun started


def components(script: Script) -> list[Component]:
    """Return the components of a job."""
    return [_component(script.options(index)) for index in range(script.components)]


def _component(options: Mapping[str, str]) -> Component:
    nodes = _first_number(options.get("nodes", ""))
    per_node, tasks = number(options, "ntasks-per-node"), number(options, "ntasks")
    gpus, gpus_per_node = _gpus(options)
    per_gpu = number(options, "ntasks-per-gpu")
    all_gpus = number(options, "gpus") or (gpus_per_node * (nodes or 1))
    if tasks is None and per_gpu and all_gpus:
        tasks = per_gpu * all_gpus
    if tasks is None:
        tasks = (nodes or 1) * (per_node or 1)
    if nodes is None and per_node:
        nodes = -(-tasks // per_node)
    if per_node is None and nodes and tasks % nodes == 0:
        per_node = tasks // nodes
    return Component(
        nodes, tasks, per_node, number(options, "cpus-per-task") or 1, gpus, gpus_per_node
    )


def _gpus(options: Mapping[str, str]) -> tuple[str, int]:
    per_node = 0
    for name, what in (("gpus-per-task", "per task"), ("gpus-per-node", "per node")):
        if name in options:
            count = _first_number(options[name].rpartition(":")[2]) or 1
            return f"{count} {what}", count if what == "per node" else per_node
    if "gpus" in options:
        count = _first_number(options["gpus"].rpartition(":")[2]) or 1
        nodes = _first_number(options.get("nodes", "")) or 1
        return f"{count} in all", count // nodes
    for part in options.get("gres", "").split(","):
        if found := _GPU.fullmatch(part.strip()):
            count = int(found[1] or 1)
            return f"{count} per node", count
    return "", 0


def signal_of(options: Mapping[str, str]) -> Signal | None:
    """Return what `--signal` asks for; None: nothing, or nothing that can be read."""
    found = re.fullmatch(
        r"(?:([BR]{1,2}):)?(?:SIG)?([A-Za-z0-9]+)(?:@(\d+))?", options.get("signal", "")
    )
    if not found:
        return None
    seconds = int(found[3]) if found[3] else DEFAULT_SIGNAL_S
    return Signal(found[2].upper(), seconds, "B" in (found[1] or ""))


def time_limit(options: Mapping[str, str]) -> int | None:
    """Return the seconds of the time limit; None: it is not given, or there is none."""
    return parse_limit(options.get("time", ""))


def array_tasks(text: str) -> tuple[int, int | None] | None:
    """Return how many tasks an array has, and how many run at once; None: Slurm refuses it."""
    tasks, limits, at_once = re.sub(r"[][]", "", text).partition("%")
    if limits and not (at_once.isdecimal() and int(at_once)):
        return None
    count = 0
    for part in tasks.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part.strip())
        if not found:
            return None
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        if last < first or step < 1:
            return None
        count += (last - first) // step + 1
    return count, int(at_once) if limits else None


def _first_number(text: str) -> int | None:
    found = re.match(r"\d+", text)
    return int(found[0]) if found else None
