"""Where the compiler of the CUDA kernels is found, and GPUs over a fake driver."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from wagma.collectives import nvrtc

ROOT = Path(__file__).resolve().parents[2]

# In a process of its own: what is loaded decides.
OPEN = """
import sys
from wagma.collectives import DeviceError
from wagma.collectives._engine import Device
try:
    print(Device(0).name)
except DeviceError as error:
    print(error)
"""


def test_the_package_comes_before_conda(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(nvrtc, "PACKAGES", ("no-such-package",))
    assert nvrtc.find() == ""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libnvrtc.so.12").touch()
    assert nvrtc.find() == str(tmp_path / "lib/libnvrtc.so.12")
    names = ["libnvrtc-builtins.so.13.0", "libnvrtc.alt.so.13", "libnvrtc.so.13", "LICENSE"]
    for name in names:
        (tmp_path / name).touch()
    info = tmp_path / "nvidia_cuda_nvrtc-13.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: nvidia-cuda-nvrtc\nVersion: 13.0\n")
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in names))
    monkeypatch.setattr(nvrtc, "PACKAGES", ("nvidia-cuda-nvrtc",))
    monkeypatch.setattr(metadata, "files", lambda _: metadata.PathDistribution(info).files)
    assert nvrtc.find() == str(tmp_path / "libnvrtc.so.13")


def test_what_is_missing_is_named():
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU")
    done = subprocess.run([sys.executable, "-c", OPEN], capture_output=True, text=True, check=True)
    assert "there is no CUDA driver (libcuda.so.1" in done.stdout
