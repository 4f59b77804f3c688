"""How messages exchange data on this machine: what ``python -m wagma tune`` measured and wrote.

They lie in one file of the user's cache. Their key names the setting in which they were measured:
the MPI, the number of ranks in all and on a node, and the model of the processor. A handle takes
the parameters that rank 0 finds, and the defaults where there are none. Beside them are LogGP's
numbers of messages, with which `wagma.simulate` can predict.
"""

import errno
import json
import logging
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..launch.files import write_file
from .communicator import import_mpi

_log = logging.getLogger("wagma")
_FORMAT = 1
_CPUINFO = Path("/proc/cpuinfo")
_NETWORK_CHUNK = 1 << 20
_NETWORK_PART = 1
_PAIR_SWITCH = 16 << 10
_NETWORK_PAIR_SWITCH = 32 << 10
_PAIR_CHUNK = 512 << 10
_ADDED = "schedule_part"  # older files do not have it
_MESSAGES = "messages"
# Values that the engine takes, beside 0 (csrc/engine/options.c).
_RANGES = {
    "schedule_switch": (1, 2**62),
    "schedule_chunk": (256, 2**30),
    "schedule_part": (1, 2**62),
    "schedule_direct": (1, 2**31 - 1),
}


@dataclass(frozen=True, slots=True)
class Schedule:
    """Parameters of the schedules, as in wagma_options.h; 0: the engine's default.

    Attributes:
        schedule_switch: largest array in bytes that ranks exchange whole, in few messages.
        schedule_chunk: bytes of a message of a larger array.
        schedule_part: smallest part of a member in bytes that is sent to all others at once;
            shorter parts take fewer messages, one after the other.
        schedule_direct: largest group whose members send to all others at once.
    """

    schedule_switch: int = 0
    schedule_chunk: int = 0
    schedule_part: int = 0
    schedule_direct: int = 0

    def options(self) -> dict[str, int]:
        """Return them as options of the engine."""
        return asdict(self)


def cache_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return ``wagma/tune.json`` in XDG_CACHE_HOME, or in ``~/.cache``.

    Raises:
        RuntimeError: there is no home directory.
    """
    cache = Path(environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():  # the specification of that variable ignores relative paths
        cache = Path.home() / ".cache"
    return cache / "wagma" / "tune.json"


def key(size: int, on_a_node: int) -> str:
    """Return the key for `size` ranks, `on_a_node` of them on this node."""
    name, version = import_mpi().get_vendor()
    numbers = ".".join(map(str, version))
    nodes = f"{size} ranks, {on_a_node} on a node"
    return f"{name} {numbers}; {nodes}; {_processor()}"


def _processor() -> str:
    try:
        for line in _CPUINFO.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def read(file: Path, under: str) -> Schedule | None:
    """Return the parameters measured under a key; None if there are none.

    Raises:
        ValueError: the content is not valid.
        OSError: the file cannot be read.
    """
    known = _machines(file).get(under)
    if known is None:
        return None
    if not isinstance(known, dict):
        raise ValueError(f"{under!r} is {known!r}")
    values: dict[str, int] = {}
    for field in fields(Schedule):
        value = known.get(field.name, 0 if field.name == _ADDED else None)
        lowest, highest = _RANGES[field.name]
        if not isinstance(value, int) or not (value == 0 or lowest <= value <= highest):
            raise ValueError(f"{field.name} of {under!r} is {value!r}")
        values[field.name] = value
    return Schedule(**values)


def default(size: int, on_a_node: int) -> Schedule:
    """Return the defaults: the engine's, with larger messages where a network carries them.

    Across a network successive messages take longer than concurrent ones. Two ranks send the same
    bytes in few messages as in parts, and have no third rank to send to while a message is on its
    way. docs/schedules.md has the figures.
    """
    pair = size == 2
    if on_a_node < size:
        return Schedule(
            schedule_switch=_NETWORK_PAIR_SWITCH if pair else 0,
            schedule_chunk=_NETWORK_CHUNK,
            schedule_part=_NETWORK_PART,
        )
    if pair:
        return Schedule(schedule_switch=_PAIR_SWITCH, schedule_chunk=_PAIR_CHUNK)
    return Schedule()


def find(size: int, on_a_node: int) -> Schedule:
    """Return the parameters for handles of these ranks; warn if the file is not valid."""
    try:
        file = cache_file()
    except RuntimeError:
        return default(size, on_a_node)
    try:
        return read(file, key(size, on_a_node)) or default(size, on_a_node)
    except (OSError, ValueError) as error:
        _log.warning(
            "%s is ignored (%s): remove it, or write it again with `mpiexec -n %d python -m wagma "
            "tune`",
            file,
            error,
            size,
        )
        return default(size, on_a_node)


def messages(file: Path) -> tuple[str, dict[str, Any]]:
    """Return the numbers of messages that were measured last, and their key.

    Returns:
        The key, and the numbers of messages within a node, "node", and to another, "between", as
        far as there are such ranks: see `wagma.tune.loggp.LogGP`.

    Raises:
        ValueError: the content is not valid, or has no such numbers; names file and line.
        OSError: the file cannot be read.
    """
    again = f"write it with `mpiexec -n 2 python -m wagma tune --file {file}`"
    if not file.is_file():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
    try:
        known = _machines(file)
    except json.JSONDecodeError as error:
        raise ValueError(f"{file}:{error.lineno}: is no JSON: {error.msg}; {again}") from None
    except ValueError as error:
        raise ValueError(f"{file}: {error}; {again}") from None
    for under, machine in reversed(known.items()):
        if isinstance(machine, dict) and isinstance(machine.get(_MESSAGES), dict):
            return under, machine[_MESSAGES]
    raise ValueError(f"{file} has no times of messages: {again}")


def write(
    file: Path,
    under: str,
    schedule: Schedule,
    messages: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """Put what was measured under this key into the file, as the last; it changes atomically.

    Args:
        file: to change.
        under: see `key`.
        schedule: its parameters.
        messages: its numbers, as `messages` returns them; None: they were not measured.

    Raises:
        OSError: the file cannot be written.
    """
    try:
        machines = _machines(file)
    except ValueError:  # an invalid file is replaced
        machines = {}
    machines.pop(under, None)
    machines[under] = {**schedule.options(), **({} if messages is None else {_MESSAGES: messages})}
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"wagma": _FORMAT, "machines": machines}, indent=2) + "\n"
    write_file(file, text)


def _machines(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text()
    except FileNotFoundError:
        return {}
    content = json.loads(text)  # a JSONDecodeError is a ValueError
    if not isinstance(content, dict) or content.get("wagma") != _FORMAT:
        found = content.get("wagma") if isinstance(content, dict) else None
        if found is None:
            raise ValueError("wagma tune did not write it")
        raise ValueError(f"it is of format {found!r}, and this wagma reads {_FORMAT}")
    machines = content.get("machines")
    if not isinstance(machines, dict):
        raise ValueError("it has no machines")
    return machines
