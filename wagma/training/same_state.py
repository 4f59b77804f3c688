"""The inner optimizer's state, made equal on all ranks."""

import io

import torch
from torch.optim import Optimizer

from wagma.training.ranks import Ranks


def share_state(ranks: Ranks, inner: Optimizer) -> None:
    """Copy rank 0's state of `inner`, such as momentum, to all ranks; collective.

    `param_groups` stay as they are. An algorithm that averages gradients keeps models equal only if
    the states are equal.
    """
    content = io.BytesIO()
    if ranks.rank == 0:
        torch.save(inner.state_dict()["state"], content)
    with ranks.meet() as meeting:
        size = int(meeting.exchange(content.tell, last=True)[0])
    array = torch.zeros(size, dtype=torch.uint8)
    if ranks.rank == 0:
        array.numpy()[:] = memoryview(content.getbuffer())
    ranks.broadcast(array)
    if ranks.rank != 0:
        # On the host: rank 0's GPU may be another, and load_state_dict() moves it.
        content = io.BytesIO(array.numpy().tobytes())
        state = torch.load(content, map_location="cpu", weights_only=True)
        inner.load_state_dict({**inner.state_dict(), "state": state})
