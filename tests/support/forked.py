"""Python processes that begin where another one is after its imports, which take most of a start.
(ranks.ForkedRanks are of the test's own process, and share a segment that it has made.)

They are what they would be otherwise: children of this process, with the environment that they are
given, which end as Python ends. But they have their addresses and hashes in common.
"""

import ctypes
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import time

POLL_S = 0.005
PR_SET_CHILD_SUBREAPER = 36

# Its parent is this process: the one between, which has forked it, does not wait for it. It has to
# be by then, since scripts ask for a signal when their parent ends.
TEMPLATE = """
{imports}
import gc, os, pickle, signal, socket, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
gc.freeze()  # what is looked at is copied
control = socket.socket(fileno=int(sys.argv.pop()))
while True:
    asked, streams, *_ = socket.recv_fds(control, 1 << 20, 2)
    if not asked:
        control.close()
        sys.exit()
    own, other = os.pipe()
    between = os.fork()
    if between == 0:
        process = os.fork()
        if process == 0:
            break
        os.write(other, str(process).encode())
        os._exit(0)
    os.waitpid(between, 0)
    os.close(other)  # where there is no process nobody writes
    control.send(os.read(own, 32))
    for descriptor in (own, *streams):
        os.close(descriptor)
parent, environment, script = pickle.loads(asked)
for number, stream in enumerate(streams, 1):
    os.dup2(stream, number)
for descriptor in (own, other, *streams):
    os.close(descriptor)
control.close()
os.environ.clear()
os.environ.update(environment)
until = time.monotonic() + 10
while os.getppid() != parent:
    if time.monotonic() > until:
        os._exit(1)  # it is no more
    time.sleep(0.0001)
exec(compile(script, "<string>", "exec"))
"""


class Process:
    """As much of a `subprocess.Popen` as tests of ranks need. What it prints fits into a pipe."""

    def __init__(self, pid: int, stdout: int, stderr: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout, self.stderr = os.fdopen(stdout), os.fdopen(stderr)
        self._said: tuple[str, str] | None = None

    def poll(self) -> int | None:
        return self.returncode if self._wait(os.WNOHANG) else None

    def wait(self) -> int | None:
        self._wait(0)
        return self.returncode

    def communicate(self, timeout: float = math.inf) -> tuple[str, str]:
        if self._said is None:
            end = time.monotonic() + timeout
            while self.poll() is None:
                if time.monotonic() > end:
                    raise subprocess.TimeoutExpired([str(self.pid)], timeout)
                time.sleep(POLL_S)
            with self.stdout, self.stderr:
                self._said = self.stdout.read(), self.stderr.read()
        return self._said

    def send_signal(self, signum: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _wait(self, options: int) -> bool:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode is not None


class Template:
    """A process that has executed `imports`, with -P and -W error, and forks others that go on."""

    def __init__(self, imports: str, environment: dict[str, str]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = TEMPLATE.format(imports=imports)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-W", "error", "-c", script, str(theirs.fileno())],
                env=environment,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def start(self, script: str, environment: dict[str, str]) -> Process:
        """A child of this process that executes `script`."""
        (stdout, its_stdout), (stderr, its_stderr) = os.pipe(), os.pipe()
        asked = pickle.dumps((os.getpid(), environment, script))
        pid = b""
        adopt(True)
        try:
            socket.send_fds(self._control, [asked], [its_stdout, its_stderr])
            pid = self._control.recv(32)
        finally:
            adopt(False)
            for descriptor in (its_stdout, its_stderr, *(() if pid else (stdout, stderr))):
                os.close(descriptor)
        assert pid, "no process was forked"
        return Process(int(pid), stdout, stderr)

    def close(self) -> None:
        self._control.close()
        self._process.wait()


def adopt(wanted: bool) -> None:
    """Whether processes whose parent ends become this process's children, if they descend of it."""
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) == 0
