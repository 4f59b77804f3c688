"""Ranks that a launcher would start: a process each, told its rank by the environment, no MPI."""

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import uuid
from functools import cache
from pathlib import Path

from forked import Process, Template
from simulated import GPU

from wagma.collectives.rendezvous.address import _address
from wagma.collectives.rendezvous.job import Job

LIVENESS_S = 60.0  # far beyond what any test takes: a hang becomes a failure

IMPORTS = """
import sys
sys.modules["mpi4py"] = None  # importing it fails
import ctypes, logging, os, signal, time
import numpy as np
from wagma import collectives
from wagma.collectives import *
"""
PRELUDE = (
    IMPORTS
    + """
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: ends with the test
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
logging.basicConfig(format="%(message)s")
x = np.full(5, rank, np.float32)

def attempt(make):
    try:
        make()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    else:
        print("made", flush=True)

def once(owner, name, does):
    '''The next call of owner.name does something else first.'''
    original = getattr(owner, name)
    def replaced(*args, **kwargs):
        setattr(owner, name, original)
        does()
        return original(*args, **kwargs)
    setattr(owner, name, replaced)

def together(ranks):
    '''Waits until so many ranks have called it: what comes then does not count their start.'''
    folder = os.environ["TEST_FOLDER"]
    open(os.path.join(folder, str(rank)), "w").close()
    while len(os.listdir(folder)) < ranks:
        time.sleep(0.01)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def interrupt():
    raise KeyboardInterrupt
"""
)


class Launched:
    """Ranks that run `script` after PRELUDE; a context manager that kills what is left.

    `ranks`: those that are started, all if None. `environment`: beside what tells the ranks.
    """

    command: tuple[str, ...] = ()  # in front of Python
    warns = False  # True: warnings are no errors, and ranks may say something on stderr
    liveness_s = LIVENESS_S

    def __init__(
        self,
        size: int,
        script: str,
        *,
        ranks: tuple[int, ...] | None = None,
        job: str | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.size = size
        self.job = job or str(uuid.uuid4())
        self._script = PRELUDE + textwrap.dedent(script)
        self._folder = tempfile.TemporaryDirectory()
        self.folder = self._folder.name
        self._environment = {"TEST_FOLDER": self.folder, **(environment or {})}
        self.processes: dict[int, subprocess.Popen[str] | Process] = {}
        for rank in range(size) if ranks is None else ranks:
            self.start(rank)

    def start(self, rank: int, **environment: str) -> subprocess.Popen[str] | Process:
        """Starts one more rank."""
        numbers = {"RANK": str(rank), "WORLD_SIZE": str(self.size), "WAGMA_JOB": self.job}
        process = self._start(clean_environment() | numbers | self._environment | environment)
        self.processes[rank] = process
        return process

    def _start(self, environment: dict[str, str]) -> subprocess.Popen[str] | Process:
        warnings = "default" if self.warns else "error"
        return subprocess.Popen(
            [*self.command, sys.executable, "-P", "-W", warnings, "-c", self._script],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self, rank: int) -> str:
        """The next line that a rank prints; the test's watchdog bounds the wait."""
        stdout = self.processes[rank].stdout
        assert stdout is not None
        return stdout.readline().rstrip("\n")

    def outputs(self, *ranks: int, expected: int = 0) -> list[str]:
        """What ranks (all) print until they end, with exit status `expected` and no errors."""
        texts = []
        for rank in ranks or self.processes:
            output, errors = self.processes[rank].communicate(timeout=self.liveness_s)
            assert self.processes[rank].returncode == expected, errors
            if expected == 0 and not self.warns:
                assert errors == "", errors
            texts.append(output.rstrip("\n"))
        return texts

    def errors(self, rank: int) -> str:
        """What a rank has said on stderr when it has ended."""
        return self.processes[rank].communicate(timeout=self.liveness_s)[1]

    def kill(self, *ranks: int) -> None:
        for rank in ranks or self.processes:
            self.processes[rank].send_signal(signal.SIGKILL)
            self.processes[rank].wait()

    def leftovers(self) -> list[str]:
        """What these ranks have left in /dev/shm, among temporary files and as addresses."""
        files = [
            str(path)
            for folder in ("/dev/shm", tempfile.gettempdir())
            for path in Path(folder).glob("*wagma*")
            if any(f"-{process.pid}-" in path.name for process in self.processes.values())
        ]
        return files + [one for one in addresses() if one.startswith(self.address())]

    def address(self) -> str:
        """Return the job's address as `addresses` shows it; rank 0's ends of links have it, too."""
        return _address(Job(0, self.size, f"WAGMA_JOB\n{self.job}\n")).replace("\0", "@")

    def __enter__(self) -> "Launched":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for process in self.processes.values():
            process.communicate()
        self._folder.cleanup()


class OnGpus(Launched):
    """The same, with another environment's versions of libraries: what they warn of is no fault."""

    warns = GPU
    liveness_s = 180.0  # trainings take longer than calls


class Forked(Launched):
    """The same, of ranks that are forked after the imports: for tests of many.

    `imports`: beside those of PRELUDE.
    """

    imports = "import wagma.collectives.rendezvous.local"  # of ranks that meet through sockets

    def _start(self, environment: dict[str, str]) -> Process:
        return template(IMPORTS + self.imports).start(self._script, environment)


@cache
def template(imports: str) -> Template:
    """What ranks are forked from, until this process ends."""
    one_thread = {"OMP_NUM_THREADS": "1"}  # others would not be forked
    made = Template(imports, clean_environment() | one_thread)
    atexit.register(made.close)
    return made


def finished(command: list[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """A launcher that has ended its ranks; one thread each, and no launcher's environment."""
    process = subprocess.Popen(
        command,
        env=clean_environment() | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=seconds)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGTERM)  # a launcher ends its ranks
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def clean_environment() -> dict[str, str]:
    """This process's, without what a launcher may have set."""
    prefixes = ("PMI_", "PMIX_", "OMPI_", "TORCHELASTIC_", "LOCAL_", "MASTER_", "WAGMA_")
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("OMPI_ALLOW_RUN_AS_ROOT")
        or (not name.startswith(prefixes) and name not in ("RANK", "WORLD_SIZE"))
    }


def addresses() -> list[str]:
    """The addresses of this machine's Unix-domain sockets."""
    return [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines()]
