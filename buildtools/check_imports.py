"""Check what the folders of wagma/ import; `make lint` runs this."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = "wagma.benchmarks"

# Modules that may import the benchmarks: the command line starts them.
BENCHMARKS_FROM = "wagma/cli.py"
# Modules that import neither torch nor MPI when imported, and what they import beside Python's
# standard library.
AT_IMPORT = {
    "wagma/data/": ("numpy", "wagma.data", "wagma.inject"),
    "wagma/inject/": ("numpy", "wagma.inject", "wagma.units"),
    "wagma/logs/": ("wagma.launch", "wagma.logs", "wagma.units"),
    "wagma/profile/": (
        *("numpy", "wagma.launch", "wagma.profile", "wagma.units"),
        "wagma.training.watching",  # pure
    ),
    "wagma/simulate/": (
        *("numpy", "wagma.inject", "wagma.launch", "wagma.simulate", "wagma.theory", "wagma.units"),
        *("wagma.collectives._engine", "wagma.collectives.topology"),  # pure
        *("wagma.report.style", "wagma.reproduce.picture"),
    ),
    "wagma/theory/": (
        *("numpy", "scipy", "wagma.inject", "wagma.theory", "wagma.units"),
        "wagma.collectives.topology",  # pure
    ),
    "wagma/units.py": (),
}


def is_type_checking(node: ast.AST) -> bool:
    """Tell whether a node is `if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def imported(node: ast.AST, package: list[str], everywhere: bool) -> Iterator[tuple[int, str]]:
    """Yield the line and the full name of everything that a module imports.

    Args:
        node: the module, or a part of it.
        package: the names of the module's package, for relative imports.
        everywhere: also in functions and for type checkers.
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((child.lineno, alias.name) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            above = package[: len(package) - child.level + 1] if child.level else []
            source = ".".join([*above, *filter(None, [child.module])])
            yield from ((child.lineno, f"{source}.{alias.name}") for alias in child.names)
        elif everywhere or not (
            isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) or is_type_checking(child)
        ):
            yield from imported(child, package, everywhere)


def is_within(name: str, packages: tuple[str, ...]) -> bool:
    """Tell whether a name is one of these packages or lies in one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def violations(path: str, source: str) -> Iterator[str]:
    """Yield a line for each forbidden import in a file of wagma/."""
    module, package = ast.parse(source), path.split("/")[:-1]
    if path != BENCHMARKS_FROM:
        for line, name in imported(module, package, everywhere=True):
            if is_within(name, (BENCHMARKS,)):
                yield f"{path}:{line}: imports {name}, which only {BENCHMARKS_FROM} may"
    for room, allowed in AT_IMPORT.items():
        if path.startswith(room):
            for line, name in imported(module, package, everywhere=False):
                if not is_within(name, (*sys.stdlib_module_names, *allowed)):
                    more = f"beyond {', '.join(allowed)}" if allowed else "at all"
                    yield f"{path}:{line}: imports {name}; {room} may import no package {more}"


def main() -> int:
    """Print all violations; return the exit status."""
    files = sorted((ROOT / "wagma").rglob("*.py"))
    names = [(file, file.relative_to(ROOT).as_posix()) for file in files]
    found = [line for file, name in names for line in violations(name, file.read_text())]
    print(*found, f"imports: {len(files)} files of wagma/, {len(found)} violations", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
