"""The relay between emulated hosts delays, slows down and loses, and TCP mends it."""

import json
import subprocess
import sys

import pytest
from crossing import counted
from emulated import Hosts, Link

pytestmark = [pytest.mark.hosts, pytest.mark.long, pytest.mark.usefixtures("machine", "relay")]

LIVENESS_S = 60.0
BYTES = 1 << 20

# Sends back what comes, and ends with the connection.
ECHO = """
import socket
with socket.create_server(("h2", 7), reuse_port=True) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    while data := connection.recv(1 << 16):
        connection.sendall(data)
"""

# Prints the shortest round trip of a byte, and how long BYTES there and back took.
ASK = f"""
import hashlib, json, random, socket, threading, time
connection = socket.create_connection(("h2", 7))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

def round_trip():
    start = time.monotonic()
    connection.sendall(b"?")
    assert connection.recv(1) == b"?"
    return time.monotonic() - start

shortest = min(round_trip() for _ in range(20))
data = random.Random(1).randbytes({BYTES})
start = time.monotonic()
threading.Thread(target=connection.sendall, args=(data,)).start()
back = b""
while len(back) < len(data):
    back += connection.recv(1 << 16)
assert back == data
print(json.dumps([shortest, time.monotonic() - start]))
"""


def ask(hosts: Hosts) -> tuple[float, float]:
    """Seconds of the shortest round trip from h1 to h2, and of BYTES there and back."""
    with subprocess.Popen(
        hosts.command([sys.executable, "-c", ECHO], on="h2"), stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        done = hosts.run([sys.executable, "-c", ASK], on="h1", timeout=LIVENESS_S)
        server.kill()
    assert done.returncode == 0, done.stderr
    shortest, whole = json.loads(done.stdout)
    return shortest, whole


def retransmitted(hosts: Hosts) -> int:
    """Segments that TCP has sent again, on all hosts."""
    total = 0
    for name in hosts.names:
        lines = hosts.read("/proc/net/snmp", on=name).splitlines()
        names, values = (line.split() for line in lines if line.startswith("Tcp:"))
        total += int(dict(zip(names, values, strict=True))["RetransSegs"])
    return total


@pytest.mark.parametrize("delay_us", [1000, 5000])
def test_every_frame_is_delayed(delay_us: int) -> None:
    with Hosts(2, link=Link(delay_us=delay_us)) as hosts:
        shortest, _ = ask(hosts)
    assert shortest >= 2e-6 * delay_us
    with Hosts(2) as hosts:
        direct, _ = ask(hosts)
    assert direct < shortest  # it is the relay


def test_a_link_carries_so_much_per_second() -> None:
    rate_mbit = 40
    with Hosts(2, link=Link(rate_mbit=rate_mbit)) as hosts, counted(hosts) as crossed:
        _, whole = ask(hosts)
    assert whole >= BYTES * 8 / (rate_mbit * 1e6)
    crossed.check_at_least(BYTES)


def test_what_is_lost_is_sent_again() -> None:
    """And nothing that is not."""
    with Hosts(3, link=Link(loss=0.02)) as hosts:
        ask(hosts)
        assert retransmitted(hosts) > 0
    with Hosts(2, link=Link(rate_mbit=1000)) as hosts:
        ask(hosts)
        assert retransmitted(hosts) < BYTES / 1500 / 20
