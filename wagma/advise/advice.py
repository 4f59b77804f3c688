"""What is advised, and its text. Pure."""

from dataclasses import asdict, dataclass
from textwrap import fill
from typing import Any

from wagma.units import number_text, percent_text, plural

GAIN = 0.03  # less is no reason to change
_WIDTH = 100
# What to do first in a training of this method.
_DDP = "DistributedDataParallel"
_FIRST = {
    _DDP: f"First take {_DDP} off the model: under it each step waits for all ranks, whatever else "
    "is changed. docs/migrating.md has the lines.",
    None: "First take your own averaging of gradients or models out of the loop: with it each step "
    "waits for all ranks, whatever else is changed. The lines below are for an optimizer of torch.",
}


@dataclass(frozen=True)
class Proposal:
    """A method, and what is predicted of it.

    Attributes:
        family: name of the algorithm.
        code: three lines of Python that switch it on; they use ``model``, ``optimizer`` and, for
            Cannikin, ``batch_size``.
        throughput: local batches per second, of all ranks, that count.
        gain: of `throughput`, relative to waiting for all ranks: 0.25 is 25% more.
        late: share of the calls that come too late, 0 to 1.
        waited: share of the time in which ranks wait for others, 0 to 1.
        staleness: mean age of what is averaged, in versions.
        dropped: share of the computed gradients that no average gets, 0 to 1.
        consensus: distance of the models from their mean, in updates' noise, on a quadratic
            objective; 0: all are equal; None: not simulated.
        risk: to convergence, in words.
        needs: what else the loop has to do, in words; empty: nothing.
        goodput: progress per second by the noise scale, see `Simulated.goodput`; None: unknown.
    """

    family: str
    code: tuple[str, str, str]
    throughput: float
    gain: float
    late: float
    waited: float
    staleness: float
    dropped: float
    consensus: float | None
    risk: str
    needs: str
    goodput: float | None

    def score(self, *, time_to_loss: bool) -> float:
        """Return what proposals are ordered by; see `advise`."""
        if not time_to_loss:
            return self.throughput
        if self.consensus is None or self.consensus > 1 or self.risk.startswith("high"):
            return 0.0
        progress = self.throughput if self.goodput is None else self.goodput
        return progress / (1 + self.staleness) if self.consensus == 0 else progress


@dataclass(frozen=True)
class Advice:
    """The best methods for a training, the best first.

    Attributes:
        ranks: number of ranks that were simulated.
        cause: what is slow, and why, in words.
        now: what waiting for all ranks brings, as predicted; `measured`: local batches per second
            of the profile itself, of as many ranks as it has.
        method: algorithm of the profile, or None.
        best: at most three proposals with gains; empty: stay synchronous.
        time_to_loss: whether risks counted.
        network: whence its numbers are.
        left_out: methods that were not tried, and why.
        warnings: about the prediction.
    """

    ranks: int
    cause: str
    now: Proposal
    measured: float
    method: str | None
    best: tuple[Proposal, ...]
    time_to_loss: bool
    network: str
    left_out: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the advice as JSON has it."""
        return asdict(self)

    def text(self) -> str:
        """Return the advice in words."""
        lines = [_filled(self.cause), ""]
        lines += [_filled(f"Warning: {warning}.") for warning in self.warnings]
        lines.append(_filled(self._doing_nothing()))
        if not self.best:
            lines.append(
                _filled(
                    f"Stay synchronous: no method gains {percent_text(GAIN)} on "
                    f"{plural(self.ranks, 'rank')}."
                )
            )
        elif self.method in _FIRST:
            lines += ["", _filled(_FIRST[self.method])]
        for place, proposal in enumerate(self.best, 1):
            lines += ["", *_described(place, proposal)]
        if self.left_out:
            lines += ["", "Not tried:", *(_filled(f"- {said}", "  ") for said in self.left_out)]
        return "\n".join(lines) + "\n"

    def _doing_nothing(self) -> str:
        now = self.now
        said = (
            f"If every step waits for all {plural(self.ranks, 'rank')}: "
            f"{number_text(now.throughput)} local batches/s, {percent_text(now.waited)} of the "
            f"time spent waiting (communication: {self.network})."
        )
        return f"{said} Measured with {self.method or 'the profiled training'}: " + (
            f"{number_text(self.measured)} local batches/s."
        )


def _filled(text: str, indent: str = "") -> str:
    return fill(text, _WIDTH, subsequent_indent=indent)


def _described(place: int, proposal: Proposal) -> list[str]:
    compared = f"{percent_text(abs(proposal.gain))} {'less' if proposal.gain < 0 else 'more'}"
    late = f", {percent_text(proposal.late)} of the calls late" if proposal.late else ""
    if proposal.goodput is not None:
        late += f", goodput {number_text(proposal.goodput)}"
    return [
        _filled(
            f"{place}. {proposal.family}: {number_text(proposal.throughput)} local batches/s, "
            f"{compared}; {percent_text(proposal.waited)} waiting{late}",
            "   ",
        ),
        _filled(f"   Risk: {proposal.risk}.", "   "),
        *([_filled(f"   Also: {proposal.needs}.", "   ")] if proposal.needs else []),
        *(f"       {line}" for line in proposal.code),
    ]
