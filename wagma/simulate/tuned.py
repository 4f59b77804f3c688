"""Networks by name, or with the times of messages that `wagma tune` measured."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from wagma.simulate.network import FREE, NETWORKS, Network

NAMES = ("none", *NETWORKS)


def network(name: str, ranks_per_node: int = 1) -> Network:
    """Return a network by its name, or with the times of messages in a file of `wagma tune`.

    A file may have several measurements: the newest counts. Its messages to another node are those
    of the network, if it has such; otherwise its messages on a node are.

    Args:
        name: one of `NAMES`, or the path of a file.
        ranks_per_node: ranks that share a node's link, and sum up on the node first, >= 1.

    Raises:
        ValueError: the file has another format, or lacks such times; names the file, and the line.
        OSError: there is neither such a name nor such a file.
    """
    if name == "none":
        return FREE
    if name in NETWORKS:
        known: dict[str, Network] = {"node": NETWORKS["node"], "between": NETWORKS[name]}
    else:
        known = _measured(Path(name))
    if ranks_per_node == 1:
        return known.get("between", known["node"])
    for where, which in (("node", "on a node"), ("between", "between nodes")):
        if where not in known:
            raise ValueError(
                f"{name} has no times of messages {which}, which {ranks_per_node} ranks per node "
                "need: measure with several ranks on each of two nodes, or leave --ranks-per-node "
                "out"
            )
    return replace(known["between"], ranks_per_node=ranks_per_node, intra=known["node"])


def _measured(file: Path) -> dict[str, Network]:
    """Return the networks on a node, "node", and to another one, "between", as far as known."""
    from wagma.collectives import tuning

    try:
        under, messages = tuning.messages(file)
    except FileNotFoundError as error:
        error.strerror = f"no such network, of {', '.join(NAMES)}, and no such file"
        raise
    return {where: _network(f"{file}: {under}", where, messages[where]) for where in messages}


def _network(place: str, where: str, numbers: Any) -> Network:
    try:
        return Network(**numbers)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{place}, messages {where!r}: {error}; measure again, with python -m wagma tune"
        ) from None
