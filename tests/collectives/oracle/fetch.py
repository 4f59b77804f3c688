"""Gets mpi4py's own tests, of the installed version, into build/oracle/.

They are in its source distribution only, which pip downloads from PyPI once. `PIP_ARGS` in the
environment are further arguments for pip.
"""

import os
import shlex
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path, PurePosixPath

ORACLE = Path(__file__).resolve().parents[3] / "build/oracle"
TIMEOUT_S = 180


def folder() -> Path:
    """Where the tests of the installed mpi4py are, or will be."""
    return ORACLE / f"mpi4py-{version('mpi4py')}"


def download(destination: Path) -> Path:
    """The source distribution.

    Raises:
        subprocess.SubprocessError: pip failed, or did not end in time.
    """
    # pip asks the build backend for the metadata: with isolation it would first install one.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--no-binary", "mpi4py", "--dest", str(destination)]
    command += shlex.split(os.environ.get("PIP_ARGS", ""))
    subprocess.run([*command, f"mpi4py=={version('mpi4py')}"], check=True, timeout=TIMEOUT_S)
    (archive,) = destination.glob("mpi4py-*.tar.gz")
    return archive


def unpack(archive: Path, destination: Path) -> None:
    """Writes the files of the distribution's test/, in which there are no folders."""
    with tarfile.open(archive) as tar:
        for member in tar:
            path = PurePosixPath(member.name)
            if len(path.parts) == 3 and path.parts[1] == "test" and path.suffix == ".py":
                content = tar.extractfile(member)
                assert content is not None, f"{member.name} is not a file"
                (destination / path.name).write_bytes(content.read())


def main() -> int:
    target = folder()
    if target.exists():
        return 0
    ORACLE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ORACLE) as work:
        unpacked = Path(work) / "test"
        unpacked.mkdir()
        try:
            unpack(download(Path(work)), unpacked)
        except subprocess.SubprocessError as error:
            print(f"mpi4py's tests are not to be had, for which PyPI is needed: {error}")
            return 1
        unpacked.rename(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
