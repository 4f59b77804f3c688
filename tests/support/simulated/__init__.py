"""Simulated GPUs for programs that a test starts."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
LIBRARY = FOLDER.parents[2] / "build/libwagma_device_sim.so"
# With it a program finds the module cupy of this folder, and the engine finds its GPUs.
_PATHS = (str(FOLDER / "modules"), os.environ.get("PYTHONPATH"))
ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join(filter(None, _PATHS)),
    "WAGMA_DEVICE_LIBRARY": str(LIBRARY),
}
# tests/gpu/run.sh has seen a GPU, or this is usual for one.
GPU = "WAGMA_TEST_GPUS" in os.environ or Path("/dev/nvidiactl").exists()
# With it a program has torch's tensors on simulated GPUs.
TORCH = "" if GPU else "import simulated_cuda\n"
# Importing torch takes seconds: the short run has some of these tests.
MOST = [] if GPU else [pytest.mark.long]


def without_torch() -> str:
    """Return why torch has no GPU, simulated or not; empty: it has one."""
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        return "PyTorch is not installed"
    if GPU:
        from torch import cuda

        return "" if cuda.is_available() else "PyTorch cannot use the GPU"
    if Path(torch.origin).with_name("lib").joinpath("libtorch_cuda.so").exists():
        return "no NVIDIA GPU, and PyTorch for CUDA cannot use a simulated one"
    built = LIBRARY.with_name("libwagma_torch_cuda.so")
    return "" if built.exists() else f"no NVIDIA GPU, and {built.name} is not built"
