"""Check what the folders of csrc/ include of each other; `make lint` runs this."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

CSRC = Path(__file__).resolve().parents[1] / "csrc"
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')

SHARED = ("base/", "kernels/", "protocol/", "trace/", "engine/")
# Folders that each folder may include beside its own files and the public headers. Nothing may
# include mpi/ or api/.
MAY_INCLUDE: dict[str, tuple[str, ...]] = {
    "include/": ("wagma.h", "wagma_options.h"),  # users include it so
    "base/": (),
    "kernels/": ("base/",),
    "protocol/": ("base/", "kernels/"),
    "trace/": ("base/",),
    "engine/": SHARED,
    "device/": ("base/", "kernels/"),
    "staged/": (*SHARED, "device/"),
    "shm/": (*SHARED, "device/"),
    "messages/": SHARED,
    "mpi/": ("base/", "messages/transport.h"),
    "api/": (*SHARED, "device/", "staged/", "shm/", "messages/"),
}
# Known violations that remain to be removed, each with its reason.
EXCEPTIONS: dict[tuple[str, str], str] = {}


def violations(path: str, source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each forbidden include in a file of csrc/."""
    folder = path.partition("/")[0] + "/"
    allowed = (folder, "include/", *MAY_INCLUDE[folder])
    for number, line in enumerate(source.splitlines(), 1):
        include = INCLUDE.match(line)
        if include and not include[1].startswith(allowed):
            yield number, include[1]


def main() -> int:
    """Print all violations; return the exit status."""
    files = {p.relative_to(CSRC).as_posix(): p for p in sorted(CSRC.rglob("*.[ch]*"))}
    found = {(f, name): n for f, p in files.items() for n, name in violations(f, p.read_text())}
    wrong = [
        f"csrc/{file}:{line}: may not include {name}"
        for (file, name), line in found.items()
        if (file, name) not in EXCEPTIONS
    ]
    for file, name in EXCEPTIONS.keys() - found.keys():
        wrong.append(f"csrc/{file} includes {name} no more: remove it from EXCEPTIONS")
    known = len(EXCEPTIONS)
    print(*wrong, f"includes: {len(files)} files of csrc/, {known} exceptions", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
