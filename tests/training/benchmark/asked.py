"""What trainings of the benchmark are asked for in tests."""

from typing import Any

from wagma.benchmarks.training.settings import Settings


def settings(**changed: Any) -> Settings:
    """Return settings of a short training without delays, but for what is given."""
    usual: dict[str, Any] = {
        "task": "digits",
        "algorithms": ("wagma",),
        "imbalance": "none",
        "compute": None,
        "parameters": None,
        "steps": 10,
        "seeds": (1,),
        "sync_period": 10,
        "group_size": None,
        "batch": 10,
        "learning_rate": 0.1,
        "transport": "auto",
        "target": 0.9,
        "json": None,
        "plots": None,
    }
    return Settings(**{**usual, **changed})
