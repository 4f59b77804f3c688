"""Emulated hosts are hosts, do not meet those of other runs, and leave nothing behind."""

import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import emulated
import pytest
from emulated import Hosts, Link

pytestmark = [pytest.mark.hosts, pytest.mark.usefixtures("machine")]

KINDS = ("net", "uts", "ipc", "mnt", "pid")
UPTIME = "import time; print(int(time.monotonic()))"
LIVENESS_S = 30.0

# Makes hosts, runs something on one that would go on for ever, and waits to be ended.
OWNER = f"""
import sys
sys.path.insert(0, {str(Path(emulated.__file__).parent)!r})
import subprocess
from emulated import Hosts
with Hosts(2) as hosts:
    net = hosts.run(["readlink", "/proc/self/ns/net"], on="h1").stdout.strip()
    sleeper = subprocess.Popen(hosts.command(["setsid", "sleep", "1000"], on="h1"))
    print(net, flush=True)
    sleeper.wait()
"""


def inhabitants(namespace: str) -> list[int]:
    """Processes in a network namespace, named as /proc does."""

    def found() -> Iterator[int]:
        for link in Path("/proc").glob("[0-9]*/ns/net"):
            try:
                if str(link.readlink()) == namespace:
                    yield int(link.parts[2])
            except OSError:
                continue  # it has ended

    return list(found())


def network(hosts: Hosts, on: str | None) -> str:
    return hosts.run(["readlink", "/proc/self/ns/net"], on=on).stdout.strip()


def mounts() -> str:
    return Path("/proc/mounts").read_text()


def interfaces() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


def test_hosts_share_nothing_but_files_and_the_network() -> None:
    with Hosts(3) as hosts:
        for kind in KINDS:
            seen = {
                hosts.run(["readlink", f"/proc/self/ns/{kind}"], on=name).stdout
                for name in (*hosts.names, None)
            }
            seen.add(f"{Path('/proc/self/ns', kind).readlink()}\n")
            assert len(seen) == len(hosts.names) + 2, kind
        for name in hosts.names:
            assert hosts.run(["hostname"], on=name).stdout == f"{name}\n"
            assert hosts.run(["ls", "/sys/class/net"], on=name).stdout.split() == ["eth0", "lo"]
            hosts.run(["touch", f"/dev/shm/of-{name}"], on=name)
            assert hosts.run(["ls", "/dev/shm"], on=name).stdout == f"of-{name}\n"
        assert not list(Path("/dev/shm").glob("of-h*"))


def test_clocks_of_hosts_began_at_other_times() -> None:
    with Hosts(3) as hosts:
        up = [
            int(hosts.run([sys.executable, "-c", UPTIME], on=name).stdout) for name in hosts.names
        ]
    assert [round((later - up[0]) / 100_000) for later in up] == [0, 1, 2]


def test_commands_get_their_arguments_and_their_folder_and_give_their_status() -> None:
    with Hosts(1) as hosts:
        for on in (None, "h1"):
            done = hosts.run(["sh", "-c", 'pwd; echo "$1" >&2; exit 3', "sh", "a  'b' $c"], on=on)
            assert (done.returncode, done.stdout) == (3, f"{Path.cwd()}\n")
            assert done.stderr == "a  'b' $c\n"


def test_a_command_that_hangs_is_ended() -> None:
    with Hosts(1) as hosts:
        with pytest.raises(subprocess.TimeoutExpired) as caught:
            hosts.run(["sh", "-c", "echo so far; sleep 1000"], on="h1", timeout=8)
        assert caught.value.output == "so far\n"
        net = network(hosts, "h1")
        assert inhabitants(net)
    assert not inhabitants(net)


def test_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = interfaces(), mounts()
    with pytest.raises(RuntimeError, match="in between"), Hosts(2) as hosts:
        nets = [network(hosts, name) for name in (*hosts.names, None)]
        sleeper = subprocess.Popen(hosts.command(["sleep", "1000"], on="h2"))
        assert (interfaces(), mounts()) == before
        raise RuntimeError("in between")
    sleeper.wait(LIVENESS_S)
    assert not [pid for net in nets for pid in inhabitants(net)]
    assert (interfaces(), mounts()) == before
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_hosts_end_with_the_process_that_made_them(signum: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as owner:
        assert owner.stdout is not None
        net = owner.stdout.readline().strip()
        assert inhabitants(net)
        owner.send_signal(signum)
    assert owner.returncode != 0
    end = time.monotonic() + LIVENESS_S
    while inhabitants(net) and time.monotonic() < end:
        time.sleep(0.01)
    assert not inhabitants(net)


def test_two_runs_at_once_do_not_meet() -> None:
    with Hosts(2) as mine, Hosts(2) as theirs:
        assert network(mine, "h1") != network(theirs, "h1")
        before = theirs.traffic()
        text = "x" * 100_000
        mine.run(["sh", "-c", f"echo {text} > /dev/shm/mine"], on="h1")
        assert theirs.run(["ls", "/dev/shm"], on="h1").stdout == ""
        ask = "import socket; socket.create_connection(('h2', 9), 5)"
        refused = mine.run([sys.executable, "-c", ask], on="h1")
        assert "ConnectionRefusedError" in refused.stderr  # by h2 of the same run
        after = theirs.traffic()
        assert all((after[name] - before[name]).received < 1000 for name in theirs.names)


@pytest.mark.usefixtures("relay")
def test_hosts_that_cannot_be_built_are_an_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(emulated, "build_relay", lambda _: Path("/bin/false"))
    with pytest.raises(RuntimeError, match="standard error"), Hosts(2, link=Link()):
        pass
    assert "/bin/false" in capfd.readouterr().err
