"""`simulate`: what a method makes of a workload on a network. Pure."""

import warnings
from typing import SupportsIndex

import numpy as np

from wagma.collectives._engine import MAX_RANKS
from wagma.inject.checks import check_count
from wagma.simulate import graph, groups, ordered, server
from wagma.simulate.costs import Costs
from wagma.simulate.forward import Forward
from wagma.simulate.methods import Method
from wagma.simulate.network import FREE, Network
from wagma.simulate.quadratic import Models
from wagma.simulate.result import Simulated
from wagma.simulate.stopping import plan
from wagma.simulate.tally import Tally
from wagma.simulate.workload import Workload
from wagma.theory.checks import Floats
from wagma.units import plural


def simulate(
    method: Method,
    workload: Workload,
    network: Network | None,
    seed: SupportsIndex = 0,
    *,
    consensus: bool = True,
) -> Simulated:
    """Simulate a training at the level of versions.

    Each rank computes and calls its version. When the call returns is decided by the method's rule,
    and by the time of its communication on the network; nothing else takes time. Which ranks form a
    group or are neighbours, and DropCompute's and Cannikin's choices, come from the library's own
    functions. 1,024 ranks with 1,000 versions take seconds of one core. Equal arguments give equal
    results. Thread-safe.

    Args:
        method: of `wagma.simulate.method`.
        workload: what the ranks compute.
        network: of the ranks; None: communication takes no time, with a warning.
        seed: of the draws: pairs, "majority", noise of the quadratic objective.
        consensus: whether the models of a quadratic objective are simulated as well.

    Raises:
        ValueError: the method needs more ranks, versions or micro-batches than the workload has.
    """
    draw = check_count("seed", seed, 0)
    if workload.ranks > MAX_RANKS:
        warnings.warn(
            f"{workload.ranks} ranks: handles have at most {MAX_RANKS}, beyond which the model was "
            "never compared with them",
            stacklevel=2,
        )
    _check(method, workload)
    if network is None:
        warnings.warn(
            "no network is given: communication takes no time, and throughputs are upper bounds; "
            "choose one of wagma.simulate.NETWORKS",
            stacklevel=2,
        )
        network = FREE
    costs = Costs.of(method, workload, network)
    planned = plan(method, workload, costs.world)
    compute = _periods(planned.compute, method.period)
    split = workload.micro_batches
    parts = None if split is None else split.transpose(1, 0, 2)
    models = None
    if consensus and method.averages_models and method.missed == "once":
        depth = method.default_window(workload.ranks) + 3
        models = Models(workload.ranks, depth, np.random.default_rng([draw, 1]))
    if method.kind == "ordered":
        tally = ordered.play(method, compute, costs, draw, parts)
    elif method.kind == "graph":
        tally = graph.play(method, compute, network, workload.model_bytes, models)
    elif method.kind == "server":
        tally = server.play(method, compute, parts, network, workload.model_bytes)
    elif method.missed == "fast-forward":
        tally = Forward(method, compute, costs, draw).play()
    else:
        tally = groups.play(method, compute, costs, draw, models)
    share = planned.counted / planned.compute.size * method.period
    whole = planned.planned / planned.compute.size * method.period
    return _result(method, workload, tally, share, whole)


def _check(method: Method, workload: Workload) -> None:
    if workload.ranks < method.least_ranks():
        raise ValueError(
            f"the workload has {plural(workload.ranks, 'rank')}: {method.name} needs "
            f"{method.least_ranks()}; give more"
        )
    if workload.ranks > MAX_RANKS and (
        method.kind == "graph" or (method.kind == "groups" and method.group_size != 1)
    ):
        raise ValueError(
            f"the workload has {workload.ranks} ranks: {method.name} averages in groups or graphs, "
            f"which the engine draws for at most {MAX_RANKS}; give fewer"
        )
    if method.missed == "fast-forward" and (
        method.quorum != 1 or method.activation != "group" or method.grouping == "pairs"
    ):
        raise ValueError(
            f"missed='fast-forward' with quorum={method.quorum!r} and activation="
            f"{method.activation!r}: only quorum=1 with activation='group' is simulated"
        )


def _periods(compute: Floats, period: int) -> Floats:
    """Return the seconds of whole periods: (periods, P)."""
    if period == 1:
        return compute
    versions, ranks = compute.shape
    if versions < period:
        raise ValueError(
            f"the workload has {plural(versions, 'version')}: the method averages every {period}; "
            "give as many or more"
        )
    whole = versions // period * period
    summed: Floats = compute[:whole].reshape(-1, period, ranks).sum(axis=1)
    return summed


def _result(
    method: Method, workload: Workload, tally: Tally, share: float, planned: float
) -> Simulated:
    """Return the result of a simulation, of whose gradients a share counts."""
    gradients, computed = tally.gradients * share, max(tally.computed * planned, 1e-300)
    consensus = tally.consensus if method.averages_models else 0.0
    staleness = tally.ages / tally.averaged if tally.averaged else 0.0
    dropped = min(max(1 - gradients / computed, 0.0), 1.0)
    versions = workload.versions // method.period * method.period
    return Simulated(
        seconds=tally.seconds,
        versions_per_second=versions / tally.seconds,
        throughput=gradients / tally.seconds,
        ideal=float(np.sum(1 / workload.compute.mean(axis=1))),
        late=tally.late / tally.calls if tally.calls else 0.0,
        waited=tally.waited,
        staleness=staleness,
        contributors=tally.averaged / tally.averages if tally.averages else 1.0,
        dropped=dropped,
        consensus=consensus,
        note=_note(method, staleness, dropped, consensus),
    )


def _note(method: Method, staleness: float, dropped: float, consensus: float | None) -> str:
    """Say what is known of convergence, and by which theory."""
    said = []
    if dropped > 0.005:
        said.append(f"{100 * dropped:.0f}% of the gradients are lost")
    if staleness > 0.005 and not method.averages_models:
        said.append(
            f"gradients are {staleness:.2g} versions old on average, which raises the error floor "
            "(Dutta et al., 2018, Theorem 3)"
        )
    if method.averages_models and consensus is not None:
        said.append(
            f"models are {consensus:.2g} noisy updates apart on a quadratic objective; what a real "
            "one makes of that is not predicted"
        )
    elif method.averages_models:
        said.append("how far the models are apart is not simulated")
    if not said:
        return "each update is that of synchronous SGD"
    return "; ".join(said)
