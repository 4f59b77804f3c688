"""The checks of a training algorithm, by name, each with a remedy."""

import io
from collections.abc import Callable

import torch

from wagma.collectives import PeerError
from wagma.testing.places import Place, Run, backward, new_optimizer, new_parameter

STEPS, HALF = 12, 5
MANY = 400  # steps within which a rank has to learn of another one's failure


def _demand(condition: bool, text: str) -> None:
    if not condition:
        raise AssertionError(text)


def _demand_close(found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    difference = (found - expected).abs().max().item()
    _demand(difference <= 1e-9, f"{what} by up to {difference:.3g}")


# ---- checks ----------------------------------------------------------------------------------
def _check_one_rank(place: Place) -> bool:
    if place.size > 1:
        return False
    bare = new_parameter()
    inner = new_optimizer(bare)
    with Run(place) as run:
        for version in range(STEPS):
            inner.zero_grad()
            backward(bare, version, 0)
            inner.step()
        run.train(STEPS)
        _demand_close(run.values(), bare.detach(), "the model differs from the bare optimizer's")
    return True


def _check_closures(place: Place) -> None:
    with Run(place) as run:
        run.train(STEPS)
        plain = run.values()
    with Run(place) as run:
        loss = run.step(closure=True)
        _demand(
            isinstance(loss, float | torch.Tensor), f"step(closure) returned {loss!r}, not the loss"
        )
        run.train(STEPS, closure=True)
        if run.repeats():
            _demand_close(run.values(), plain, "the model differs from that without closures")


def _check_resume(place: Place) -> None:
    file = io.BytesIO()

    def train(last: int) -> None:
        """Train up to a version, with unequal weights if the algorithm takes weights."""
        while run.opt.version < last:
            weight = 1.0 + (run.opt.version + place.rank) % 3
            run.step(weight if run.takes_weights() else 1.0)

    with Run(place) as run:
        train(HALF)
        version = run.opt.version
        torch.save({"model": run.values(), "optimizer": run.opt.state_dict()}, file)
        train(STEPS)
        whole = run.values()
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    with Run(place) as run:
        run.opt.load_state_dict(saved["optimizer"])
        with torch.no_grad():
            run.parameter.copy_(saved["model"])
        if run.repeats():
            _demand(run.opt.version == version, f"version {version} became {run.opt.version}")
        train(STEPS)
        if run.repeats():
            same = torch.equal(run.values(), whole)
            _demand(same, "the resumed run has another model than the one that went on")


def _check_join(place: Place) -> None:
    steps = 3 + 2 * (place.rank % 3)
    with Run(place) as run:
        with run.opt.join(steps) as last:
            run.train(min(steps, last))
        _demand(run.opt.version == last, f"version {run.opt.version} is not the last one, {last}")
        run.opt.synchronize()
        _demand(run.opt.version == last + 1, "synchronize() is not one version")
        _demand(run.is_alike(), "the ranks have different models after synchronize()")


def _check_late_parameters(place: Place) -> None:
    with Run(place) as run:
        run.train(STEPS)
        run.opt.synchronize()
        without = run.values()
    late = torch.nn.Parameter(torch.full((3,), 1.0 + place.rank, dtype=torch.float64))
    with Run(place) as run:
        run.train(HALF)
        if not run.repeats():
            run.opt.synchronize()  # to be at one version
        before, version = run.values(), run.opt.version
        run.opt.add_param_group({"params": [late]})
        _demand(run.opt.version == version, f"version {version} became {run.opt.version}")
        _demand(torch.equal(run.values(), before), "adding a group changed the other parameters")
        while run.opt.version < STEPS:
            late.grad = None
            run.opt.zero_grad()
            backward(run.parameter, run.opt.version, place.rank)
            late.grad = torch.ones_like(late)
            run.opt.step()
        run.opt.synchronize()
        if run.repeats():
            _demand_close(run.values(), without, "the old parameters differ from those without")
        _demand(run.is_alike(), "the ranks have different models after synchronize()")
        _demand(bool((late < 1).all()), f"the new parameter was not trained: {late.tolist()}")


def _check_weights(place: Place) -> bool:
    with Run(place) as run:
        if not run.takes_weights():
            return False
        for step in range(STEPS):
            run.step(float((step + place.rank) % 3))
            _demand(run.opt.weight == 1, f"the weight is {run.opt.weight} after a step")
        _demand(bool(run.values().isfinite().all()), "the model is not finite")
    with Run(place) as run:
        before = run.values()
        for _ in range(3):
            run.parameter.grad = torch.full_like(run.parameter, torch.nan)
            run.opt.weight = 0.0
            run.opt.step()
        _demand_close(run.values(), before, "steps of weight 0 on all ranks change the model")
    return True


def _check_equal_weights(place: Place) -> bool:
    models = []
    for weight in (1.0, 2.0):
        with Run(place) as run:
            if not (run.repeats() and run.takes_weights()):
                return False
            run.train(STEPS, weight)
            models.append(run.values())
    _demand_close(models[1], models[0], "weights of 2 give another model than weights of 1")
    return True


def _check_average_gradients(place: Place) -> bool:
    with Run(place) as run:
        if not run.repeats():
            return False
        gradients = []
        for rank in range(place.size):
            run.opt.zero_grad()
            backward(run.parameter, 0, rank)
            gradients.append(run.gradient().clone())
        run.opt.zero_grad()
        backward(run.parameter, 0, place.rank)
        try:
            run.opt.average_gradients()
        except RuntimeError as error:
            if type(error) is not RuntimeError:  # of a collective
                raise
            return False
        mean = torch.stack(gradients).mean(0)
        _demand_close(run.gradient(), mean, "gradients differ from the mean of all ranks'")
        run.opt.step()
        _demand(run.opt.version == 1, f"average and step are {run.opt.version} versions, not one")
        _demand(run.is_alike(), "the ranks have different models after a step")
    return True


def _check_stop(place: Place) -> None:
    requested = False
    with Run(place) as run:
        run.opt.watch_stops()
        while not run.opt.stopping and run.opt.version < 4 * MANY:
            if not requested and run.opt.version >= HALF and place.rank == place.size - 1:
                run.opt.request_stop()
                requested = True
            run.step()
        with run.algorithm.meet() as meeting:
            ends = meeting.exchange(lambda: [run.opt.stopping, run.opt.version], last=True)
        _demand(all(stopping for stopping, _ in ends), f"not all have stopped by then: {ends}")
        if run.repeats():
            _demand(all(end == ends[0] for end in ends), f"not all at one version: {ends}")


def _check_errors(place: Place) -> bool:
    if place.size == 1:
        return False

    class FailedError(Exception):
        pass

    expected = FailedError if place.rank == 0 else PeerError
    steps = 0
    try:
        with Run(place) as run:
            run.step()
            if place.rank == 0:
                raise FailedError
            for steps in range(MANY):  # noqa: B007
                run.step()
    except expected:
        return True
    raise AssertionError(f"rank 0 failed, and {steps + 1} more steps of rank {place.rank} did not")


def _check_close(place: Place) -> None:
    with Run(place) as run:
        run.train(HALF)
    run.opt.close()
    run.opt.state_dict()
    _demand(bool(run.values().isfinite().all()), "the model is not finite after close()")
    try:
        run.step()
    except RuntimeError as error:
        _demand("closed" in str(error), f"step() after close() raised {error}")
        return
    raise AssertionError("step() after close() raised nothing")


# By name: a check, which returns False if it has nothing to check, and the remedy of its finding.
CHECKS: dict[str, tuple[Callable[[Place], bool | None], str]] = {
    "one rank": (
        _check_one_rank,
        "A single rank has nothing to average: leave its gradient and its model unchanged, or skip "
        "this check if the algorithm changes steps on purpose",
    ),
    "closures": (
        _check_closures,
        "before_step() has to return the loss that it is given, and step() what the inner step "
        "returns",
    ),
    "resume": (
        _check_resume,
        "state() has to return all that later steps depend on, and load_state() to restore it",
    ),
    "join": (
        _check_join,
        "passive_step() has to make one version, and synchronize() to average all models",
    ),
    "late parameters": (
        _check_late_parameters,
        "connect() is called again, with the old parameters first and at the same places: there "
        "state per element has to grow, and resume() has to keep the count",
    ),
    "weights": (
        _check_weights,
        "Pass self.weight to the collective; a step without weight on all ranks changes nothing",
    ),
    "equal weights": (
        _check_equal_weights,
        "Divide by the sum of the weights, or skip this check if the algorithm does not on purpose",
    ),
    "average_gradients": (
        _check_average_gradients,
        "average_gradients() has to replace .grad by the mean over all ranks, as the version of "
        "the step that follows, or to raise RuntimeError",
    ),
    "stop": (
        _check_stop,
        "A rank requests the end at version 5: `carries_stops` may be true only if all ranks read "
        "the request from `stops` at one version, and stop_period() has to be equal on all ranks",
    ),
    "errors": (
        _check_errors,
        "__exit__() has to get the error, so that the collectives of the other ranks end",
    ),
    "close": (
        _check_close,
        "check_open() has to raise RuntimeError, and release() to leave the model its own memory",
    ),
}
