"""What sections say in the same words. Pure."""

from collections.abc import Callable, Iterable, Sequence

from wagma.report.document import Cell
from wagma.report.records import Benchmark, Distribution
from wagma.units import LARGE_BYTES, NONE, number_text, percent_text, plural, time_text

TIMES = "\N{MULTIPLICATION SIGN}"
TRANSPORTS = {"shm": "shared memory", "mpi": "messages over MPI"}


def us(value: float | None) -> str:
    """Return a time in us with its unit."""
    if value is None:
        return NONE
    return time_text(value * 1e-6) if value >= 0 else f"-{time_text(-value * 1e-6)}"


def spread_us(own: Distribution) -> Cell:
    """Return the median, and below it p10 and p90."""
    return Cell(us(own.p50), f"{us(own.p10)} {NONE} {us(own.p90)}")


def times(ratio: float) -> str:
    """Return a ratio: 1.41x, with the sign of a multiplication."""
    return f"{number_text(ratio)}{TIMES}"


def percent(value: float | None) -> str:
    """Return a number of percent as text: 42.3%."""
    return NONE if value is None else percent_text(value / 100)


def figure(values: Sequence[float], form: Callable[[float], str]) -> Cell:
    """Return the mean, and below it the smallest and the largest value if they differ."""
    if not values:
        return Cell(NONE)
    mean, low, high = (form(each) for each in (sum(values) / len(values), min(values), max(values)))
    return Cell(mean, "" if low == high else f"{low} {NONE} {high}")


def setup(benchmark: Benchmark) -> str:
    """Return the number of ranks and their transport."""
    by = TRANSPORTS.get(benchmark.transport, benchmark.transport)
    return f"{plural(benchmark.ranks, 'rank')}, {by}"


def remarks(benchmark: Benchmark) -> Iterable[str]:
    """Yield notes on how a run measured, and on its end."""
    settings = benchmark.settings
    small, large = settings["iterations"], settings["iterations_large"]
    sizes = {point.size > LARGE_BYTES for point in benchmark.points}
    counts = {False: str(small), True: str(large)}
    iterations = " or ".join(dict.fromkeys(counts[size] for size in sorted(sizes)))
    yield (
        f"{settings['datatype']}, {settings['form']}, quorum {settings['quorum']}, {iterations} "
        "iterations of each."
    )
    if benchmark.interrupted:
        yield "The run was interrupted: what it had measured until then is shown."
    wrong = sum(each.wrong for point in benchmark.points for each in point.series.values())
    if wrong:
        yield f"Wrong results: {wrong}. Do not rely on these times."
