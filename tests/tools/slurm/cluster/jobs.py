"""Jobs of a private Slurm, watched by polling scontrol."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster import Cluster

POLL_S = 0.2
FIELD = re.compile(r"(?:^|\s)(\w+(?:[/:]\w+)*)=(\S*)")
OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "OUT_OF_MEMORY")


class Job:
    """A job by its number, or a task of an array as in 7_2."""

    def __init__(self, cluster: Cluster, number: str) -> None:
        self.number = number
        self._cluster = cluster

    def fields(self) -> dict[str, str]:
        """What scontrol shows of it."""
        said = self._cluster.output("scontrol", "--oneliner", "show", "job", self.number)
        return dict(FIELD.findall(said.splitlines()[0]))

    @property
    def state(self) -> str:
        return self.fields()["JobState"]

    @property
    def restarts(self) -> int:
        return int(self.fields()["Restarts"])

    @property
    def output(self) -> str:
        """What it has printed so far."""
        file = Path(self.fields()["StdOut"])
        return file.read_text(errors="replace") if file.exists() else ""

    def await_end(self, seconds: float) -> dict[str, str]:
        """Wait until it is over for good, and return its fields."""
        return self.await_state(*OVER, seconds=seconds)

    def await_state(self, *states: str, seconds: float) -> dict[str, str]:
        until = time.monotonic() + seconds
        while (fields := self.fields())["JobState"] not in states:
            if time.monotonic() > until:
                raise TimeoutError(
                    f"job {self.number} is {fields['JobState']} ({fields.get('Reason')}), not "
                    f"{' or '.join(states)} after {seconds:g} s:\n{self.output}"
                )
            time.sleep(POLL_S)
        return fields

    def await_output(self, text: str, seconds: float, times: int = 1) -> None:
        """Wait until it has printed a text so often."""
        until = time.monotonic() + seconds
        while self.output.count(text) < times:
            fields = self.fields()
            if time.monotonic() > until or fields["JobState"] in OVER:
                raise AssertionError(
                    f"job {self.number}, {fields['JobState']}, has not printed {text!r} "
                    f"{times} times:\n{self.output}"
                )
            time.sleep(POLL_S)

    def complete(self, seconds: float) -> str:
        """Wait until it has succeeded, and return what it has printed."""
        fields = self.await_end(seconds)
        assert fields["JobState"] == "COMPLETED", (
            f"{fields['JobState']}, {fields['ExitCode']}, {fields.get('Reason')}:\n{self.output}"
        )
        return self.output

    def cancel(self) -> None:
        self._cluster.output("scancel", self.number)
