"""Python processes of `make test` begin with this, because PYTHONPATH leads here.

The first optimizer of a process makes torch load its compiler, 1.3 s of a core on each rank of each
test that trains. All that optimizers want of it is not to be compiled. Sharded models and DDP want
more: test_optimizer_sharded.py and test_migrating.py have the compiler, and so has `make demo`.
"""

import sys

TYPE_CHECKING = False  # as typing's, whose import takes 10 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class NoCompiler:
    """Finds and loads a torch._dynamo that leaves functions as they are."""

    def find_spec(self, name: str, *_: object) -> "ModuleSpec | None":
        if name != "torch._dynamo":
            return None
        from importlib.util import spec_from_loader

        return spec_from_loader(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: "ModuleSpec") -> None:
        """The usual one."""

    def exec_module(self, module: "ModuleType") -> None:
        def disable(function: "Callable[..., object]", *_: object, **__: object) -> object:
            return function

        module.__dict__.update(disable=disable, graph_break=lambda: None)


sys.meta_path.insert(0, NoCompiler())
