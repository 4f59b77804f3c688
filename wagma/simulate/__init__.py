"""Simulate trainings of any number of ranks: which method is how fast, and who is late.

    workload = Workload.injected("paper:2:0.32", 0.3, ranks=256, versions=500, model_bytes=10**8)
    for name in ("wagma", "allreduce"):
        print(name, simulate(method(name), workload, NETWORKS["infiniband"]).throughput)

Needs neither torch nor MPI. docs/simulation.md says what is modelled.
"""

from wagma.simulate.engine import simulate
from wagma.simulate.methods import METHODS, Method, method
from wagma.simulate.network import NETWORKS, Network
from wagma.simulate.result import Simulated
from wagma.simulate.workload import Workload

__all__ = [
    "METHODS",
    "NETWORKS",
    "Method",
    "Network",
    "Simulated",
    "Workload",
    "method",
    "simulate",
]
