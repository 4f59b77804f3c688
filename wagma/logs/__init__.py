"""Logs of each rank of a training: log records, and the metrics of its steps.

    with (
        wagma.logs.RankLogs("logs"),
        wagma.DistributedOptimizer(inner, wagma.WAGMA(), model=model) as opt,
        wagma.logs.MetricsWriter("logs", opt) as metrics,
    ):
        while opt.version < steps:
            ...
            opt.step()
            metrics.log(loss=loss)

Each rank appends to its own files, ``logs/rank-00003.log`` and ``logs/rank-00003.jsonl``, also
after a resume. `read_metrics` reads the metrics.
"""

from wagma.logs.metrics import MetricsWriter
from wagma.logs.ranks import RankLogs
from wagma.logs.reading import read_metrics

__all__ = ["MetricsWriter", "RankLogs", "read_metrics"]
