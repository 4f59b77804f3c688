"""A private Slurm on this machine: munged, slurmctld, and a slurmd for each of its nodes.

    with Cluster(nodes=2, cpus=4) as cluster:
        job = cluster.submit("#!/bin/bash\\nsrun hostname\\n", "--ntasks=2")
        job.wait("COMPLETED")

It has a folder and ports of its own, and, where root may make namespaces, processes and a /dev/shm
of its own. All of it ends with `close()`, or when this process ends in any way (keeper.py).
"""

import getpass
import json
import os
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Self, TypeVar

from jobs import Job
from packages import PATH

T = TypeVar("T")

HERE = Path(__file__).resolve().parent
READY_S = 60.0
COMMAND_S = 30.0
ENDING_S = 20.0
POLL_S = 0.1
OWN = re.compile("slurm|munged|nsenter|ps$")
KEEPER = str(HERE / "keeper.py")
# Slurm's own restart comes when credentials have expired: 5 s is the least that it accepts.
CONFIGURATION = """
ClusterName=wagmatest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=3600
KillWait={kill_wait}
"""


@cache
def namespaces() -> list[str]:
    """What a command is to be preceded by to have namespaces of its own; []: there are none."""
    made = ["unshare", "--ipc", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"]
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return []
    tried = [*made, "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"]
    done = subprocess.run(tried, capture_output=True, timeout=COMMAND_S, check=False)
    return made if done.returncode == 0 else []


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def await_result(ask: Callable[[], T], seconds: float, what: Callable[[], str]) -> T:
    """Poll until `ask()` returns something true."""
    until = time.monotonic() + seconds
    while not (result := ask()):
        if time.monotonic() > until:
            raise TimeoutError(f"not within {seconds:g} s: {what()}")
        time.sleep(POLL_S)
    return result


class Cluster:
    """`nodes` nodes n1, n2, ... of `cpus` CPUs, in the partitions main and urgent.

    The jobs of urgent preempt those of main, which get `grace` seconds. `environment`: of all
    commands, and with them of jobs. `isolated`: with namespaces, where they can be made.
    """

    def __init__(
        self,
        *,
        nodes: int = 2,
        cpus: int = 4,
        grace: int = 30,
        kill_wait: int = 10,
        environment: Mapping[str, str] | None = None,
        isolated: bool = True,
    ) -> None:
        self.nodes = nodes
        self.folder = Path(tempfile.mkdtemp(prefix="wagma-slurm-"))
        self.work = self.folder / "work"
        self._environment = dict(environment or {})
        self._cpus = cpus
        self._grace, self._kill_wait = grace, kill_wait
        self._keeper: subprocess.Popen[str] | None = None
        self._namespaces = namespaces() if isolated else []
        self._enter: list[str] = []

    def __enter__(self) -> Self:
        try:
            self._start()
            await_result(self._all_idle, READY_S, self.logs)
        except BaseException:
            print(self.logs(), file=sys.stderr)
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End jobs and daemons, and remove what they have left."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        assert keeper.stdin is not None and keeper.stdout is not None
        keeper.stdin.close()
        try:
            keeper.wait(timeout=ENDING_S)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()
        keeper.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(
        self, *words: str, env: Mapping[str, str] | None = None, timeout: float = COMMAND_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the login node, to its end."""
        return subprocess.run(
            [*self._enter, *words],
            cwd=self.work,
            env=self.environment(env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def output(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        """What a command prints that must succeed."""
        done = self.run(*words, env=env)
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        own = {"PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}
        return kept | own | self._environment | dict(more)

    def submit(
        self, script: str | Path, *options: str, env: Mapping[str, str] | None = None
    ) -> Job:
        """Submit a batch script: a file, or its text."""
        if isinstance(script, str):
            text, script = script, self.work / f"{secrets.token_hex(4)}.sbatch"
            script.write_text(text)
        said = self.output("sbatch", "--parsable", *options, str(script), env=env)
        return Job(self, said.strip().partition(";")[0])

    def cancel_all(self) -> None:
        """Cancel what runs or waits, and wait until it is over."""
        self.output("scancel", "--user", getpass.getuser())

        def none_left() -> bool:
            return not self.output("squeue", "-h").strip()

        await_result(none_left, ENDING_S, lambda: self.output("squeue"))

    def processes(self) -> list[str]:
        """The command lines of everything that runs in the cluster, the daemons aside.

        Where it has no namespace for processes, of all on the machine.
        """
        lines = self.output("ps", "-A", "-o", "args=").splitlines()
        names = [Path(line.split()[0].strip(":")).name for line in lines]
        pairs = zip(names, lines, strict=True)
        return [line for name, line in pairs if not OWN.match(name) and KEEPER not in line]

    def memory_files(self) -> list[str]:
        """What of wagma is in /dev/shm."""
        return [name for name in self.output("ls", "/dev/shm").split() if "wagma" in name]

    def logs(self) -> str:
        """The ends of all logs."""
        files = sorted((self.folder / "log").glob("*"))
        return "\n".join(f"---- {file.name}\n{file.read_text()[-3000:]}" for file in files)

    def _all_idle(self) -> bool:
        assert self._keeper is not None
        if self._keeper.poll() is not None:
            raise RuntimeError("a daemon has ended")
        done = self.run("sinfo", "-h", "-p", "main", "-t", "idle", "-o", "%D")
        return done.stdout.strip() == str(self.nodes)

    def _start(self) -> None:
        names = [f"n{number}" for number in range(1, self.nodes + 1)]
        for name in ("state", "log", "munge", "work", *(f"spool/{name}" for name in names)):
            (self.folder / name).mkdir(parents=True)
        key = self.folder / "munge/key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        self.folder.chmod(0o755)  # munged's socket has to be reachable
        (self.folder / "slurm.conf").write_text(self._configuration(names))
        words = {
            "commands": self._daemons(names),
            "log": str(self.folder / "log"),
            "remove": str(self.folder),
            "isolated": bool(self._namespaces),
        }
        self._keeper = subprocess.Popen(
            [*self._namespaces, sys.executable, "-I", KEEPER, json.dumps(words)],
            env=self.environment({}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the one that uses the cluster
        )
        assert self._keeper.stdout is not None
        if (said := self._keeper.stdout.readline()) != "started\n":
            raise RuntimeError(f"no daemons: {said}")
        if self._namespaces:
            children = Path(f"/proc/{self._keeper.pid}/task/{self._keeper.pid}/children")
            first = children.read_text().split()[0]
            self._enter = ["nsenter", "--target", first, "--ipc", "--mount", "--pid", "--wdns="]
            self._enter[-1] += str(self.work)

    def _daemons(self, names: list[str]) -> list[list[str]]:
        def found(name: str) -> str:
            program = shutil.which(name, path=PATH)
            assert program is not None
            return program

        munge = [f"--{part}={self.folder}/munge/{name}" for part, name in (
            ("socket", "socket"), ("key-file", "key"), ("pid-file", "pid"),
            ("log-file", "log"), ("seed-file", "seed"),
        )]  # fmt: skip
        configuration = ["-D", "-f", str(self.folder / "slurm.conf")]
        return [
            [found("munged"), "--foreground", *munge],
            [found("slurmctld"), "-c", *configuration],
            *([found("slurmd"), "-N", name, *configuration] for name in names),
        ]

    def _configuration(self, names: list[str]) -> str:
        host = socket.gethostname().partition(".")[0]
        ports = free_ports(1 + len(names))
        text = CONFIGURATION.format(
            host=host,
            ports=ports,
            user=getpass.getuser(),
            folder=self.folder,
            kill_wait=self._kill_wait,
        )
        for name, port in zip(names, ports[1:], strict=True):
            text += (
                f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
                f"CPUs={self._cpus} RealMemory=4000 State=UNKNOWN\n"
            )
        common = f"Nodes={','.join(names)} MaxTime=INFINITE State=UP"
        return text + (
            f"PartitionName=main {common} Default=YES PriorityTier=1 GraceTime={self._grace}\n"
            f"PartitionName=urgent {common} PriorityTier=10 PreemptMode=OFF\n"
        )
