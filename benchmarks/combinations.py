"""Options of the benchmarks that do not go together. Pure but for a trace, which is read."""

import argparse

from wagma.launch.packages import missing

from . import arrival
from .gpus import GPUS
from .kinds import NONBLOCKING
from .settings import Settings, members


def check_options(given: argparse.Namespace) -> None:
    """Check the options of a command line, each of which was checked by itself.

    Raises:
        ValueError: some do not go together; the message names option, value and remedy.
    """
    _check_wagma(given)
    _check_buffers(given)
    _check_arrival(given)
    if given.format == "nccl" and given.kind in NONBLOCKING:
        raise ValueError(
            f"--format nccl: it has no columns for the kind {given.kind}; pass osu, csv or json"
        )
    _check_output(given)


def _check_wagma(given: argparse.Namespace) -> None:
    if given.kind == "allreduce" and given.group_size is not None:
        raise ValueError(
            f"--group-size {given.group_size}: allreduce is of all ranks; use the kind "
            "group-allreduce, with --quorum all if every member is to be waited for"
        )
    if given.quorum == "all":
        for option, value in (("--late", given.late), ("--grace", given.grace)):
            if value is not None:
                raise ValueError(
                    f"{option} {value}: with --quorum all nobody is late; leave it out, or pass "
                    "a number or majority as --quorum"
                )
        if given.form == "out-of-place":
            raise ValueError(
                "--form out-of-place: --quorum all reduces in place; pass --form in-place, or a "
                "smaller --quorum"
            )
    if given.kind in NONBLOCKING and given.late in ("skip", "carry"):
        raise ValueError(
            f"--late {given.late}: the array of a posted call would not become the result; pass "
            "--late stale, or use the kind allreduce"
        )


def _check_output(given: argparse.Namespace) -> None:
    if given.percentiles and given.format != "osu":
        raise ValueError(
            f"-z: --format {given.format} has percentiles of its own, or none; leave -z out, or "
            "pass --format osu"
        )
    if given.full and given.format in ("csv", "nccl"):
        raise ValueError(
            f"-f: --format {given.format} has the same columns with it; leave -f out, or pass "
            "--format osu or json"
        )
    if given.corrupt is None:
        return
    if not given.validate:
        raise ValueError(f"--corrupt {given.corrupt}: nobody would notice; add -c")
    baselines = given.baselines
    if baselines is None:  # arguments.settings' default
        baselines = () if given.format == "osu" else ("mpi",)
    measured = ("wagma", *(name.partition("-")[0] for name in baselines))
    if given.corrupt not in measured:
        raise ValueError(
            f"--corrupt {given.corrupt}: it is not measured; add --baseline "
            f"{'mpi-nonblocking' if given.kind in NONBLOCKING else given.corrupt}"
        )
    if given.iterations == 1 and given.warmup == 0:
        raise ValueError(
            f"--corrupt {given.corrupt}: -i 1 -x 0 has no second result to falsify; pass -i 2"
        )


def _check_buffers(given: argparse.Namespace) -> None:
    package, on_gpu = given.buffer.partition("-")[0], given.buffer in GPUS
    if package != "numpy" and (said := missing(package)):
        more = "; it needs a GPU: python -m wagma doctor names those there are" if on_gpu else ""
        raise ValueError(f"--buffer {given.buffer}: {said}{more}")
    if on_gpu and given.form == "private":
        raise ValueError(
            f"--form private: arrays in place are the user's with --buffer {given.buffer}; pass "
            "--form in-place"
        )
    if given.buffer == "cupy" and given.datatype == "bfloat16":
        raise ValueError("--buffer cupy: CuPy has no bfloat16; pass --buffer torch-cuda")
    for name in given.baselines or ():
        if name in ("gloo", "mpi-nonblocking") and on_gpu:
            raise ValueError(
                f"--baseline {name}: it reduces arrays of the host; pass mpi, nccl or copy, or "
                "none with posted calls"
            )
        if name == "copy" and not on_gpu:
            raise ValueError(
                "--baseline copy: it is of arrays on a GPU; pass --buffer torch-cuda or cupy"
            )
        if given.kind in NONBLOCKING and name != "mpi-nonblocking":
            raise ValueError(
                f"--baseline {name}: the calls of {given.kind} are posted; pass mpi-nonblocking"
            )
        if name in ("gloo", "nccl") and (said := missing("torch")):
            raise ValueError(f"--baseline {name}: {said}, or leave it out")
    if getattr(given, "loop", "auto") == "c" and given.buffer != "numpy":
        raise ValueError(f"--loop c: it takes no arrays of {given.buffer}; pass --loop auto")


def _check_arrival(given: argparse.Namespace) -> None:
    pattern = getattr(given, "arrival", None)
    if pattern is None:
        return
    if given.kind == "skew" and not pattern.has_amplitude:
        raise ValueError(f"--arrival {pattern.text} has no T: choose from {arrival.SCALED}")
    if given.kind != "skew" and pattern.has_amplitude and pattern.amplitude is None:
        raise ValueError(
            f"--arrival {pattern.text}: T is missing; write {arrival.FORMS[pattern.name]}"
        )


def check_ranks(settings: Settings, ranks: int) -> None:
    """Check what depends on the number of ranks; the same on all of them.

    Raises:
        ValueError: they do not go together; the message names option, value and remedy.
    """
    if ranks < 2:
        raise ValueError(
            "there is 1 rank: start two or more, mpiexec -n 2 python -m wagma bench ...; if you "
            "did, python -m wagma doctor says why they do not see each other"
        )
    if settings.group_size is not None and settings.group_size > ranks:
        raise ValueError(f"--group-size {settings.group_size}: there are {ranks} ranks; pass fewer")
    scope = members(settings, ranks)
    if isinstance(settings.quorum, int) and settings.quorum > scope:
        raise ValueError(
            f"--quorum {settings.quorum}: {scope} ranks reduce together; pass 1 to {scope}, all "
            "or majority"
        )
    if settings.form == "out-of-place" and settings.quorum == scope:
        raise ValueError(
            f"--form out-of-place: --quorum {settings.quorum} of {scope} is all, which reduces in "
            "place; pass --form in-place, or a smaller --quorum"
        )
    pattern = arrival.parse(settings.arrival)
    amplitude = settings.skews[0] if settings.skews else None
    try:
        arrival.offsets(pattern, ranks, 1, settings.seed, amplitude)
    except OSError as error:
        raise ValueError(f"--arrival {settings.arrival}: it cannot be read: {error}") from None
    except ValueError as error:
        raise ValueError(f"--arrival {settings.arrival}: {error}") from None
