"""Installs Debian's Slurm where that can be done: `make test-slurm` runs this first.

Exit status 0: it is installed, or cannot be installed here, which is said. Root where there is apt
is not excused.
"""

import os
import shutil
import subprocess
import sys

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")
PACKAGES = ("slurm-wlm", "munge")
PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"  # a user's may lack these
APT_S = 180


def missing() -> list[str]:
    """The programs that are not there."""
    return [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]


def installable() -> bool:
    """Tell whether this user can install packages: then nothing excuses their absence."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install() -> None:
    quiet = ["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"]
    for words in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
        subprocess.run(
            [*quiet, *words],
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            timeout=APT_S,
            check=True,
        )


def main() -> int:
    lacking = missing()
    if lacking and installable():
        print(f"install {', '.join(PACKAGES)}", flush=True)
        install()
        lacking = missing()
        if lacking:
            print(f"not installed by {', '.join(PACKAGES)}: {', '.join(lacking)}")
            return 1
    elif lacking:
        print(
            f"skipped, not installed: {', '.join(lacking)}; as root: apt-get install "
            f"{' '.join(PACKAGES)}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
