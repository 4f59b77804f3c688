"""Cannikin on the paper's clusters (Nie et al., 2024): simulated times, real plans and gradients.

The planners are those that `wagma.Cannikin` trains by; what nodes would measure is drawn by
`simulated.Clock`, with errors. `wagma.theory.cannikin.clusters` says which of the clusters' numbers
are the paper's.
"""

from wagma.reproduce.cannikin.adaptation import (
    draw_adaptation,
    draw_prediction,
    find_adaptation,
    find_prediction,
)
from wagma.reproduce.cannikin.batch_times import (
    draw_batch_times,
    draw_spread,
    find_batch_times,
    find_spread,
)
from wagma.reproduce.cannikin.claims import claims
from wagma.reproduce.cannikin.convergence import draw_convergence, find_convergence
from wagma.reproduce.cannikin.overhead import draw_overhead, find_overhead
from wagma.reproduce.picture import Picture

__all__ = ["CLAIMS", "NEEDS", "PICTURES"]

NEEDS = ("sklearn",)
CLAIMS = claims

PICTURES = (
    Picture(
        "fig5-8",
        "Figs. 5, 7 and 8: digits on cluster B, 32 to 1,024 samples per step",
        (12, 8.4),
        find_convergence,
        draw_convergence,
    ),
    Picture(
        "fig9",
        "Fig. 9: from an even split to the best one",
        (12, 4.4),
        find_adaptation,
        draw_adaptation,
    ),
    Picture(
        "fig10",
        "Fig. 10: time of a step on cluster B",
        (13, 4.4),
        find_batch_times,
        draw_batch_times,
    ),
    Picture(
        "prediction",
        "Sec. 5.3: how exact predictions on cluster A are",
        (7, 4.6),
        find_prediction,
        draw_prediction,
    ),
    Picture("table5", "Table 5: time to plan an epoch", (7, 4.6), find_overhead, draw_overhead),
    Picture(
        "spread",
        "Sec. 6: gain by the spread of 16 shared GPUs, cluster C at 4",
        (7, 4.6),
        find_spread,
        draw_spread,
    ),
)
