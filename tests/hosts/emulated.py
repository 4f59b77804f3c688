"""Hosts on one machine: every one has its own network, IPC, UTS, mount, PID and time namespaces.

    with Hosts(2) as hosts:
        hosts.run(["mpiexec", ...])        # on the login node, from which `enter` reaches h1 and h2
        hosts.run(["hostname"], on="h1")
        hosts.traffic()["h1"]              # bytes that passed its network interface

Nothing outside changes, and the kernel takes everything away with the world's first process
(world.py). A user who may make user namespaces needs no privileges.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Self

HERE = Path(__file__).resolve().parent
ENTER = HERE / "enter"
TOOLS = ("unshare", "nsenter", "mount", "umount", "hostname", "ip", "env", "mktemp")
READY_S = 60.0  # far beyond what building takes on a busy machine
LIVENESS_S = 120.0


@dataclass(frozen=True)
class Link:
    """What the relay does to each frame on its way to a host."""

    delay_us: int = 0
    rate_mbit: float = 0  # 0: as fast as it can
    loss: float = 0.0
    seed: int = 1


@dataclass(frozen=True)
class Traffic:
    """Bytes at a host's network interface, headers included."""

    received: int
    sent: int

    def __sub__(self, earlier: "Traffic") -> "Traffic":
        return Traffic(self.received - earlier.received, self.sent - earlier.sent)


def unshare(*command: str) -> list[str]:
    """Runs a command as the first process of a world."""
    mapped = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    kinds = ["--net", "--uts", "--ipc", "--mount", "--pid", "--mount-proc"]
    return ["unshare", *mapped, *kinds, "--fork", "--kill-child", *command]


@cache
def namespaces_refused() -> str | None:
    """Why this user cannot make namespaces; None: they can be made."""
    return _refused("true")


@cache
def obstacle() -> str | None:
    """Why this machine makes no hosts; None: it does, and failing to build some is an error.

    Tried with the system's commands alone, so that no fault of the tests looks like an obstacle.
    """
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"not installed: {', '.join(missing)}"
    return namespaces_refused() or _refused(
        "mount -t sysfs sysfs /mnt && unshare --time --monotonic 1 --fork true &&"
        " ip link add br0 type bridge && ip link add to0 type veth"
    )


def _refused(script: str) -> str | None:
    if shutil.which("unshare") is None:
        return "not installed: unshare"
    done = subprocess.run(
        unshare("sh", "-c", script), capture_output=True, text=True, timeout=READY_S, check=False
    )
    return None if done.returncode == 0 else f"`{script}` is refused: {done.stderr.strip()}"


@cache
def taps_refused() -> str | None:
    """Why the relay cannot make its interfaces on a machine that makes hosts; None: it can."""
    return _refused("ip tuntap add dev tap0 mode tap")


def relay_obstacle() -> str | None:
    """Why no relay can be had on a machine that makes hosts."""
    if shutil.which(compiler()) is None:
        return f"no C compiler: {compiler()}"
    return taps_refused()


def compiler() -> str:
    return os.environ.get("CC", "cc")


def build_relay(folder: Path) -> Path:
    """Compiles the relay."""
    program = folder / "relay"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler(), *flags, str(HERE / "relay.c"), "-o", str(program)], check=True)
    return program


class Hosts:
    """`count` hosts h1, h2, ... and a login node on one network; a context manager.

    `link`: they are joined by the relay, which delays and loses frames, and not by a bridge.
    `shared_memory`: a wrong configuration, in which hosts see each other's processes and memory.
    """

    def __init__(
        self, count: int, *, link: Link | None = None, shared_memory: bool = False
    ) -> None:
        self.names = [f"h{number}" for number in range(1, count + 1)]
        self._link = link
        self._shared_memory = shared_memory
        self._world: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        with tempfile.TemporaryDirectory() as folder:  # the relay runs on when its file is gone
            relay: list[str] = []
            if link := self._link:
                options = (link.delay_us, link.rate_mbit, link.loss, link.seed)
                relay = [str(build_relay(Path(folder))), *map(str, options)]
            shape = {"names": self.names, "shared_memory": self._shared_memory, "relay": relay}
            python = [sys.executable, "-I", str(HERE / "world.py"), json.dumps(shape)]
            self._world = subprocess.Popen(
                unshare(*python),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C is for the one that uses the hosts
            )
            try:
                assert self._world.stdout is not None
                if self._world.stdout.readline() != "ready\n":
                    raise RuntimeError("no hosts: what failed is on standard error")
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends everything that runs on the hosts, and the hosts."""
        if self._world is None:
            return
        world, self._world = self._world, None
        assert world.stdin is not None and world.stdout is not None
        world.stdin.close()
        try:
            world.wait(timeout=10)
        except subprocess.TimeoutExpired:
            world.kill()  # takes its child, the first process, with it
            world.wait()
        world.stdout.close()

    def command(self, argv: Iterable[str], *, on: str | None = None) -> list[str]:
        """What runs `argv` on a host, None: on the login node."""
        assert self._world is not None
        target = f"/proc/{self._world.pid}/ns"
        kinds = ["--user", "--preserve-credentials"] if os.geteuid() != 0 else []
        kinds += ["--net", "--uts", "--ipc", "--mount", f"--pid={target}/pid_for_children"]
        words = ["nsenter", "--target", str(self._world.pid), *kinds, "--"]
        words += ["env", f"--chdir={Path.cwd()}", "TMPDIR=/dev/shm"]
        if on is not None:
            return [*words, str(ENTER), on, shlex.join(argv)]
        return [*words, *argv]

    def run(
        self,
        argv: Iterable[str],
        *,
        on: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = LIVENESS_S,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end. What a command leaves running ends with the hosts."""
        # Files, not pipes: whoever inherits a pipe could keep this waiting for its end.
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                self.command(argv, on=on),
                env=None if env is None else dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
            try:
                status = process.wait(timeout=timeout)
            except BaseException as error:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if isinstance(error, subprocess.TimeoutExpired):
                    so_far = _text(output), _text(errors)
                    raise subprocess.TimeoutExpired(process.args, timeout, *so_far) from None
                raise
            return subprocess.CompletedProcess(process.args, status, _text(output), _text(errors))

    def read(self, path: str, *, on: str) -> str:
        """A file as a host sees it."""
        done = self.run(["cat", path], on=on)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def traffic(self) -> dict[str, Traffic]:
        """What has passed the network interface of each host so far."""
        return {name: self._traffic(name) for name in self.names}

    def _traffic(self, name: str) -> Traffic:
        files = [f"/sys/class/net/eth0/statistics/{way}_bytes" for way in ("rx", "tx")]
        return Traffic(*(int(self.read(file, on=name)) for file in files))


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()
