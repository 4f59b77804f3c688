"""DropCompute in theory: step times, expected speed-ups and thresholds (Giladi et al., 2023).

Each of N workers accumulates the gradients of M micro-batches per step, and stops when the time of
its step reaches a threshold tau. A micro-batch is finished if the cumulative time at its end is
strictly below tau. The time of a step is that of its slowest worker, T, and T^c for communication.

Equations carry the paper's numbers. Times are seconds, or any other unit as long as it is the same.
Where the paper's print is wrong:

- (7) and (12) fold T^c into E[T]. Put into (11) as printed this gives a speed-up below 1 for a
  threshold that drops nothing. Here E[T] is computing alone, and T^c is added where (6) adds it.
- The closed form of the best threshold, argmax sum_m Phi(...) / (tau + T^c), holds for tau <= E[T]
  alone. `optimal_threshold` maximises (11) itself.
- The lognormal noise of the tables beside Figs. 13 and 14 has mu = -1.84, -2.04 and so on; some
  prints lost the sign of the first.

scipy is imported where it is used: to choose a threshold from measured times numpy is enough.
"""

from wagma.theory.dropcompute.choice import ThresholdChoice, choose_threshold
from wagma.theory.dropcompute.environment import delays, slowdown_ratio
from wagma.theory.dropcompute.formulas import (
    effective_speedup,
    expected_completed,
    expected_step_time,
    optimal_threshold,
)

__all__ = [
    "ThresholdChoice",
    "choose_threshold",
    "delays",
    "effective_speedup",
    "expected_completed",
    "expected_step_time",
    "optimal_threshold",
    "slowdown_ratio",
]
