"""Jobs that are signalled or killed at random moments are restarted, and lose at most one step.

AllreduceSGD: in the end the parameters are to the bit those of a run that nobody has interrupted.
"""

import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm, Moment, Run

pytestmark = [pytest.mark.launch, pytest.mark.without_mpi]

STEPS = 16
RESTARTS = 12  # without a moment that ends it a job is over long before
SHORT, LONG = range(8), range(8, 200)
NOTICE = (signal.SIGUSR2, signal.SIGTERM)


@dataclass(frozen=True)
class Whole:
    """A run that nobody interrupts."""

    parameters: list[str]
    seconds: float


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    FakeSlurm(tmp_path_factory.mktemp("first"), steps=1).run()  # what is imported on the way
    start = time.monotonic()
    run = FakeSlurm(tmp_path_factory.mktemp("whole"), steps=STEPS).run()
    assert run.done, run
    return Whole(run.parameters, time.monotonic() - start)


def draw(rng: random.Random, size: int, seconds: float) -> Moment:
    """A moment at any time of a run of so many seconds."""
    one, all_ranks = rng.randrange(size), -1
    kinds = {
        "one": [(one, rng.choice(NOTICE))],
        "all": [(all_ranks, rng.choice(NOTICE))],
        "both": [(one, signal.SIGUSR2), (all_ranks, signal.SIGTERM)],
        "again": [(one, signal.SIGUSR2), (one, signal.SIGUSR2)],
        "killed": [(one, signal.SIGKILL)],
        "killed then": [(one, signal.SIGUSR2), (rng.randrange(size), signal.SIGKILL)],
    }
    return Moment(rng.uniform(0, 1.1 * seconds), tuple(kinds[rng.choice(sorted(kinds))]))


def check_stop(run: Run, moment: Moment, newest: int) -> None:
    """A run that was signalled, and not killed, has saved what it had made."""
    last = max([*run.versions("begin"), *run.versions("made")], default=0)
    begun = max(run.versions("begin"), default=0)
    # What is caught before a checkpoint is loaded has version 0.
    caught = max(begun, min(run.versions("caught"), default=STEPS))
    if run.stopped:
        assert last - newest <= 1, f"{last - newest} steps are lost: {run}"
        assert len({lines["made"][-1] for lines in run.lines}) == 1, run
        assert run.versions("caught"), f"nothing asked to stop: {run}"
        assert last <= caught + 2, f"notice was taken late: {run}"
        assert all("requeue 4711" in words for words in run.asked), run
        assert len(run.asked) <= 1, run
    elif not (run.died or run.done):
        # Nothing was made since the last restart: who waits for the job has to look at it.
        assert min(run.statuses) == max(run.statuses) == 1, run
        assert not run.versions("made"), run
        assert "no step" in run.errors, run
    elif run.done:
        assert caught >= STEPS - 2, f"a signal was lost: {run}"
    if run.died and not moment.kills:
        assert len(run.lines[0]["begin"]) == 0, f"a caught signal has killed: {run}"


@pytest.mark.parametrize(
    "seed", [*SHORT, *(pytest.param(seed, marks=pytest.mark.long) for seed in LONG)]
)
def test_a_random_moment(seed: int, whole: Whole, tmp_path: Path) -> None:
    rng = random.Random(seed)
    job = FakeSlurm(
        tmp_path,
        steps=STEPS,
        asynchronous=rng.random() < 0.3,
        scontrol=rng.choice(("works", "works", "refuses", "missing")),
        seed=seed,
    )
    expected = 0
    moments = [draw(rng, job.size, whole.seconds)]
    while rng.random() < 0.3:
        moments.append(draw(rng, job.size, whole.seconds))
    for _ in range(RESTARTS):
        moment = moments.pop(0) if moments else None
        run = job.run(moment)
        assert set(run.versions("begin")) <= {expected}, f"{expected} was saved: {run}"
        if moment is None:
            assert run.done, run
        else:
            check_stop(run, moment, job.newest())
        if run.done:
            assert run.parameters == whole.parameters
            return
        expected = job.newest()
    pytest.fail(f"not done after {RESTARTS} restarts")
