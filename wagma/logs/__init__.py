"""What each rank of a training writes down: log records, and the numbers of its steps.

    with (
        wagma.logs.RankLogs("logs"),
        wagma.DistributedOptimizer(inner, wagma.WAGMA(), model=model) as opt,
        wagma.logs.MetricsWriter("logs", opt) as metrics,
    ):
        while opt.version < steps:
            ...
            opt.step()
            metrics.log(loss=loss)

Each rank appends to files of its own, ``logs/rank-00003.log`` and ``logs/rank-00003.jsonl``: a
training that is resumed goes on in them. `read_metrics` reads the numbers.
"""

from __future__ import annotations

from wagma.logs.metrics import MetricsWriter
from wagma.logs.ranks import RankLogs
from wagma.logs.reading import read_metrics

__all__ = ["MetricsWriter", "RankLogs", "read_metrics"]
