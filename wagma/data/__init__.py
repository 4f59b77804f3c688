"""Batch samplers, which need neither torch nor MPI.

`UnevenBatchSampler` divides samples into batches whose size differs between ranks; `collate` lets a
DataLoader have empty batches.
"""

from wagma.data.collating import collate
from wagma.data.uneven import UnevenBatchSampler

__all__ = ["UnevenBatchSampler", "collate"]
