"""Where the compiler of the CUDA kernels is found, and GPUs over a fake driver."""

import os
import shutil
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


def test_all_are_found_the_newest_first_and_packages_before_conda(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(nvrtc, "PACKAGES", ("no-such-package",))
    assert nvrtc.find() == []
    (tmp_path / "lib").mkdir()
    for name in ("libnvrtc.so.9", "libnvrtc.so.12"):
        (tmp_path / "lib" / name).touch()
    conda = [str(tmp_path / "lib/libnvrtc.so.12"), str(tmp_path / "lib/libnvrtc.so.9")]
    assert nvrtc.find() == conda
    infos = {}
    for package, major in (("nvidia-cuda-nvrtc", 13), ("nvidia-cuda-nvrtc-cu12", 12)):
        of = (f"-builtins.so.{major}.0", f".alt.so.{major}", f".so.{major}")
        infos[package] = tmp_path / f"{package}.dist-info"
        infos[package].mkdir()
        (infos[package] / "METADATA").write_text(f"Name: {package}\nVersion: {major}.0\n")
        (infos[package] / "RECORD").write_text("".join(f"libnvrtc{name},,\n" for name in of))
    monkeypatch.setattr(nvrtc, "PACKAGES", tuple(infos))
    monkeypatch.setattr(metadata, "files", lambda n: metadata.PathDistribution(infos[n]).files)
    packages = [str(tmp_path / f"libnvrtc.so.{major}") for major in (13, 12)]
    assert nvrtc.find() == packages + conda


def test_what_is_missing_is_named():
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU")
    done = subprocess.run([sys.executable, "-c", OPEN], capture_output=True, text=True, check=True)
    assert "there is no CUDA driver (libcuda.so.1" in done.stdout


def test_an_old_driver_is_named(tmp_path):
    """Name a function that an old driver lacks; this one lacks all."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = tmp_path / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-o", library, "-x", "c", "/dev/null"], check=True)
    found = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", OPEN], capture_output=True, text=True, check=True, env=found
    )
    assert "the CUDA driver has no cu" in done.stdout
    assert "it is older than CUDA 11.4; update it" in done.stdout
