"""Check a Checkpointer of one rank: when it saves, what it takes and what it refuses."""

import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import Alone, Counted, loaded, saved_at

import wagma
from wagma.checkpoint import Checkpointer, CheckpointMismatchError
from wagma.checkpoint.folder import Folder
from wagma.checkpoint.names import Place
from wagma.checkpoint.parts import Parts, lacking


def test_asynchronous_saves_hold_the_values_of_the_boundary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training changes everything before the thread reads anything."""
    changed = threading.Event()
    write = Folder.write

    def later(*args: Any, **kwargs: Any) -> int:
        assert changed.wait(60)
        return write(*args, **kwargs)

    monkeypatch.setattr(Folder, "write", later)
    with Alone(tmp_path, every=2, asynchronous=True) as alone:
        alone.counted.count = {"numbers": [1], "tensor": torch.ones(3)}
        model, saver = alone.model, alone.saver
        for _ in range(2):
            alone.opt.zero_grad()
            (-model.weight).sum().backward()
            alone.opt.step()
        drawn = torch.get_rng_state()
        assert saver.maybe_save()
        assert not saver.maybe_save()
        torch.rand(1)
        alone.counted.count["numbers"].append(2)
        alone.counted.count["tensor"].add_(1)
        alone.opt.step()
        changed.set()
        saver.wait()
        alone.opt.step()
        assert saver.load()
        assert alone.value == alone.opt.version == 2
        assert alone.counted.count["numbers"] == [1]
        assert alone.counted.count["tensor"].tolist() == [1, 1, 1]
        assert torch.equal(torch.get_rng_state(), drawn)


def test_a_save_waits_for_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its copy is in the memory that is written."""
    write, running = Folder.write, threading.Lock()
    taken = []

    def one_at_a_time(*args: Any, **kwargs: Any) -> int:
        taken.append(running.acquire(blocking=False))
        try:
            return write(*args, **kwargs)
        finally:
            if taken[-1]:
                running.release()

    monkeypatch.setattr(Folder, "write", one_at_a_time)
    with Alone(tmp_path, every=1, keep=9, asynchronous=True) as alone:
        for _ in range(6):
            alone.step()
            assert alone.saver.maybe_save()
    assert taken == [True] * 6
    places = Folder(tmp_path).places()
    assert [place.version for place in places] == [6, 5, 4, 3, 2, 1]
    assert loaded(tmp_path) == 6


def test_maybe_save_follows_the_multiples_that_are_passed(tmp_path: Path) -> None:
    with Alone(tmp_path, every=3, keep=9) as alone:
        assert not alone.saver.maybe_save()
        for _ in range(7):
            alone.step()
            assert alone.saver.maybe_save() == (alone.opt.version in (3, 6))
        for _ in range(6):
            alone.step()
        assert alone.opt.version == 13
        assert alone.saver.maybe_save()
        assert not alone.saver.maybe_save()
        alone.step()
        alone.step()
        alone.saver.save()  # 15 itself
        assert not alone.saver.maybe_save()
    folder = Folder(tmp_path)
    assert [place.version for place in folder.places()] == [15, 12, 6, 3]
    manifest = folder.manifest(Place(1, 12), 0)
    assert not isinstance(manifest, str)
    assert manifest.version == 13
    with Alone(tmp_path, every=3) as alone:
        alone.saver.load()
        assert not alone.saver.maybe_save()
        alone.step()
        assert not alone.saver.maybe_save()


def test_without_every_nothing_is_saved_by_itself(tmp_path: Path) -> None:
    with Alone(tmp_path) as alone:
        alone.step()
        assert not alone.saver.maybe_save()
        assert not alone.saver.load()


def test_progress_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        saved_at(tmp_path, 2)
        loaded(tmp_path)
    texts = [record.message for record in caplog.records]
    assert any(
        "[rank 0/1] saved run-001-version-00000002: " in text and "B/s" in text for text in texts
    )
    assert any("continues at version 2, of run-001-version-00000002" in text for text in texts)


def test_random_numbers_continue(tmp_path: Path) -> None:
    import random

    import numpy as np

    def draw() -> list[float]:
        numbers = [random.gauss(0, 1), np.random.normal(), float(torch.randn(()))]  # noqa: NPY002
        return [*numbers, np.random.normal()]  # noqa: NPY002

    with Alone(tmp_path) as alone:
        draw()
        alone.saver.save()
        drawn = draw()
        assert draw() != drawn
        alone.saver.load()
        assert draw() == drawn


def test_random_numbers_of_gpus_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two fake GPUs, of which one is left when the training resumes."""
    states = [torch.tensor([1, 2], dtype=torch.uint8), torch.tensor([3, 4], dtype=torch.uint8)]
    found: dict[int, list[int]] = {}
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    monkeypatch.setattr("torch.cuda.get_rng_state_all", lambda: states)
    monkeypatch.setattr(
        "torch.cuda.set_rng_state", lambda state, device: found.update({device: state.tolist()})
    )
    with Alone(tmp_path) as alone:
        alone.saver.save()
        for devices, expected in ((2, {0: [1, 2], 1: [3, 4]}), (1, {0: [1, 2]}), (0, {})):
            found.clear()
            monkeypatch.setattr("torch.cuda.device_count", lambda devices=devices: devices)
            assert alone.saver.load()
            assert found == expected


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda: {"model": torch.nn.Linear(1, 1)}, "tensor bias: here float32 [1], not saved"),
        (lambda: {"inner": torch.optim.Adam}, "inner optimizer: saved SGD, here Adam"),
        (lambda: {"algorithm": wagma.LocalSGD()}, "algorithm: saved AllreduceSGD, here LocalSGD"),
        (
            lambda: {"algorithm": wagma.AllreduceSGD(bucket_bytes=9)},
            "argument of AllreduceSGD bucket_bytes: saved None, here 9",
        ),
        (lambda: {"extra": {"other": Counted()}}, "extra 'counted': saved, not here"),
        (lambda: {"extra": ()}, "extra 'counted': saved, not here"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(
    change: Callable[[], dict[str, Any]], line: str, tmp_path: Path
) -> None:
    saved_at(tmp_path, 1)
    made = {
        "model": torch.nn.Linear(1, 1, bias=False),
        "inner": torch.optim.SGD,
        "algorithm": wagma.AllreduceSGD(),
        "extra": {"counted": Counted()},
        **change(),
    }
    model = made["model"]
    before = [value.clone() for value in model.parameters()]
    inner = made["inner"](model.parameters(), lr=0.1)
    with wagma.DistributedOptimizer(inner, made["algorithm"], model=model) as opt:
        saver = Checkpointer(tmp_path, opt, model=model, extra=made["extra"])
        with pytest.raises(CheckpointMismatchError, match="run-001-version-00000001") as caught:
            saver.load()
        assert line in caught.value.differences
        assert f"\n  {line}" in str(caught.value)
        assert all(map(torch.equal, before, model.parameters()))
        assert opt.version == 0
        saver.close()


class Lacking:
    def state_dict(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        (
            {"extra": {"a": Lacking(), "b": 3, "c": Counted()}},
            TypeError,
            "'a' is a Lacking, 'b' is a int",
        ),
        ({"extra": [Counted(), Lacking()]}, TypeError, "'Lacking' is a Lacking"),
        ({"extra": [Counted(), Counted()]}, ValueError, "two objects of class Counted"),
        ({"extra": {1: Counted()}}, TypeError, "the name 1"),
        ({"extra": 3}, TypeError, "extra is a int"),
        ({"every": 0}, ValueError, "every"),
        ({"every": 1.5}, TypeError, "every"),
        ({"keep": 0}, ValueError, "keep"),
        ({"asynchronous": 1}, TypeError, "asynchronous"),
        ({"model": 3}, TypeError, "model is a int"),
        ({"model": torch.nn.Linear(2, 2)}, ValueError, "1 parameters of the optimizer are not"),
    ],
)
def test_wrong_arguments(
    options: dict[str, Any], kind: type[Exception], text: str, tmp_path: Path
) -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(), model=model) as opt:
        with pytest.raises(kind, match=text):
            Checkpointer(tmp_path, opt, **{"model": model, **options})
        for nowhere, error in (("", ValueError), (None, TypeError), (3, TypeError)):
            with pytest.raises(error, match=f"directory is {nowhere!r}: pass the path"):
                Checkpointer(nowhere, opt)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="optimizer is a SGD"):
            Checkpointer(tmp_path, inner)  # type: ignore[arg-type]


def test_objects_without_names_have_those_of_their_classes(tmp_path: Path) -> None:
    with Alone(tmp_path, extra=[Counted(5)]) as alone:
        alone.saver.save()
    other = Counted()
    with Alone(tmp_path, extra=[other]) as alone:
        assert alone.saver.load()
    assert other.count == 5


def test_what_could_not_be_read_back_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    for asynchronous in (False, True):
        with Alone(tmp_path, every=1, asynchronous=asynchronous) as alone:
            alone.counted.state_dict = lambda: {"f": [print]}  # type: ignore[method-assign]
            alone.step()
            for call in (alone.saver.save, alone.saver.maybe_save):
                with pytest.raises(TypeError, match=r"\['counted'\]\['f'\]\[0\] is a builtins"):
                    call()
                alone.saver._saved = 0


def test_closed(tmp_path: Path) -> None:
    with Alone(tmp_path) as alone:
        alone.saver.close()
        for call in (alone.saver.save, alone.saver.load, alone.saver.maybe_save, alone.saver.wait):
            with pytest.raises(RuntimeError, match=r"after close\(\): make a new Checkpointer"):
                call()
    with pytest.raises(RuntimeError, match="training that is closed"):
        Checkpointer(tmp_path, alone.opt)


def test_without_a_model_the_parameters_are_saved(tmp_path: Path) -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    opt = wagma.DistributedOptimizer(inner, wagma.AllreduceSGD())
    with opt, Checkpointer(tmp_path, opt) as saver:
        weight = model.weight.detach().clone()
        saver.save()
        model.weight.data.zero_()
        assert saver.load()
        assert torch.equal(model.weight.detach(), weight)


class Versioned(torch.nn.Linear):
    """A module that reads the states of its old versions in another way."""

    _version = 3

    def _load_from_state_dict(self, state: Any, prefix: str, metadata: Any, *rest: Any) -> None:
        self.read = metadata.get("version")
        super()._load_from_state_dict(state, prefix, metadata, *rest)


def test_modules_hear_of_which_version_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = torch.nn.Sequential(Versioned(1, 1))
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    opt = wagma.DistributedOptimizer(inner, wagma.AllreduceSGD())
    with opt, Checkpointer(tmp_path, opt, model=model) as saver:
        saver.save()
        monkeypatch.setattr(Versioned, "_version", 4)
        assert saver.load()
        assert model[0].read == 3


def test_export_needs_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with Alone(tmp_path) as alone:
        with pytest.raises(ImportError, match="python -m pip install safetensors"):
            alone.saver.export(tmp_path / "model.safetensors")
        assert not (tmp_path / "model.safetensors").exists()


@pytest.mark.parametrize("lost", ["modules", "random", "random.cuda"])
def test_a_checkpoint_of_a_wagma_that_saved_less_is_refused(
    lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = Parts.state

    def less(parts: Parts) -> dict[str, Any]:
        saved = state(parts)
        assert lacking(saved) == []
        *inside, name = lost.split(".")
        del (saved[inside[0]] if inside else saved)[name]
        return saved

    with monkeypatch.context() as patched:
        patched.setattr(Parts, "state", less)
        saved_at(tmp_path, 1)
    with Alone(tmp_path) as alone:
        with pytest.raises(CheckpointMismatchError, match="version of wagma that saved") as caught:
            alone.saver.load()
        (line,) = caught.value.differences
        assert line.startswith(f"format: saved without {lost}: ")
        assert alone.opt.version == 0


def test_every_part_that_is_saved_is_looked_for_when_it_is_loaded(tmp_path: Path) -> None:
    with Alone(tmp_path) as alone:
        saved = alone.saver._parts.state()
    for name in saved:
        assert name in lacking({other: saved[other] for other in saved if other != name})
    for name in saved["random"]:
        rest = {other: value for other, value in saved["random"].items() if other != name}
        assert lacking({**saved, "random": rest}) == [f"random.{name}"]


def test_a_checkpoint_of_another_format_is_refused_and_stays(tmp_path: Path) -> None:
    """Taking it for an incomplete one would begin the training anew, and remove it later."""
    saved_at(tmp_path, 1, 2)
    path = tmp_path / "run-001-version-00000002/rank-00000.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with Alone(tmp_path) as alone:
        with pytest.raises(CheckpointMismatchError, match="is of format 2, and this") as caught:
            alone.saver.load()
        assert caught.value.differences[0].startswith("format: the manifest of rank 0 ")
        assert alone.opt.version == 0
    assert path.exists()
