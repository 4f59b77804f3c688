"""What gives ranks their data: batch samplers. It needs neither torch nor MPI.

`UnevenBatchSampler` deals samples out in batches of another size on each rank; `collate` makes the
batches of a DataLoader where some are empty.
"""

from wagma.data.collating import collate
from wagma.data.uneven import UnevenBatchSampler

__all__ = ["UnevenBatchSampler", "collate"]
