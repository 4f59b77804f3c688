"""Cannikin in theory: the best uneven batches of heterogeneous nodes (Nie et al., 2024). Pure.

Node i of n computes the gradient of b_i samples, sum b_i = B, in a_i = q_i b_i + s_i seconds before
backward and P_i = k_i b_i + m_i for backward. Gradients are averaged in buckets, the first of which
is ready after gamma P_i, while backward goes on: T_o for all buckets but the last one, T_u for
that. The weighted mean sum_i (b_i / B) g_i is the gradient of all B samples. A step takes

T = max(max_i(a_i + P_i + T_u), max_i(a_i + gamma P_i + T_o + T_u)).

Equations carry the paper's numbers. Where its print is wrong:

- The best batches are called a mixed-integer program; they are a linear one, and in integers a
  greedy choice is exact. Algorithm 1 is not used: a node that is communication-bound in both of its
  first checks need not be so in the optimum, and its order by fixed time does not separate the
  classes. Equal times of all nodes are optimal only where every b_i > 0.
- Theorem 4.1's weights for the noise scale are not of least variance, because Lemma B.5 drops cross
  terms: `noise_scale` has both, and by default uses the better ones.

Times are seconds, or any other unit as long as it is the same. Planning takes well under 10 ms for
16 nodes and 32 candidates for the total batch.
"""

from wagma.theory.cannikin.cluster import ClusterModel, NodeModel, batch_time
from wagma.theory.cannikin.first_epochs import distinct_batches, initial_batches
from wagma.theory.cannikin.learner import PerformanceLearner, StandardErrors, combine_gamma
from wagma.theory.cannikin.noise import NoiseScale, NoiseScaleAverage, noise_scale
from wagma.theory.cannikin.optimum import OptPerf, integer_batches, opt_perf
from wagma.theory.cannikin.planners import Measured, Plan, Planner, make_planner
from wagma.theory.cannikin.total_batch import (
    BatchChoice,
    adascale,
    choose_total_batch,
    goodput,
    sqrt_scaling,
)

__all__ = [
    "BatchChoice",
    "ClusterModel",
    "Measured",
    "NodeModel",
    "NoiseScale",
    "NoiseScaleAverage",
    "OptPerf",
    "PerformanceLearner",
    "Plan",
    "Planner",
    "StandardErrors",
    "adascale",
    "batch_time",
    "choose_total_batch",
    "combine_gamma",
    "distinct_batches",
    "goodput",
    "initial_batches",
    "integer_batches",
    "make_planner",
    "noise_scale",
    "opt_perf",
    "sqrt_scaling",
]
