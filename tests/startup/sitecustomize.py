"""Python processes of `make test` begin with this, because PYTHONPATH leads here.

`import torch` loads much that these tests do without, 1 s of a core of 2.6 in each process of each
test that trains; the first optimizer loads torch's compiler, 1.3 s more, only to hear that it is
not to be compiled. Tests for which that makes a difference set WHOLE_TORCH; `make demo` does not
come here. Half a second more goes into looking for garbage among what torch makes at its import,
and will keep, then and when the process ends, and 0.1 s into the look-up of functions that nobody
calls.
"""

import gc
import os
import sys

TYPE_CHECKING = False  # as typing's, whose import takes 10 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def disable(function: "Callable[..., object]", *_: object, **__: object) -> object:
    """As torch._dynamo's, of functions that nobody compiles."""
    return function


COMPILER = "torch._dynamo"
VERSION = "2.13.0"  # of the Makefile's torch: of others all but the compiler is loaded

# Modules of torch that are left out, and what others take from them at their import.
LEFT_OUT: dict[str, dict[str, object]] = {
    COMPILER: {"disable": disable, "graph_break": lambda: None},
    "torch._higher_order_ops": {"cond": None, "while_loop": None},
    "torch._higher_order_ops.invoke_subgraph": {"NestedCompileRegionOptions": object},
    "torch._meta_registrations": {},
    "torch._native": {},
    "torch.distributed.tensor": {"DTensor": type("DTensor", (), {})},  # for torch.testing
    "torch.export": {},
}


# Packages of which more is imported.
PACKAGES = ("torch._higher_order_ops", "torch.export")


class LeavesOut:
    """Finds and loads the modules of LEFT_OUT, which have no more than it says."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, *_: object
    ) -> "ModuleSpec | None":
        if name not in LEFT_OUT:
            return None
        if name != COMPILER and not sys.modules["torch"].__version__.startswith(VERSION):
            return None
        from importlib.machinery import ModuleSpec

        spec = ModuleSpec(name, self)  # type: ignore[arg-type]
        if name in PACKAGES:
            leaf = name.rpartition(".")[2]
            spec.submodule_search_locations = [f"{folder}/{leaf}" for folder in path or ()]
        return spec

    def create_module(self, spec: "ModuleSpec") -> None:
        """The usual one."""

    def exec_module(self, module: "ModuleType") -> None:
        module.__dict__.update(LEFT_OUT[module.__name__])
        if module.__name__ == "torch._meta_registrations":
            # It would load torch._prims.rng_prims, without which there is no torch.Generator().
            from torch._C import _set_generator_metaclass
            from torch._opaque_base import OpaqueBaseMeta

            _set_generator_metaclass(OpaqueBaseMeta)


def frugal(loader: "Loader") -> "Loader":
    """Nothing looks for garbage while torch is imported, or later in what it made, and functions
    that its libraries call of each other are looked up when they are called.
    """
    execute = loader.exec_module

    def exec_module(module: "ModuleType") -> None:
        enabled, flags = gc.isenabled(), sys.getdlopenflags()
        gc.disable()
        sys.setdlopenflags(flags & ~os.RTLD_NOW | os.RTLD_LAZY)
        try:
            execute(module)
            gc.freeze()
        finally:
            sys.setdlopenflags(flags)
            if enabled:
                gc.enable()

    loader.exec_module = exec_module  # type: ignore[method-assign]
    return loader


def lazy(loader: "Loader") -> "Loader":
    """A module's code is executed when somebody asks for something in it."""
    from importlib.util import LazyLoader

    return LazyLoader(loader)


# scipy.stats is half of what scikit-learn imports to read a file, and does without.
PREPARED = {"torch": frugal, "scipy.stats": lazy}


class Prepared:
    """Finds the modules of PREPARED, with another loader."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, *_: object
    ) -> "ModuleSpec | None":
        if name not in PREPARED:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = PREPARED[name](spec.loader)
        return spec


sys.meta_path.insert(0, Prepared())
if "WHOLE_TORCH" not in os.environ:
    sys.meta_path.insert(0, LeavesOut())
