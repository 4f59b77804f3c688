"""What the paper claims, and what came out."""

from typing import Any

import numpy as np

from wagma.reproduce.cannikin.adaptation import FROM_EPOCH
from wagma.reproduce.picture import Numbers


def claims(figures: dict[str, Numbers]) -> list[tuple[str, str, str]]:
    """Return rows of claim, paper and here, from the numbers of all figures as in the JSON."""
    return [
        *_convergence(figures["fig5-8"]),
        *_adaptation(figures["fig9"]),
        *_batch_times(figures["fig10"]),
        *_prediction(figures["prediction"]),
        *_overhead(figures["table5"]),
        *_spread(figures["spread"]),
    ]


def _convergence(numbers: Numbers) -> list[tuple[str, str, str]]:
    targets, rows = numbers["targets"], []
    for name, label, paper in (
        ("even", "DDP's even split", "up to 85 %"),
        ("adaptdl", "AdaptDL", "52 % (CIFAR-10), 29 % (ImageNet)"),
        ("lb-bsp", "LB-BSP", "up to 82 %"),
    ):
        saved = ", ".join(
            f"{_percent(less)} to {_percent(target)}"
            for target, less in zip(targets, numbers["less_than"][name], strict=True)
        )
        rows.append((f"less time than {label} needs to an accuracy (Fig. 8)", paper, saved))
    last = {name: curve["total_batch"][-1] for name, curve in numbers["curves"].items()}
    found = f"{last['cannikin']}, AdaptDL {last['adaptdl']}, DDP {last['even']} samples at the end"
    rows.append(("Cannikin's total batch is larger than AdaptDL's (Fig. 5a)", "a plot", found))
    return rows


def _adaptation(numbers: Numbers) -> list[tuple[str, str, str]]:
    rows = []
    for method, label, paper in (
        ("cannikin", "Cannikin's step is within 3 % of OptPerf", "the third"),
        ("lb-bsp", "LB-BSP's step is within 3 % of its own best", "more than ten"),
    ):
        key = "first_epoch_near_" + ("the_best" if method == "cannikin" else "its_own_best")
        found = ", ".join(
            f"{name}: {_number(case['methods'][method][key])}" for name, case in numbers.items()
        )
        rows.append((f"first epoch in which {label} (Fig. 9)", paper, found))
    return rows


def _batch_times(numbers: Numbers) -> list[tuple[str, str, str]]:
    rows = []
    for method, label, paper in (
        ("even", "an even split", "up to 53 %"),
        ("lb-bsp", "LB-BSP", "up to 18 %"),
        ("lb-bsp, adapted", "LB-BSP just after the batch changed", "a plot"),
        ("equal computing", "equal computing times", "not given"),
    ):
        most = {
            name: np.nanmax(1 - _floats(times["cannikin"]) / _floats(times[method]))
            for name, times in numbers["communication"].items()
        }
        found = ", ".join(
            f"{_percent(less)} with {name} communication" for name, less in most.items()
        )
        rows.append((f"shorter steps than with {label} (Fig. 10)", paper, f"at most {found}"))
    return rows


def _prediction(numbers: Numbers) -> list[tuple[str, str, str]]:
    largest = numbers["largest"]
    return [
        (
            f"error of the predicted OptPerf from epoch {FROM_EPOCH} on (5.3)",
            "at most 3 to 7 %",
            f"at most {_percent(largest['inverse variances'], 1)}, median "
            f"{_percent(numbers['median']['inverse variances'], 1)} or less for each total batch",
        ),
        (
            "the same without inverse variances for gamma",
            "at most 21 %",
            f"at most {_percent(largest['plain mean'], 1)}",
        ),
        (
            "measured steps against the prediction",
            "not given",
            f"median {_percent(numbers['median_against_measured'], 1)} apart, at most "
            f"{_percent(numbers['largest_against_measured'], 1)}",
        ),
    ]


def _overhead(numbers: Numbers) -> list[tuple[str, str, str]]:
    place = numbers["nodes"].index(16)
    plan, draw = (1000 * numbers[key][place] for key in ("planning", "drawing"))
    return [
        (
            "time to plan an epoch, 16 nodes (Table 5)",
            "under 1 % to 12 % of an epoch",
            f"{plan:.1f} ms for the plan and {draw:.1f} ms for the order of 50,000 samples: "
            f"{_percent(numbers['share_with_drawing'], 1)} of an epoch of a second",
        )
    ]


def _spread(numbers: Numbers) -> list[tuple[str, str, str]]:
    place = list(numbers["spread"]).index(4)
    found = ", ".join(
        f"{gains[place]:.2f} with {total} samples"
        for total, gains in numbers["gain_by_total_batch"].items()
    )
    limit = f"at most {numbers['limit'][place]:g}"
    return [("gain over an even split on cluster C (Sec. 6)", "as on A and B", f"{found}; {limit}")]


def _floats(values: list[float | None]) -> Any:
    return np.array([np.nan if one is None else one for one in values])


def _number(value: float | None) -> str:
    return "never" if value is None else f"{value:g}"


def _percent(share: float | None, digits: int = 0) -> str:
    return "never" if share is None else f"{100 * share:.{digits}f} %"
