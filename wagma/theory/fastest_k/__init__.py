"""Adaptive fastest-k SGD (Kas Hanna et al., arXiv 2208.03134, 2022): policy and theory. Pure.

A master with n workers takes the fastest k gradients of every iteration, and then all workers
start anew. A small k is fast, a large k has a lower error floor; the paper's policies raise k:
`AdaptiveK` from observations, `switch_times` from constants that have to be known.

Times are in the unit of the response times. scipy is imported where it is used: `AdaptiveK` and the
simulation need numpy alone.
"""

from wagma.theory.fastest_k.adaptive import AdaptiveK
from wagma.theory.fastest_k.bounds import error_bound, fixed_k_crossings, mean_times, switch_times
from wagma.theory.fastest_k.simulation import FastestKRun, simulate, simulate_loss

__all__ = [
    "AdaptiveK",
    "FastestKRun",
    "error_bound",
    "fixed_k_crossings",
    "mean_times",
    "simulate",
    "simulate_loss",
    "switch_times",
]
