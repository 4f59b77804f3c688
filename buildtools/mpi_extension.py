"""The build of the extension that carries messages over MPI, where an MPI compiler is found."""

from __future__ import annotations

import os
from itertools import dropwhile
from pathlib import Path

import mpi_compiler
import parallel
from setuptools import Extension
from setuptools.command.build_ext import build_ext

NONE = (
    "no compiler of {} was found (WAGMA_MPICC, MPICC, mpicc, cc): building without the "
    'transport over MPI; collectives work within one node, and transport="mpi" is refused'
)


class MPIExtension(Extension):
    """An extension for the family of MPIs in its name."""

    def __init__(
        self,
        compiler: mpi_compiler.MPICompiler,
        sources: list[str],
        depends: list[str],
        cflags: list[str],
    ) -> None:
        flags = compiler.flags() if compiler.wheel else []
        super().__init__(
            f"wagma.collectives._mpi_{compiler.family}",
            sources,
            include_dirs=["csrc"],
            depends=depends,
            extra_compile_args=[*cflags, *(f for f in flags if f.startswith(("-I", "-D")))],
            extra_link_args=[f for f in flags if f.startswith(("-L", "-l"))],
        )
        self.wrapper = [] if compiler.wheel else compiler.command
        self.family = compiler.family


class BuildExtensions(build_ext):
    """build_ext, and the extension over MPI where an MPI compiler is found.

    Subclasses give the extension's sources.
    """

    sources: list[str]
    depends: list[str]
    cflags: list[str]

    def finalize_options(self) -> None:
        """Add the extension. Its name depends on the MPI, so it cannot be added earlier."""
        compiler = mpi_compiler.find()
        self.without = compiler is None
        if compiler:
            extension = MPIExtension(compiler, self.sources, self.depends, self.cflags)
            others = self.distribution.ext_modules or []
            self.distribution.ext_modules = [*others, extension]
        super().finalize_options()

    def run(self) -> None:
        """Build all extensions."""
        asked = mpi_compiler.wanted()
        if self.without and asked != "none":
            self.warn(NONE.format(asked or "an MPI"))
        super().run()

    def build_extensions(self) -> None:
        """Build the extensions one after the other, each from several sources at a time."""
        # --parallel counts sources here: extensions would share the compiler, which is changed
        most = parallel.jobs() if self.parallel in (None, True) else self.parallel
        self.parallel = None
        parallel.compile_with(self.compiler, most)
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        """Build one extension."""
        if isinstance(ext, MPIExtension):
            self._build_over_mpi(ext)
        else:
            super().build_extension(ext)

    def _build_over_mpi(self, ext: MPIExtension) -> None:
        """Build with the MPI's compiler; keep the objects in a separate folder.

        Time stamps do not show which compiler built an extension, so an explicitly requested
        compiler always rebuilds it.
        """
        compiler = self.compiler
        kept = compiler.compiler_so, compiler.linker_so, self.build_temp, self.force
        self.build_temp = str(Path(self.build_temp) / ext.family)
        self.force = self.force or "WAGMA_MPICC" in os.environ
        if ext.wrapper:
            compiler.compiler_so = [*ext.wrapper, *_options(compiler.compiler_so)]
            compiler.linker_so = [*ext.wrapper, *_options(compiler.linker_so)]
        try:
            super().build_extension(ext)
        finally:
            compiler.compiler_so, compiler.linker_so, self.build_temp, self.force = kept


def _options(command: list[str]) -> list[str]:
    """Return the words after the compiler, which may have several itself: `ccache gcc -pthread`."""
    return list(dropwhile(lambda word: not word.startswith("-"), command))
