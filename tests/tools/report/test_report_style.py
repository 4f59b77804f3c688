"""Colours of the report: who sees few of them can tell algorithms apart, in every plot alike."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from wagma.report.style import COLOURS, COMPUTING, OTHERS, REDUCING, WAITING, looks, without_form

# Machado, Oliveira and Fernandes (2009), severity 1, of linear RGB.
SEEN_BY = {
    "everybody": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
Floats = npt.NDArray[np.float64]


def linear(colour: str) -> Floats:
    values = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb: Floats) -> Floats:
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    x, y, z = np.cbrt(np.clip(to_xyz @ rgb, 1e-4, None) / [0.9505, 1.0, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(colour: str) -> float:
    """With white, as WCAG has it."""
    return float(1.05 / (np.array([0.2126, 0.7152, 0.0722]) @ linear(colour) + 0.05))


DISTINCT = sorted(set(COLOURS.values()))


@pytest.mark.parametrize("who", SEEN_BY)
def test_colours_are_far_apart(who: str) -> None:
    seen = {
        colour: lab(np.clip(np.array(SEEN_BY[who]) @ linear(colour), 0, 1)) for colour in DISTINCT
    }
    nearest = min(
        (float(np.linalg.norm(seen[one] - seen[other])), one, other)
        for one, other in itertools.combinations(DISTINCT, 2)
    )
    assert nearest[0] > 12, nearest
    activities = [
        lab(np.clip(np.array(SEEN_BY[who]) @ linear(colour), 0, 1))
        for colour in (COMPUTING, WAITING, REDUCING)
    ]
    assert all(
        abs(one[0] - other[0]) > 10 for one, other in itertools.combinations(activities, 2)
    ), "they also differ in lightness"


@pytest.mark.parametrize("colour", [*DISTINCT, *OTHERS])
def test_lines_stand_out_from_white(colour: str) -> None:
    assert contrast(colour) > 2.4


def test_relatives_share_a_colour_and_differ_in_more() -> None:
    found = looks(["wagma in-place", "MPI_Allreduce in-place", "MPI_Allreduce two-buffers", "new"])
    one, other = found["MPI_Allreduce in-place"], found["MPI_Allreduce two-buffers"]
    assert one.colour == other.colour != found["wagma in-place"].colour
    assert one.dashes != other.dashes
    assert one.hatch != other.hatch
    assert found["new"].colour in OTHERS
    algorithms = looks(["allreduce", "wagma", "wagma-ff", "local1", "local10", "adpsgd"])
    assert algorithms["wagma"].colour == found["wagma in-place"].colour
    assert algorithms["allreduce"].colour == one.colour
    assert algorithms["local1"].colour == algorithms["local10"].colour
    assert len({(each.colour, str(each.dashes)) for each in algorithms.values()}) == 6


def test_names_without_their_form() -> None:
    assert (
        without_form("MPI_Allreduce of groups of 2 two-buffers") == "MPI_Allreduce of groups of 2"
    )
    assert without_form("gloo") == "gloo"
