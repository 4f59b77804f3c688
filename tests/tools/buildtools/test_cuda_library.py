"""The build of the CUDA kernels: whether, with which nvcc, and what it says otherwise."""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "buildtools"))
import cuda_library  # noqa: E402

# As much of nvcc as the build uses: its list of architectures, and a file.
NVCC = """#!/bin/sh
case $* in --list-gpu-arch) echo compute_80; echo compute_75; echo compute_121; exit ;; esac
echo "$*" >>"$0.calls"
for word; do output=$word; done
echo library >"$output"
"""
BROKEN = "#!/bin/sh\necho 'no host compiler'; echo 'nvcc fatal: gcc is missing' >&2; exit 1\n"


def program(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    nvcc = folder / "nvcc"
    nvcc.write_text(text)
    nvcc.chmod(0o755)
    return nvcc


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH; no wheel has an nvcc."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(cuda_library, "_of_wheel", lambda: None)
    for name in ("CUDA_HOME", "WAGMA_CUDA", "WAGMA_CUDA_ARCHITECTURES"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "path").mkdir()
    return tmp_path / "path"


def test_cuda_home_comes_before_path_and_path_before_a_wheel(path, tmp_path, monkeypatch):
    assert cuda_library.find() is None
    monkeypatch.setattr(cuda_library, "_of_wheel", lambda: "/site-packages/nvidia/cu13/bin/nvcc")
    assert cuda_library.find() == "/site-packages/nvidia/cu13/bin/nvcc"
    program(path, NVCC)
    assert cuda_library.find() == str(path / "nvcc")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    assert cuda_library.find() == str(path / "nvcc")
    (tmp_path / "cuda").mkdir()
    nvcc = program(tmp_path / "cuda/bin", NVCC)
    assert cuda_library.find() == str(nvcc)


def test_architectures_are_those_that_nvcc_has(path, monkeypatch):
    nvcc = str(program(path, NVCC))
    assert cuda_library.targets(nvcc) == [
        "-gencode=arch=compute_75,code=sm_75",
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_75,code=compute_75",
    ]
    monkeypatch.setenv("WAGMA_CUDA_ARCHITECTURES", "90")
    assert cuda_library.targets(nvcc) == [
        "-gencode=arch=compute_90,code=sm_90",
        "-gencode=arch=compute_90,code=compute_90",
    ]


def test_the_library_is_built_once_for_the_same_sources(path, tmp_path):
    nvcc = program(path, NVCC)
    said: list[str] = []
    for force, calls in ((False, 1), (False, 1), (True, 2)):
        cuda_library.build(tmp_path / "out", said.append, force=force)
        assert (tmp_path / "out/libwagma_cuda.so").read_text() == "library\n"
        assert len(nvcc.with_suffix(".calls").read_text().splitlines()) == calls
    assert said == []
    os.utime(tmp_path / "out/libwagma_cuda.so", (0, 0))
    cuda_library.build(tmp_path / "out", said.append)
    assert len(nvcc.with_suffix(".calls").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "trouble"),
    [(None, r"nvcc \(.*\) was not found"), (BROKEN, r"\S+nvcc failed \(nvcc fatal: gcc is .*\)")],
)
def test_without_nvcc_the_build_says_one_line_or_ends(path, tmp_path, monkeypatch, text, trouble):
    if text:
        program(path, text)
    out = tmp_path / "libwagma_cuda.so"
    out.write_text("of older sources")
    os.utime(out, (0, 0))
    said: list[str] = []
    cuda_library.build(tmp_path, said.append)
    (line,) = said
    assert line.endswith(": building without devices over CUDA")
    assert "\n" not in line
    assert not out.exists()
    monkeypatch.setenv("WAGMA_CUDA", "1")
    with pytest.raises(RuntimeError, match=f"WAGMA_CUDA=1: {trouble}"):
        cuda_library.build(tmp_path, said.append)
    monkeypatch.setenv("WAGMA_CUDA", "0")
    cuda_library.build(tmp_path, said.append)
    assert len(said) == 1


@pytest.mark.usefixtures("path")
def test_unknown_value_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("WAGMA_CUDA", "yes")
    with pytest.raises(ValueError, match="WAGMA_CUDA='yes': must be 0, 1 or auto"):
        cuda_library.build(tmp_path, print)


def test_instructions_that_round_otherwise_are_found():
    right = [
        "mad.lo.s32 %r1, %r2, %r3, %r4;",
        "div.rn.f32 %f1, %f2, %f3;",
        "add.f32 %f1, %f2, %f3;",
    ]
    wrong = ["fma.rn.f32 %f1, %f2, %f3, %f4;", "mad.rn.f64 %d1, %d2, %d3, %d4;"]
    wrong += ["mul.ftz.f32 %f1, %f2, %f3;", "div.full.f32 %f1, %f2, %f3;"]
    assert cuda_library.other_rounding("\n".join(f"\t{line}" for line in right + wrong)) == wrong


def test_the_kernels_need_no_header_of_cuda():
    """NVRTC, which compiles them at run time, has few."""
    folder, included, seen = ROOT / "csrc", ["kernels/cuda/sum.cuh"], set()
    while included:
        name = included.pop()
        seen.add(name)
        included += re.findall(r"(?m)^#\s*include .(.*).$", (folder / name).read_text())
    assert seen == {"kernels/cuda/sum.cuh", "kernels/cuda/pass.h"}


NVCC_HERE = cuda_library.find()


@pytest.mark.skipif(NVCC_HERE is None, reason="nvcc is not installed")
def test_the_library_loads_without_a_driver(tmp_path, monkeypatch):
    monkeypatch.setenv("WAGMA_CUDA_ARCHITECTURES", "75")
    library = tmp_path / "libwagma_cuda.so"
    done = cuda_library.compile_library(NVCC_HERE, library)
    assert done.returncode == 0, done.stdout
    names = ["nm", "-D", "--defined-only", "--format=just-symbols", library]
    exported = subprocess.run(names, check=True, capture_output=True, text=True).stdout.split()
    kernels = ["reduce_cuda_divided_copy", "reduce_cuda_scratch", "reduce_cuda_sum"]
    assert exported == [*kernels, "wagma_device_library_close", "wagma_device_library_open"]
    cuda = ctypes.CDLL(str(library))
    x, nothing = ctypes.c_float(1), ctypes.c_void_p()
    copy = (0, ctypes.byref(ctypes.c_float()), ctypes.byref(x), ctypes.c_double(1))
    assert cuda.reduce_cuda_divided_copy(*copy, ctypes.c_size_t(0), nothing) == 0
    if not Path("/dev/nvidiactl").exists():
        assert cuda.reduce_cuda_divided_copy(*copy, ctypes.c_size_t(1), nothing) != 0
