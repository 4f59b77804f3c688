"""Count what crosses the network while something runs on emulated hosts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from emulated import Hosts, Traffic

CONTROL_BYTES = 1 << 19  # what launchers and MPI say beside the data, at most


@dataclass
class Crossed:
    """Bytes by host; filled in at the end."""

    traffic: dict[str, Traffic] = field(default_factory=dict)

    def check_at_least(self, payload: int) -> None:
        """Every host has sent and received so many bytes.

        Of a sum that is known to every rank, no algorithm gets along with less than its size.
        """
        for name, moved in self.traffic.items():
            assert min(moved.received, moved.sent) >= payload, (
                f"{name} has received {moved.received} and sent {moved.sent} bytes: {payload} "
                "did not cross the network. Did they go through memory that hosts share?"
            )

    def check_at_most(self, payload: int) -> None:
        """No host has sent or received more, the control traffic aside."""
        for name, moved in self.traffic.items():
            assert max(moved.received, moved.sent) <= payload + CONTROL_BYTES, (
                f"{name} has received {moved.received} and sent {moved.sent} bytes, "
                f"more than {payload} and {CONTROL_BYTES}"
            )


@contextmanager
def counted(hosts: Hosts) -> Iterator[Crossed]:
    """Counts what crosses inside the `with`."""
    crossed = Crossed()
    before = hosts.traffic()
    yield crossed
    crossed.traffic = {name: now - before[name] for name, now in hosts.traffic().items()}
