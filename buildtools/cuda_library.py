"""The build of libwagma_cuda, devices over CUDA and their kernels, where nvcc is found and works.

    python buildtools/cuda_library.py FILE       build the library for all architectures
    python buildtools/cuda_library.py --lint     compile, warnings are errors; look into the PTX

WAGMA_CUDA says whether the package is built with it: "1", "0", or "auto" (default).
WAGMA_CUDA_ARCHITECTURES="90 100" replaces the list of csrc/engine.mk.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import engine_mk

ROOT = engine_mk.ROOT
NAME = "libwagma_cuda.so"
NVCC = "nvcc (CUDA_HOME, PATH, the package nvidia-cuda-nvcc)"
STRICT = ["-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror"]
# mad.lo and mad.wide are of integers.
OTHER_ROUNDING = re.compile(r"\bfma\.|\bmad\.r|\.(ftz|approx|full)\b")


def wanted(environ: Mapping[str, str] = os.environ) -> str:
    """Return WAGMA_CUDA: "0", "1" or "auto".

    Raises:
        ValueError: WAGMA_CUDA has another value.
    """
    value = environ.get("WAGMA_CUDA") or "auto"
    if value not in ("0", "1", "auto"):
        raise ValueError(f"WAGMA_CUDA={value!r}: must be 0, 1 or auto")
    return value


def find(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return nvcc: of CUDA_HOME, on PATH, or of the package nvidia-cuda-nvcc."""
    home = environ.get("CUDA_HOME")
    of_home = shutil.which("nvcc", path=str(Path(home) / "bin")) if home else None
    return of_home or shutil.which("nvcc", path=environ.get("PATH")) or _of_wheel()


def _of_wheel() -> str | None:
    try:
        files = importlib.metadata.distribution("nvidia-cuda-nvcc").files or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((str(file.locate()) for file in files if file.name == "nvcc"), None)


def targets(nvcc: str, environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return nvcc's options for the architectures that it has, oldest first."""
    asked = environ.get("WAGMA_CUDA_ARCHITECTURES", "").split()
    if not asked:
        done = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True)
        known = done.stdout.split()
        asked = [a for a in engine_mk.read()["CUDA_ARCHITECTURES"] if f"compute_{a}" in known]
    options = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in asked]
    return [*options, *(f"-gencode=arch=compute_{a},code=compute_{a}" for a in asked[:1])]


def compile_library(nvcc: str, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Compile and link the library; return how nvcc ended and what it said."""
    engine = engine_mk.read()
    words = [*engine["CUDA_FLAGS"], *targets(nvcc), *options, "--threads=0"]
    files = sorted(str(p) for pattern in engine["CUDA_SOURCES"] for p in ROOT.glob(pattern))
    command = [nvcc, *words, "-shared", *files, "-lm", "-o", str(output)]
    output.parent.mkdir(parents=True, exist_ok=True)
    return subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def sources() -> Iterator[Path]:
    """Yield the files that the library is made of, and what it is made by."""
    yield from (ROOT / "csrc/kernels").rglob("*.[ch]*")
    yield from (ROOT / "csrc/device").rglob("*.[ch]")
    yield from (ROOT / "csrc/include").glob("wagma*.h")
    yield ROOT / "csrc/engine.mk"


def build(folder: Path, say: Callable[[str], None], force: bool = False) -> None:
    """Build the library into a folder, as WAGMA_CUDA says, if its sources are newer.

    Args:
        folder: where the library belongs.
        say: is called with a line if the library is not built though WAGMA_CUDA allows it.
        force: build also if the sources are not newer.

    Raises:
        RuntimeError: WAGMA_CUDA=1, and nvcc is not found or fails.
        ValueError: WAGMA_CUDA has an unknown value.
    """
    asked, output = wanted(), folder / NAME
    if asked == "0":
        return
    nvcc = find()
    if nvcc is None:
        trouble, details = f"{NVCC} was not found", ""
    elif (
        not force
        and output.exists()
        and output.stat().st_mtime > max(source.stat().st_mtime for source in sources())
    ):
        return
    else:
        done = compile_library(nvcc, output.absolute())
        if done.returncode == 0:
            return
        details = done.stdout.strip()
        trouble = f"{nvcc} failed ({(details.splitlines() or ['no output'])[-1]})"
    output.unlink(missing_ok=True)  # it would be that of other sources
    if asked == "1":
        raise RuntimeError(f"WAGMA_CUDA=1: {trouble}\n{details}".rstrip())
    say(f"{trouble}: building without devices over CUDA")


def other_rounding(ptx: str) -> list[str]:
    """Return the instructions of PTX that round otherwise than the CPU kernels do."""
    return [line.strip() for line in ptx.splitlines() if OTHER_ROUNDING.search(line)]


def lint(nvcc: str) -> str:
    """Compile for all architectures; return what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        done = compile_library(nvcc, Path(folder) / NAME, *STRICT)
        if done.returncode:
            return done.stdout
        engine = engine_mk.read()
        source = next(name for name in engine["CUDA_SOURCES"] if name.endswith(".cu"))
        ptx = Path(folder) / "kernels.ptx"
        command = [nvcc, *engine["CUDA_FLAGS"], "-ptx", source, "-o", str(ptx)]
        subprocess.run(command, cwd=ROOT, check=True)
        return "\n".join(other_rounding(ptx.read_text()))


def main(argument: str) -> int:
    """Build or check; return the exit status."""
    nvcc = find()
    if argument == "--lint":
        wrong = lint(nvcc) if nvcc else ""
        said = f"{len(targets(nvcc))} targets" if nvcc else f"skipped, {NVCC} was not found"
        print(*([wrong] if wrong else []), f"lint-cuda: {said}", sep="\n")
        return 1 if wrong else 0
    if nvcc is None:
        print(f"{NVCC} was not found")
        return 1
    done = compile_library(nvcc, Path(argument).absolute())
    print(done.stdout, end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
