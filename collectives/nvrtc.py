"""Where NVRTC is, NVIDIA's compiler for use at run time: the engine compiles kernels with it."""

import re
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path

PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc-cu11")
NAME = re.compile(r"libnvrtc\.so\.[\d.]+")


def find() -> list[str]:
    """Return the paths of NVRTC in this Python environment, the newest of each origin first.

    It is a package of PyPI, several versions of which may be installed, or of conda.
    """
    found = []
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found += [
                str(file.locate())
                for file in metadata.files(package) or []
                if NAME.fullmatch(file.name)
            ]
    conda = sorted(Path(sys.prefix, "lib").glob("libnvrtc.so.*"), key=_version, reverse=True)
    return found + [str(file) for file in conda]


def _version(file: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", file.name)]
