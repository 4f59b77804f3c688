"""Simulated GPUs for programs that a test starts."""

import os
from pathlib import Path

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
