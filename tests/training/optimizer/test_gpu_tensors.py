"""What a GPU computes stays there: tensors without values take its place, and refuse to be read."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from wagma.training import flat
from wagma.training.flat import Layout
from wagma.training.flat_gradients import FlatGradients
from wagma.training.ordered import LANES, ordered_dot
from wagma.training.strategies.measurements import StepNorms, squared_norm

aten = torch.ops.aten


class Apart(TorchDispatchMode):
    """Refuse operations of tensors on both sides: a copy from the host waits for the GPU."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> torch.Tensor:
        made: torch.Tensor = func(*args, **(kwargs or {}))
        flattened = [one for arg in args for one in (arg if isinstance(arg, list) else [arg])]
        devices = {one.device for one in flattened if isinstance(one, torch.Tensor)}
        assert len(devices) < 2, func
        return made


class Reads(Apart):
    """Count what is read, and give zeros for it."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if func is aten._local_scalar_dense.default and args[0].is_meta:
            self.count += 1
            return 0.0
        if func is aten._to_copy.default and options.get("device") == torch.device("cpu"):
            self.count += 1
            return torch.zeros(args[0].shape, dtype=options.get("dtype") or args[0].dtype)
        return super().__torch_dispatch__(func, types, args, kwargs)


@pytest.fixture
def gradients(monkeypatch: pytest.MonkeyPatch) -> FlatGradients:
    monkeypatch.setattr(flat, "DEVICES", ("meta",))
    monkeypatch.setattr(flat, "_check_supported", lambda *_: None)
    monkeypatch.setattr(flat, "_check_disjoint", lambda _: None)
    tensors = [parameter(3), parameter(2, 2)]
    layout = Layout.of(tensors)
    return FlatGradients(
        tensors, layout, torch.empty(FlatGradients.size_for(layout), device="meta")
    )


def parameter(*shape: int) -> torch.nn.Parameter:
    made = torch.nn.Parameter(torch.empty(shape, device="meta"))
    made.grad = torch.empty_like(made)
    return made


def test_gathering_waits_for_nothing(gradients: FlatGradients) -> None:
    gradients.gather(None, 3.0)  # the first one makes the marks
    with Apart():
        gradients.gather(torch.empty((), device="meta"), 3.0)
        gradients.weigh(2.0)
        gradients.gather(0.5, 3.0)
        gradients.clear()


def test_the_averages_are_read_once(gradients: FlatGradients) -> None:
    with Reads() as reads:
        gradients.hand_out()
    assert reads.count == 1


def test_of_a_product_the_result_is_read() -> None:
    vector = torch.empty(2 * LANES + 3, device="meta")
    with Reads() as reads:
        ordered_dot(vector, vector)
    assert reads.count == 1


def test_norms_are_read_when_a_plan_is_made() -> None:
    norms, tensors = StepNorms(), [parameter(3), parameter(2, 2)]
    with Reads() as reads:
        for version in range(3):
            own = squared_norm(tensors, 2.0, counts=version > 0)
            norms.add(version, own, squared_norm(tensors, 2.0))
        assert reads.count == 0
        norms.mean(range(3))
    assert reads.count == 1
