"""Where NVRTC is, NVIDIA's compiler for use at run time: the engine compiles kernels with it."""

import re
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path

PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc-cu11")
NAME = re.compile(r"libnvrtc\.so\.[\d.]+")


def find() -> str:
    """Return the path of NVRTC in this Python environment; empty: there is none.

    PyTorch and CuPy bring it as a package of PyPI or of conda.
    """
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            for file in metadata.files(package) or []:
                if NAME.fullmatch(file.name):
                    return str(file.locate())
    return str(max(Path(sys.prefix, "lib").glob("libnvrtc.so.*"), default=""))
