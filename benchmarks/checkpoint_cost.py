"""What a checkpoint costs beside writing the same bytes, and what a step that saves does.

``python -m wagma.benchmarks.checkpoint_cost FOLDER``: a model of 25.6 million parameters with
momentum, in FOLDER, which decides what disk is measured. Each round does everything once, in one
process; medians of the rounds are shown.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from wagma import AllreduceSGD, DistributedOptimizer
from wagma.checkpoint import Checkpointer
from wagma.units import size_text, time_text

# Weights of about 160 tensors of many sizes, as a ResNet-50 has.
WIDTHS = (64, 128, 256, 512, 1024, 2048)
PARAMETERS = 25_600_000


def model() -> torch.nn.Module:
    """Return a model with `PARAMETERS` parameters, which is never evaluated."""
    parts: list[torch.nn.Module] = []
    left = PARAMETERS
    while left > 0:
        width = WIDTHS[len(parts) % len(WIDTHS)]
        numel = min(left, width * 256)
        parts.append(torch.nn.ParameterList([torch.nn.Parameter(torch.randn(numel))]))
        left -= numel
    return torch.nn.ModuleList(parts)


def timed(function: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def plain_write(path: Path, content: memoryview) -> None:
    """Write bytes to a new file and bring them to the disk."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    while content:
        content = content[os.write(descriptor, content) :]
    os.fsync(descriptor)
    os.close(descriptor)


def measure(folder: Path, rounds: int, momentum: float) -> dict[str, list[float]]:
    """Return the seconds of every round of everything."""
    torch.set_num_threads(1)
    net = model()
    inner = torch.optim.SGD(net.parameters(), lr=0.1, momentum=momentum)
    seconds: dict[str, list[float]] = {}
    with DistributedOptimizer(inner, AllreduceSGD(), model=net) as opt:
        for parameter in net.parameters():
            parameter.grad = torch.randn_like(parameter)
        inner.step()
        now = Checkpointer(folder / "now", opt, model=net, every=1)
        later = Checkpointer(folder / "later", opt, model=net, every=1, asynchronous=True)
        now.save()
        later.save()
        later.wait()
        (file,) = (folder / "now").glob("*/*.pt")
        size = file.stat().st_size
        content = memoryview(bytearray(os.urandom(1 << 20) * (size // (1 << 20) + 1)))[:size]
        source = torch.frombuffer(content, dtype=torch.uint8)
        copy = source.clone()

        def save_now() -> None:
            assert now.maybe_save()

        def save_later() -> None:
            assert later.maybe_save()

        for _ in range(rounds):
            opt.algorithm.count_versions(1)
            for name, function in {
                "write + fsync of the same bytes": lambda: plain_write(folder / "p", content),
                "maybe_save()": save_now,
                "copy of the same bytes": lambda: copy.copy_(source),
                "maybe_save(), asynchronous": save_later,
            }.items():
                seconds.setdefault(name, []).append(timed(function))
            later.wait()
            (folder / "p").unlink()
        now.close()
        later.close()
    print(f"{size_text(size)} in {len(list(net.parameters()))} parameters, {rounds} rounds")
    return seconds


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="on the disk that is measured")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--momentum", type=float, default=0.0)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=arguments.folder) as folder:
        seconds = measure(Path(folder), arguments.rounds, arguments.momentum)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, value in medians.items():
        low, high = min(seconds[name]), max(seconds[name])
        print(f"{name:34} {time_text(value):>9}  ({time_text(low)} to {time_text(high)})")
    write, now, copy, later = medians.values()
    print(f"saving has {write / now:.0%} of the rate of a plain write")
    print(f"an asynchronous save takes {later / copy:.2f} copies")


if __name__ == "__main__":
    main()
