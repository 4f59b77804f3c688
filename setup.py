"""Build of the package: metadata is in pyproject.toml, the engine's sources in csrc/engine.mk."""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "buildtools"))
# The line above makes these importable.
import engine_mk  # noqa: E402
from mpi_extension import BuildExtensions  # noqa: E402


def files(*patterns: str) -> list[str]:
    """Return paths relative to the root, as setuptools requires, in a fixed order."""
    return sorted(str(path.relative_to(ROOT)) for p in patterns for path in ROOT.glob(p))


engine = engine_mk.read()
# Python's own flags ask for full debug information, which takes a third of the build time for the
# generated bindings. Line numbers remain, for stacks; to step through the engine, use its
# C tests.
CFLAGS = [*engine["ENGINE_CFLAGS"], "-g1"]

# The environment that make sets up is editable: make builds the extensions in place, once the
# environment has its MPI.
LATER = os.environ.get("WAGMA_EXTENSIONS") == "later"


class Build(BuildExtensions):
    sources = files(*engine["MPI_SOURCES"], *engine["MPI_MODULE"])
    depends = files(
        "csrc/mpi/*.h",
        "csrc/messages/transport.h",
        "csrc/base/cores_mask.h",
        "csrc/include/*.h",
        "csrc/engine.mk",
    )
    cflags = engine["MPI_CFLAGS"]


def extensions() -> list[Extension]:
    """Return the extensions, whose C files Cython generates."""
    made: list[Extension] = cythonize(
        [
            Extension(
                "wagma.collectives._engine",
                ["collectives/_engine.pyx", *files(*engine["ENGINE_SOURCES"])],
                include_dirs=["collectives", "csrc", "csrc/include"],
                depends=files(
                    "csrc/**/*.h",
                    "csrc/**/*.cuh",  # the engine has its text
                    "csrc/protocol/*.c",  # two of these files are included by others
                    "csrc/engine.mk",
                    "collectives/*.pxd",
                    "collectives/*.h",
                ),
                extra_compile_args=CFLAGS,
                extra_link_args=["-pthread", *engine["ENGINE_LIBS"]],
            ),
            Extension(
                "wagma.benchmarks._loop",
                ["benchmarks/_loop.pyx"],
                include_dirs=["benchmarks", "csrc/include"],
                depends=["benchmarks/_loop.h", *files("csrc/include/*.h")],
                extra_compile_args=CFLAGS,
                extra_link_args=["-pthread"],
            ),
        ],
        include_path=["collectives"],  # Cython finds packages by their folders
        quiet=True,
    )
    return made


# wagma.include holds the header for extensions that are built against the installed package,
# wagma.slurm.templates the batch scripts of slurm/.
setup(
    packages=[
        *find_packages(include=["wagma", "wagma.*"]),
        "wagma.collectives",
        *(f"wagma.collectives.{package}" for package in find_packages("collectives")),
        "wagma.benchmarks",
        *(f"wagma.benchmarks.{package}" for package in find_packages("benchmarks")),
        "wagma.include",
        "wagma.slurm.templates",
    ],
    package_dir={
        "wagma.collectives": "collectives",
        "wagma.benchmarks": "benchmarks",
        "wagma.include": "csrc/include",
        "wagma.slurm.templates": "slurm",
    },
    package_data={
        "wagma": ["py.typed"],
        "wagma.collectives": ["*.pyi", "*.pxd"],
        "wagma.report": ["*.html", "*.css", "*.json"],
        "wagma.benchmarks": ["*.pyi"],
        "wagma.include": ["wagma.h", "wagma_options.h"],
        "wagma.slurm.templates": ["*.sbatch", "env/*.sh"],
    },
    include_package_data=False,
    cmdclass={"build_ext": Build},
    ext_modules=[] if LATER else extensions(),
)
