"""Check how ranks are started."""

import re
from collections.abc import Iterator

from wagma.slurm.checks.findings import Finding, Job
from wagma.slurm.options import number
from wagma.slurm.script import Launch, without_redirections

# Find settings with which a waiting rank gives its core to the others.
_YIELDING = re.compile(r"HEAVY_YIELD=1|yield_when_idle|I_MPI_THREAD_YIELD|I_MPI_WAIT_MODE")
# Find last words of a launcher's command behind which a program is missing.
_NO_PROGRAM = re.compile(
    r"srun|(?:\S*/)?mpi(?:exec|run)|\d+|-(?!.*(?:list|version|help|usage|V$)).*"
)
_PYTHON = re.compile(r"(?:\S*/)?python[\d.]*")


def no_launcher(job: Job) -> Iterator[Finding]:
    """Check that something starts the tasks of a job that asks for several."""
    if job.tasks < 2 or job.script.launches:
        return
    for command in job.script.commands:
        words = job.script.expand_all(command.words)
        if words and _PYTHON.fullmatch(words[0]) and "-m" not in words[1:2]:
            yield Finding(
                command.line,
                "no-launcher",
                f"the job is for {job.tasks} tasks, but one process is started",
                f"srun --mpi=pmi2 {' '.join(words)[:60]} (pmix with Open MPI)",
            )
            return


def no_program(job: Job) -> Iterator[Finding]:
    """Check that a launcher has something to start.

    What follows an option that is not known here may be its value, or the program: it passes.
    """
    for launch in job.script.launches:
        last = without_redirections(job.script.expand_all(launch.command.words))[-1]
        if not launch.program and _NO_PROGRAM.fullmatch(last):
            yield Finding(
                launch.line,
                "no-program",
                f"{launch.kind} has no program to start",
                f"{launch.kind} ... python train.py; a line that goes on below ends with a "
                "backslash",
            )


def nested(job: Job) -> Iterator[Finding]:
    """Check that a launcher starts no other one in each of its tasks."""
    for launch in job.script.launches:
        if launch.nested and _tasks(job, launch) != 1:
            yield Finding(
                launch.line,
                "nested",
                f"{launch.kind} starts {launch.nested} in each task, and each of these starts all "
                "ranks again",
                "one launcher alone: srun --mpi=pmi2 python train.py (pmix with Open MPI), or "
                "mpiexec python train.py",
            )


def srun_mpi(job: Job) -> Iterator[Finding]:
    """Check that srun says how ranks find each other."""
    script = job.script
    if "SLURM_MPI_TYPE" in script.exported:
        return
    for launch in job.ranks:
        is_alone = _tasks(job, launch) == 1 or launch.has_torchrun
        if launch.kind == "srun" and "mpi" not in launch.options and not is_alone:
            yield Finding(
                launch.line,
                "no-mpi",
                "srun without --mpi: where the site's default does not fit the MPI, each rank is "
                "alone",
                "srun --mpi=pmi2 (MPICH, Intel MPI), --mpi=pmix (Open MPI) or --mpi=cray_shasta; "
                "srun --mpi=list shows what there is",
            )


def srun_cores(job: Job) -> Iterator[Finding]:
    """Check that srun takes over the cores of a rank."""
    asked = job.options.get("cpus-per-task", "1")
    if asked == "1" or "SRUN_CPUS_PER_TASK" in job.script.exported:
        return
    for launch in job.ranks:
        if launch.kind == "srun" and not {"cpus-per-task", "exact"} & set(launch.options):
            yield Finding(
                launch.line,
                "srun-cores",
                f"srun does not take over --cpus-per-task={asked} of the job (since Slurm 22.05): "
                "each rank is bound to one core",
                'srun --cpus-per-task="$SLURM_CPUS_PER_TASK"',
            )


def overcommitted(job: Job) -> Iterator[Finding]:
    """Check that ranks which spin while they wait have a core each."""
    script = job.script
    if _YIELDING.search(job.code):
        return
    remedy = (
        "as many ranks as tasks; or let waiting ranks give their core away: export "
        "MPIR_CVAR_ENABLE_HEAVY_YIELD=1 (MPICH), OMPI_MCA_mpi_yield_when_idle=1 (Open MPI)"
    )
    if script.has("overcommit"):
        yield Finding(
            script.line_of("overcommit"),
            "overcommit",
            "--overcommit puts several ranks on a core, where a rank that waits for another spins "
            "and keeps it from running",
            remedy,
        )
    for launch in job.ranks:
        asked = _tasks(job, launch)
        cores = sum(one.tasks * one.cores for one in job.components)
        if "overcommit" in launch.options or "oversubscribe" in launch.options:
            text = "several ranks on a core, where a rank that waits for another spins"
        elif asked is not None and asked > cores and launch.kind != "torchrun":
            text = f"{asked} ranks on {cores} cores, where a rank that waits for another spins"
        else:
            continue
        yield Finding(launch.line, "overcommit", text, remedy)


def threads(job: Job) -> Iterator[Finding]:
    """Check that numeric libraries do not start a thread per core of the node in each rank."""
    if not job.ranks or "OMP_NUM_THREADS" in job.script.exported:
        return
    if all("OMP_NUM_THREADS" in " ".join(_set_for(one)) for one in job.ranks):
        return
    yield Finding(
        job.ranks[0].line,
        "threads",
        "OMP_NUM_THREADS is not set: each rank may start as many threads as the node has cores",
        "export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}",
    )


def exit_status(job: Job) -> Iterator[Finding]:
    """Check that the exit status of the ranks reaches the script as it was."""
    has_pipefail = re.search(r"\bpipefail\b", job.code)
    for launch in job.trainings:
        if launch.command.end in ("|", "|&") and not has_pipefail:
            yield Finding(
                launch.line,
                "pipe-status",
                "the exit status of a pipe is that of its last command: the job seems to succeed "
                "when ranks fail, and code 85 is lost",
                "set -o pipefail; or let --output write the file",
            )
        if "kill-on-bad-exit" in launch.options and launch.options["kill-on-bad-exit"] != "0":
            yield Finding(
                launch.line,
                "kill-on-bad-exit",
                "the first rank that ends with code 85 has the others killed, which may still be "
                "ending: the status is 137, and nobody queues the job again",
                "srun --wait=60: once a rank has ended, the others have 60 s",
            )


def _tasks(job: Job, launch: Launch) -> int | None:
    """Return how many ranks a command starts; None: it does not say."""
    name = "ntasks" if launch.kind == "srun" else "n"
    asked = number(launch.options, name)
    if asked is None and launch.kind == "srun" and name not in launch.options:
        return 1 if launch.options.get("nodes") == "1" and job.tasks == 1 else None
    return asked


def _set_for(launch: Launch) -> list[str]:
    return [*launch.environment, *(f"{k} {v}" for k, v in launch.options.items())]
