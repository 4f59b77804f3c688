"""Results of `wagma bench heterogeneous` on two nodes, made of given epochs."""

from typing import Any

from wagma.benchmarks.heterogeneous.figures import runs
from wagma.benchmarks.heterogeneous.settings import Settings, Slowdown
from wagma.benchmarks.heterogeneous.train import Epoch
from wagma.theory.cannikin import NodeModel

NODES = (NodeModel(0.001, 0, 0.001, 0), NodeModel(0.003, 0, 0.003, 0))  # 1 to 3
SLOWER = Slowdown(1, 2.0, 4)


def settings(**changed: Any) -> Settings:
    asked: dict[str, Any] = {
        "cluster": "B",
        "methods": ("even", "cannikin"),
        "batch": 80,
        "batch_range": None,
        "noise_scale": None,
        "epochs": 6,
        "steps": 10,
        "step_time": 0.1,
        "slowdown": (SLOWER,),
        "parameters": 100,
        "transport": "auto",
        "out": None,
    }
    return Settings(**{**asked, **changed})


def epoch(batches: tuple[int, ...], seconds: float, predicted: float | None = None) -> Epoch:
    return Epoch(batches, predicted, seconds, 10 * seconds, 0.01 * seconds, 0.001)


def measured() -> dict[str, list[Epoch]]:
    """As the nodes would be, but for an error of 10 % of the first prediction."""
    even = [epoch((40, 40), 0.24)] * 3 + [epoch((40, 40), 0.48)] * 3
    plans = [((40, 40), 0.24), ((60, 20), 0.122), ((60, 20), 0.12)]
    slow = [((60, 20), 0.24), ((69, 11), 0.138), ((69, 11), 0.138)]
    cannikin = [epoch(*one, predicted=0.132 if i >= 2 else None) for i, one in enumerate(plans)]
    cannikin += [
        epoch(*slow[0], predicted=0.12),
        *(epoch(*one, predicted=0.138) for one in slow[1:]),
    ]
    return {"even": even, "cannikin": cannikin}


def result(asked: Settings | None = None) -> dict[str, Any]:
    asked = asked or settings()
    found = runs(asked, NODES, 80, 100.0, measured())
    return {
        "settings": {
            "cluster": "B",
            "batch_range": asked.batch_range,
            "slowdown": [vars(one) for one in asked.slowdown],
            "epochs": 6,
            "steps": 10,
            "step_time": 0.1,
        },
        "nodes": 16,
        "relative_times": [1.0, 3.0],
        "smallest": 80,
        "noise_scale": 100,
        "environment": {"warnings": ["emulated"]},
        "interrupted": False,
        "runs": found,
    }
