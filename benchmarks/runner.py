"""A whole run: finds out what is wrong with it, measures point by point, and prints each."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from wagma.launch import interrupt
from wagma.launch.agreement import InputError
from wagma.launch.files import check_writable
from wagma.launch.progress import progress
from wagma.launch.together import FAILED, abort_on_error, everywhere
from wagma.memory import Room, room
from wagma.report.remarks import remarks

from . import arrival, combinations, environment, measure, memory, nonblocking, raw
from .accuracy import accuracy
from .accuracy import warnings as inaccuracies
from .gpus import GPUS, Gpu
from .kinds import NONBLOCKING
from .measurement import Measurement, contributions_of, iterations_of
from .samples import Point, Report
from .settings import Settings
from .start import Start, agree
from .subjects import check, check_libraries, unavailable
from .views import view

if TYPE_CHECKING:
    from mpi4py import MPI


def run_on(comm: MPI.Intracomm, settings: Settings) -> int:
    """Measure on all ranks of `comm`, rank 0 prints; return the exit status. Collective.

    Raises:
        InputError: the settings cannot be measured here, or are not those of all ranks.
    """
    settings, over = agree(comm, settings)
    with interrupt.Interrupt(comm) as interrupted:
        settings, warnings = _checked(comm, settings)
        gpu = everywhere(comm, lambda: _gpu(settings, comm.Get_rank()))
        if gpu is not None and gpu.simulated:
            warnings += ["GPUs are simulated: the figures say nothing of a GPU"]
        places = environment.gather(comm, None if gpu is None else gpu.facts())
        crowded = environment.crowded_hosts(places)
        sizes, left_out = _sizes(comm, settings, over, environment.fullest(places))
        warnings += crowded + left_out
        header = environment.environment(settings, places, over, warnings)
        report = Report(settings, header, comm.Get_size())
        with abort_on_error(comm):
            with Start(comm, crowded=bool(crowded)) as start:
                header["clock"] = accuracy(comm, start)
                _measure(comm, replace(settings, sizes=sizes), start, report, interrupted, gpu)
                header["clock"] = accuracy(comm, start, ended=True)
            report.interrupted = interrupted.agreed()
            return int(comm.bcast(_end(report) if comm.Get_rank() == 0 else None))


# ---- what can be wrong ---------------------------------------------------------------------------


def _checked(comm: MPI.Intracomm, settings: Settings) -> tuple[Settings, list[str]]:
    """Return the settings without missing baselines, and warnings about these; collective."""
    ranks = comm.Get_size()
    everywhere(comm, lambda: _check(settings, ranks))
    # By one rank for all: files may not be the same everywhere.
    everywhere(comm, lambda: _check_files(settings, ranks) if comm.Get_rank() == 0 else None)
    everywhere(comm, lambda: check_libraries(settings))
    missing = everywhere(comm, lambda: unavailable(settings, comm))
    if settings.corrupt in missing:
        raise InputError(
            f"--corrupt {settings.corrupt}: it is not measured: {missing[settings.corrupt]}"
        )
    kept = tuple(name for name in settings.baselines if name.partition("-")[0] not in missing)
    return replace(settings, baselines=kept), list(missing.values())


def _gpu(settings: Settings, rank: int) -> Gpu | None:
    """Return the GPU of a rank; None: the arrays are the host's.

    Raises:
        InputError: there is none; says what to do.
    """
    if settings.buffer not in GPUS:
        return None
    gpu = GPUS[settings.buffer](rank)
    gpu.facts()  # the engine has to find it, too
    return gpu


def _check(settings: Settings, ranks: int) -> None:
    combinations.check_ranks(replace(settings, arrival="together", skews=()), ranks)
    check(settings, ranks)
    if settings.validate:
        for size in settings.sizes:
            contributions_of(settings, size, ranks)


def _check_files(settings: Settings, ranks: int) -> None:
    combinations.check_ranks(settings, ranks)
    if settings.samples is not None:
        file = Path(settings.samples)
        try:
            check_writable(file)
        except OSError as error:
            raise ValueError(
                f"--samples {settings.samples}: cannot be written: {error.strerror}"
            ) from None


def _sizes(
    comm: MPI.Intracomm, settings: Settings, over: str, here: int
) -> tuple[tuple[int, ...], list[str]]:
    """Return the sizes that fit into memory, and why others are left out; collective."""
    rooms = comm.allgather(room())
    free = Room(min(room.shared for room in rooms), min(room.total for room in rooms))
    why = {
        size: memory.shortage(settings, comm.Get_size(), size, free, over=over, here=here)
        for size in settings.sizes
    }
    left_out = [text for text in why.values() if text is not None]
    sizes = tuple(size for size, text in why.items() if text is None)
    if not sizes:
        raise InputError(f"nothing can be measured: {left_out[0]}")
    return sizes, left_out


# ---- measuring and printing ----------------------------------------------------------------------


def _measure(
    comm: MPI.Intracomm,
    settings: Settings,
    start: Start,
    report: Report,
    interrupted: interrupt.Interrupt,
    gpu: Gpu | None,
) -> None:
    """Measure all points and print each at once; collective."""
    shown = view(report.settings)
    first = comm.Get_rank() == 0
    if first:
        _tell(report)
        _print(shown.header(report.environment))
    amplitudes = settings.skews or (None,)
    points = [(size, amplitude) for size in settings.sizes for amplitude in amplitudes]
    with progress(len(points), shown=first, rows=settings.format != "json") as advance:
        for size, amplitude in points:
            point = _point(comm, settings, start, size, amplitude, interrupted, gpu)
            if point is not None:
                report.points.append(point)
                _print(shown.row(point))
            if interrupted.agreed():
                break
            advance()


def _point(
    comm: MPI.Intracomm,
    settings: Settings,
    start: Start,
    size: int,
    amplitude: float | None,
    interrupted: interrupt.Interrupt,
    gpu: Gpu | None,
) -> Point | None:
    pattern = arrival.parse(settings.arrival)
    offsets = None
    if comm.Get_rank() == 0:
        iterations = sum(iterations_of(settings, size)[0])
        offsets = arrival.offsets(pattern, comm.Get_size(), iterations, settings.seed, amplitude)
    offsets = comm.bcast(offsets)
    arrives_s = float(offsets.max(initial=0)) / 1e9
    interrupted.longest_s = arrives_s + settings.lateness + (settings.compute or 0.0)
    posted = settings.kind in NONBLOCKING
    measured = nonblocking.measure if posted else measure.measure
    return measured(
        Measurement(
            settings,
            comm,
            start,
            size,
            settings.arrival,
            offsets,
            amplitude=pattern.amplitude if amplitude is None else amplitude,
            interrupted=interrupted.agreed,
            gpu=gpu,
        )
    )


def _tell(report: Report) -> None:
    """Print the environment and warnings on standard error, if the view has none."""
    if report.settings.format == "osu":
        sys.stderr.write(remarks(report.environment))
    else:
        for warning in report.environment["warnings"]:
            sys.stderr.write(f"warning: {warning}\n")
    sys.stderr.flush()


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _end(report: Report) -> int:
    """Print and write what remains; return the exit status."""
    for warning in inaccuracies(report.environment["clock"], report.points):
        report.environment["warnings"].append(warning)
        sys.stderr.write(f"warning: {warning}\n")
    _print(view(report.settings).footer(report))
    if report.settings.samples is not None:
        raw.save(report.settings.samples, report)
    wrong = False
    for point in report.points:
        for series in point.series:
            if series.checks.wrong:
                wrong = True
                sys.stderr.write(
                    f"{point.size} bytes: {series.checks.wrong} of {series.checks.results} results "
                    f"are wrong: {series.checks.first_wrong}\n"
                )
    if report.interrupted:
        sys.stderr.write("interrupted: what is above is not all that was asked for\n")
    sys.stderr.flush()
    return FAILED if wrong else interrupt.STATUS if report.interrupted else 0
