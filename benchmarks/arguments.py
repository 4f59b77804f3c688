"""The command line of the benchmarks: OSU Micro-Benchmarks 7's options, and our own.

`add_arguments` adds a kind's options to a parser, and `settings` checks them and makes `Settings`;
what depends on the number of ranks is for `combinations.check_ranks`. What is wrong ends in one
message that names the option, its value and the remedy, and in exit status 2.
"""

import argparse
from dataclasses import fields
from importlib.metadata import version

from wagma.launch import values
from wagma.launch.options import TRANSPORTS, integer, reader
from wagma.units import parse_seconds

from . import arrival
from .combinations import check_options
from .datatypes import DATATYPES, datatype
from .gpus import GPUS
from .kinds import KINDS, NONBLOCKING, Kind, title
from .settings import LARGE_BYTES, Settings

PASSES = 5
PERCENTILES = (50.0, 90.0, 99.0)
BASELINES = ("mpi", "mpi-nonblocking", "gloo", "nccl", "copy")
LIBRARIES = ("wagma", "mpi", "gloo", "nccl")
FORMATS = ("osu", "nccl", "json", "csv")
BUFFERS = ("numpy", "torch", *GPUS)
FORMS = ("in-place", "private", "out-of-place")


SKEWS = (0.0, 100e-6, 1e-3, 10e-3)
LATENESS = 1e-3


# ---- options -------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser, kind: str) -> None:
    """Add the options of one of `KINDS` to `parser`, which `settings` is then given."""
    defaults = KINDS[kind]
    parser.set_defaults(kind=kind)
    parser.epilog = "Arrival patterns: " + ", ".join(arrival.FORMS.values()) + "; T as 300ms, 50us."
    _add_osu(parser, kind, defaults)
    _add_nccl(parser)
    _add_wagma(parser, defaults)
    _add_measurement(parser, kind, defaults)


def _add_osu(parser: argparse.ArgumentParser, kind: str, defaults: Kind) -> None:
    group = parser.add_argument_group("as OSU Micro-Benchmarks")
    add = group.add_argument
    smallest = "one element" if defaults.smallest == 1 else defaults.smallest
    add(
        "-m",
        "--message-size",
        type=reader(values.limits),
        metavar="[MIN:]MAX",
        help="smallest and largest array, in bytes or as in 64KiB:1MiB; doubled from MIN on, as "
        "long as MAX is not exceeded; MIN: and MAX alone will do, too (default: "
        f"{smallest}, {defaults.largest})",
    )
    add(
        "-i",
        "--iterations",
        type=integer(1),
        metavar="N",
        help=f"counted iterations (default: {defaults.iterations}, above {LARGE_BYTES} bytes "
        f"{defaults.iterations_large})",
    )
    add(
        "-x",
        "--warmup",
        type=integer(0),
        metavar="N",
        help=f"uncounted iterations before (default: {defaults.warmup}, above {LARGE_BYTES} bytes "
        f"{defaults.warmup_large})",
    )
    add(
        "-T",
        "--type",
        dest="datatype",
        type=reader(datatype),
        default="float32",
        metavar="DATATYPE",
        help=f"{', '.join(sorted(DATATYPES))} (default: mpi_float)",
    )
    add(
        "-f",
        "--full",
        action="store_true",
        help="print more: minimum, maximum and iterations with osu, every rank's times with json",
    )
    add(
        "-c",
        "--validation",
        dest="validate",
        action="store_true",
        help="compare every result with what it should hold; exit status 1 if one does not",
    )
    add(
        "-z",
        "--tail-lat",
        dest="percentiles",
        type=reader(values.percentiles),
        nargs="?",
        const=PERCENTILES,
        default=(),
        metavar="P,...",
        help="percentiles of the latency, with --format osu (default: 50,90,99)",
    )
    if kind in NONBLOCKING:
        add(
            "-t",
            "--num-test-calls",
            dest="tests",
            type=integer(0),
            default=0,
            metavar="N",
            help="calls of MPI_Test, and of Request.test, while computing (default: 0)",
        )
    line = title(kind, version("wagma"))
    add("-v", "--version", action="version", version=line, help="print the version")


def _add_nccl(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("as nccl-tests").add_argument
    for names, bound in ((("-b", "--minbytes"), "MIN"), (("-e", "--maxbytes"), "MAX")):
        add(*names, type=reader(values.size), metavar="SIZE", help=f"the {bound} of -m")


def _add_wagma(parser: argparse.ArgumentParser, defaults: Kind) -> None:
    add = parser.add_argument_group("what of wagma is measured").add_argument
    add(
        "--form",
        choices=FORMS,
        default="in-place",
        help="which arrays wagma reduces (default: %(default)s)",
    )
    add(
        "--buffer",
        choices=BUFFERS,
        default="numpy",
        help="kind of arrays: of the host, or on the rank's GPU (default: %(default)s)",
    )
    add(
        "--transport",
        choices=TRANSPORTS,
        default="auto",
        help="transport between ranks: shared memory, or messages of MPI; auto is shm on "
        "one node; WAGMA_TRANSPORT overrides it (default: %(default)s)",
    )
    add("--group-size", type=integer(1), metavar="S", help="ranks that reduce together")
    add(
        "--quorum",
        type=reader(values.quorum),
        default=defaults.quorum,
        metavar="K",
        help="members that start a reduction: a number, all or majority (default: %(default)s)",
    )
    add(
        "--late",
        choices=("stale", "skip", "carry"),
        help="what a late rank contributes (default: stale)",
    )
    add(
        "--grace",
        type=reader(_grace),
        metavar="TIME",
        help="how long a reduction waits for late ranks once its quorum is there, such as 500us "
        "(default: auto)",
    )
    add(
        "--timeout",
        type=reader(parse_seconds),
        metavar="TIME",
        help="how long a wait may last before it is an error, such as 30s (default: for ever)",
    )


def _add_measurement(parser: argparse.ArgumentParser, kind: str, defaults: Kind) -> None:
    add = parser.add_argument_group("how it is measured").add_argument
    add(
        "--format",
        choices=FORMATS,
        default="osu",
        help="format of the output (default: %(default)s)",
    )
    add(
        "--baseline",
        dest="baselines",
        type=reader(_baselines),
        metavar="NAMES",
        help=f"measured beside it: {', '.join(_baselines_of(kind))}, or none (default: with "
        f"--format osu none, else {_usual_baseline(kind)})",
    )
    if kind == "overlap":
        add(
            "--lateness",
            type=reader(parse_seconds),
            default=LATENESS,
            metavar="TIME",
            help="how late one rank, drawn anew in each iteration, posts (default: 1ms)",
        )
    else:
        add(
            "--arrival",
            type=reader(arrival.parse),
            default=arrival.parse(defaults.arrival),
            metavar="PATTERN",
            help=f"pattern by which ranks arrive, see below (default: {defaults.arrival})",
        )
    if kind == "skew":
        add(
            "--skews",
            type=reader(_times),
            default=SKEWS,
            metavar="TIME,...",
            help="values of the pattern's T (default: 0,100us,1ms,10ms)",
        )
    if kind in NONBLOCKING:
        add(
            "--compute",
            type=reader(parse_seconds),
            metavar="TIME",
            help="computing between posting and waiting (default: as long as the reduction takes)",
        )
    else:
        add(
            "--loop",
            choices=("auto", "c", "python"),
            default="auto",
            help="where the loop around the calls runs (default: auto: in C for small arrays)",
        )
    add(
        "--seed",
        type=integer(0),
        default=1,
        metavar="N",
        help="of the order of what is measured, and of arrivals (default: %(default)s)",
    )
    add("--samples", metavar="FILE", help="write every rank's times to FILE (.npz)")
    add(
        "--corrupt",
        choices=LIBRARIES,
        nargs="?",
        const="wagma",
        help="self-test of -c: falsify the second result of a library (default: wagma)",
    )


def _baselines_of(kind: str) -> tuple[str, ...]:
    return ("mpi-nonblocking",) if kind in NONBLOCKING else BASELINES


def _usual_baseline(kind: str) -> str:
    return _baselines_of(kind)[0]


# ---- values --------------------------------------------------------------------------------------


def _times(text: str) -> tuple[float, ...]:
    return tuple(parse_seconds(word) for word in text.split(","))


def _grace(text: str) -> float | str:
    return text if text == "auto" else parse_seconds(text)


def _baselines(text: str) -> tuple[str, ...]:
    return values.names(text, BASELINES)


# ---- settings ------------------------------------------------------------------------------------


def settings(namespace: argparse.Namespace, parser: argparse.ArgumentParser) -> Settings:
    """Return the settings that the command line gives.

    Args:
        namespace: of a parser that `add_arguments` prepared.
        parser: that parser, whose `error` ends the process with status 2 if something is wrong.
    """
    kind = KINDS[namespace.kind]
    try:
        check_options(namespace)
        sizes = _sizes(*_limits(namespace), namespace.datatype, kind)
    except ValueError as error:
        parser.error(str(error))
    names = {field.name for field in fields(Settings)}
    given = {name: v for name, v in vars(namespace).items() if name in names and v is not None}
    for name in ("iterations", "warmup"):
        for of in (name, f"{name}_large"):
            given[of] = getattr(kind, of) if getattr(namespace, name) is None else given[name]
    posted_on_gpu = namespace.kind in NONBLOCKING and namespace.buffer in GPUS
    if "baselines" not in given and namespace.format != "osu" and not posted_on_gpu:
        given["baselines"] = (_usual_baseline(namespace.kind),)
    if "arrival" in given:
        given["arrival"] = namespace.arrival.text
    passes = min(PASSES, given["iterations"], given["iterations_large"])
    return Settings(sizes=sizes, passes=passes, **given)


Limit = int | None


def _limits(given: argparse.Namespace) -> tuple[str, Limit, Limit]:
    """Return the option that limits the sizes, MIN and MAX; None: not given."""
    smallest, largest = given.minbytes, given.maxbytes
    if smallest is None and largest is None:
        return ("argument -m/--message-size", *(given.message_size or (None, None)))
    if given.message_size is not None:
        raise ValueError("argument -m/--message-size: not allowed with -b and -e: leave it out")
    values.check_order(smallest, largest, "-b MIN -e MAX")
    return "argument -b/--minbytes, -e/--maxbytes", smallest, largest


def _sizes(
    option: str, smallest: Limit, largest: Limit, name: str, defaults: Kind
) -> tuple[int, ...]:
    """OSU's: doubled, without those that are smaller than an element."""
    element = DATATYPES[name].bytes
    if defaults.smallest == defaults.largest:  # a kind of one size: that of -m is another one
        smallest, largest = smallest or largest, largest or smallest
    largest = largest or defaults.largest
    smallest = smallest or min(defaults.smallest, largest)
    if smallest > largest:
        raise ValueError(f"{option}: MIN is {smallest}, MAX by default {largest}: give both")
    sizes = []
    size = smallest
    while size <= largest:
        if size >= element:
            sizes.append(size)
        size *= 2
    if not sizes:
        raise ValueError(
            f"{option}: nothing from {smallest} to {largest} holds an element of "
            f"{name}, which has {element} bytes: raise MAX"
        )
    if sizes[0] % element:  # the others are its multiples
        doubled = "" if sizes[0] == smallest else f"MIN is {smallest}, which is doubled: "
        raise ValueError(
            f"{option}: {doubled}{sizes[0]} is no multiple of {element} bytes, "
            f"the size of {name}: try MIN {max(smallest // element, 1) * element}"
        )
    return tuple(sizes)
