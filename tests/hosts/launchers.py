"""mpiexec of either MPI over emulated hosts: what has to be said beside the hosts' names."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from emulated import ENTER, LIVENESS_S, Hosts
from launched import clean_environment

ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def mpiexec() -> list[str]:
    """That of the MPI under test."""
    beside = str(Path(sys.executable).with_name("mpiexec"))
    return shlex.split(os.environ.get("WAGMA_TEST_MPIEXEC", beside))


@dataclass
class Launcher:
    """Starts ranks on hosts. `words`: mpiexec and options that it always gets."""

    words: list[str] = field(default_factory=mpiexec)

    @cached_property
    def name(self) -> str:
        """mpich or openmpi."""
        done = subprocess.run(
            [self.words[0], "--version"], env=environment({}), capture_output=True, text=True
        )
        if "HYDRA" in done.stdout:
            return "mpich"
        if "Open MPI" in done.stdout:
            return "openmpi"
        raise RuntimeError(f"{self.words[0]} is the mpiexec of neither MPICH nor Open MPI")

    def command(self, names: Sequence[str], per_host: int) -> list[str]:
        """The start of a command line: `per_host` ranks on each host, the first on the first."""
        count = ["-n", str(per_host * len(names))]
        if self.name == "mpich":
            hosts = ["-hosts", ",".join(names), "-ppn", str(per_host)]
            return [*self.words, "-launcher", "ssh", "-launcher-exec", str(ENTER), *hosts, *count]
        # Daemons of Open MPI find each other's addresses by themselves; ranks are placed by slot.
        hosts = ["--host", ",".join(f"{name}:{per_host}" for name in names), "--map-by", "slot"]
        return [*self.words, "--prtemca", "plm_ssh_agent", str(ENTER), *hosts, *count]

    def run(
        self,
        hosts: Hosts,
        program: Sequence[str],
        *,
        per_host: int = 1,
        names: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = LIVENESS_S,
    ) -> subprocess.CompletedProcess[str]:
        """Runs `program` on `names` (all hosts) to its end."""
        command = [*self.command(names or hosts.names, per_host), *program]
        return hosts.run(command, env=environment(env or {}), timeout=timeout)


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """This process's, without what another launcher has set; ranks share the cores."""
    return clean_environment() | {"OMP_NUM_THREADS": "1"} | ALLOWED | dict(more)
