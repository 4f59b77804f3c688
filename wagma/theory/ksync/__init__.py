"""K-sync, K-batch-sync, K-async and K-batch-async SGD in theory (Dutta et al., AISTATS 2018). Pure.

A parameter server updates the parameters with K of the gradients of P learners:

- "k-sync": the first K gradients at the newest parameters from different learners; the other
  learners cancel theirs.
- "k-batch-sync": as k-sync, but a learner that has finished begins another mini-batch at the same
  parameters: several of the K gradients may be from one learner.
- "k-async": the first K of P learners; the others go on, so that their gradients become stale. A
  learner that has pushed its gradient waits for the update.
- "k-batch-async": the first K gradients; a learner that has pushed one goes on at once with the
  newest parameters.

Computing times are independent and equally distributed; communication takes no time. Times are in
the unit of the distribution. Where the paper's print is wrong or an approximation:

- P log P and log(P/(P-K)) (Corollary 1, Theorem 2) stand for harmonic sums; the second one is
  infinite for K = P. This package uses the sums.
- Theorem 3's condition on the learning rate is illegible in some prints; its proof (36) needs
  eta <= 1 / (2 L (M_G / (K m) + 1 / K)).
- The Pareto distribution of Figs. 5 and 6 is not new-longer-than-used: Lemma 6 does not hold for
  it, and K-async is slower than K-sync there.

scipy is imported where it is used.
"""

from wagma.theory.ksync.bounds import error_bound, nonconvex_bound
from wagma.theory.ksync.methods import METHODS
from wagma.theory.ksync.runtime import UpdateTime, speedup_async_over_sync, update_time
from wagma.theory.ksync.simulation import Simulation, simulate
from wagma.theory.order_statistics import order_statistic_mean

__all__ = [
    "METHODS",
    "Simulation",
    "UpdateTime",
    "error_bound",
    "nonconvex_bound",
    "order_statistic_mean",
    "simulate",
    "speedup_async_over_sync",
    "update_time",
]
