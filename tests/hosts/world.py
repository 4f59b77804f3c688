"""The machine room: first process of a world of namespaces, in which it builds the hosts.

`emulated.Hosts` starts it inside new network, IPC, UTS, mount and PID namespaces. What is made in
here has no name outside, and the kernel ends all of it when this process ends, which it does when
its standard input does: also when whoever started it was killed. Two worlds do not see each other.

This process is the login node, where launchers run, with the switch in its network namespace. A
host is a set of namespaces held by a process that waits. Its shape comes as JSON in argv[1]; a line
of JSON says that everything is up.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

SUBNET = "10.77.0"
LOGIN = f"{SUBNET}.254"
UP_FOR_S = 100_000  # the first host; others multiples of it, in which clocks that never jump differ
TABLE = Path("/dev/shm/hosts")  # by name of host: the process whose namespaces it has

# /sys shows the network interfaces of the namespace that it was mounted in, and MPIs look there.
# Its other folders stay as they are: the limits of control groups are read from them.
HOLD = """
set -e
hostname "$1"
[ "$2" = shared ] || mount -t tmpfs tmpfs /dev/shm
fresh=$(mktemp -d -p /dev/shm)
mount -t sysfs sysfs "$fresh"
mount --bind "$fresh/devices/virtual/net" /sys/devices/virtual/net
mount --bind "$fresh/class/net" /sys/class/net
umount "$fresh"
rmdir "$fresh"
ip link set lo up
echo ready
exec cat
"""


def run(*command: str) -> None:
    subprocess.run(command, check=True)


def hold(name: str, number: int, shared: bool) -> subprocess.Popen[bytes]:
    """The process that a host's namespaces belong to."""
    up_for = str(UP_FOR_S * number)
    kinds = ["--net", "--uts", "--mount", "--time", "--monotonic", up_for, "--boottime", up_for]
    kinds += [] if shared else ["--ipc", "--pid", "--mount-proc"]
    words = ["sh", "-c", HOLD, "sh", name, "shared" if shared else "private"]
    return subprocess.Popen(
        ["unshare", *kinds, "--fork", "--kill-child", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def await_ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        sys.exit(f"{process.args!r} failed with exit status {process.wait()}")


def connect_by_bridge(pids: list[int]) -> None:
    """A pair of virtual interfaces for each host; the far ends are ports of a bridge."""
    run("ip", "link", "add", "eth0", "type", "bridge")
    for port, pid in enumerate(pids, 1):
        pair = ["type", "veth", "peer", "name", "eth0", "netns", str(pid)]
        run("ip", "link", "add", f"port{port}", *pair)
        run("ip", "link", "set", f"port{port}", "master", "eth0", "up")


def connect_by_relay(pids: list[int], relay: list[str]) -> None:
    """A program that passes frames between the interfaces that it makes in every host."""
    nets = [f"/proc/{pid}/ns/net" for pid in [*pids, os.getpid()]]
    await_ready(subprocess.Popen([*relay, *nets], stdout=subprocess.PIPE))


def configure(pid: int, address: str) -> None:
    enter = ["nsenter", "--target", str(pid), "--net"]
    run(*enter, "ip", "address", "add", f"{address}/24", "dev", "eth0")
    run(*enter, "ip", "link", "set", "eth0", "up")


def main() -> None:
    shape = json.loads(sys.argv[1])
    names: list[str] = shape["names"]
    addresses = [f"{SUBNET}.{number}" for number in range(1, len(names) + 1)]

    run("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
    TABLE.mkdir()
    known = [("127.0.0.1", "localhost"), (LOGIN, "login"), *zip(addresses, names, strict=True)]
    file = TABLE / "etc-hosts"
    file.write_text("".join(f"{address} {name}\n" for address, name in known))
    run("mount", "--bind", str(file), "/etc/hosts")
    run("hostname", "login")
    run("ip", "link", "set", "lo", "up")

    holders = [hold(name, n, shape["shared_memory"]) for n, name in enumerate(names, 1)]
    for holder in holders:
        await_ready(holder)
    pids = [holder.pid for holder in holders]
    if shape["relay"]:
        connect_by_relay(pids, shape["relay"])
    else:
        connect_by_bridge(pids)
    for name, pid, address in zip(names, pids, addresses, strict=True):
        configure(pid, address)
        (TABLE / name).write_text(str(pid))
    configure(os.getpid(), LOGIN)

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans of the world are not left as zombies
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
