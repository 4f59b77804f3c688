"""Check how a training hears of its end, and how the job is queued again."""

import re
from collections.abc import Iterator, Sequence

from wagma.slurm.checks.findings import Finding, Job
from wagma.slurm.script import Launch
from wagma.slurm.shell import Command
from wagma.units import duration_text

_HEARD = ("USR2", "TERM")  # by wagma.preemption.Preemption
_NUMBERS = {"10": "USR1", "12": "USR2", "15": "TERM"}
_FORWARDS = re.compile(r"\b(?:kill|pkill|scancel)\b")
_USR2 = re.compile(r"\bkill\s+(?:-s\s*|-)(?:SIG)?(?:USR2|12)\b")
_OPEN_MPI = re.compile(r"open-?mpi|ompi|prte|--?mca|oversubscribe|--map-by", re.IGNORECASE)
_REQUEUE = re.compile(r"\bscontrol\s+requeue\b")
_LOOKS = re.compile(r"\bsqueue\b|\bscontrol\s+(?:-\S+\s+)*show\b")


def asked(job: Job) -> Iterator[Finding]:
    """Check that the script asks Slurm for what lets a training outlive its time limit."""
    if not job.trainings:
        return
    script, where = job.script, job.script.last_directive
    if job.signal is None:
        is_given = "signal" in job.options
        yield Finding(
            script.line_of("signal", where),
            "bad-signal" if is_given else "no-signal",
            f"--signal={job.options['signal']} is no signal with seconds"
            if is_given
            else "no signal comes before the time limit: what was computed since the last "
            "checkpoint is lost, and nobody queues the job again",
            "#SBATCH --signal=USR2@120 where srun starts the ranks; --signal=B:USR2@120 and a trap "
            "where the shell passes it on",
        )
    else:
        yield from _signal_name(job)
        yield from _signal_seconds(job)
    if not script.has("requeue"):
        yield Finding(
            script.line_of("no-requeue", where),
            "no-requeue",
            "the job may not be queued again where the site's default is not to: after a node's "
            "failure or a preemption it is gone, and scontrol requeue is refused",
            "#SBATCH --requeue",
        )
    if job.options.get("open-mode") != "append":
        yield Finding(
            script.line_of("open-mode", where),
            "no-append",
            "a job that runs again empties its output file",
            "#SBATCH --open-mode=append",
        )


def _signal_name(job: Job) -> Iterator[Finding]:
    assert job.signal is not None
    name = _NUMBERS.get(job.signal.name, job.signal.name)
    line = job.script.line_of("signal")
    remedy = "#SBATCH --signal=" + job.options["signal"].replace(job.signal.name, "USR2")
    if name == "USR1" and (job.has_gpus or re.search("nccl", job.script.text, re.IGNORECASE)):
        yield Finding(line, "usr1-nccl", "NCCL takes USR1 for itself: ranks do not hear it", remedy)
    elif name not in _HEARD:
        yield Finding(
            line,
            "signal-name",
            f"wagma.preemption.Preemption hears {' and '.join(_HEARD)} by default, not {name}",
            f"{remedy}; or Preemption(signals=...)",
        )


def _signal_seconds(job: Job) -> Iterator[Finding]:
    assert job.signal is not None
    takes = job.checkpoint_s
    if takes is not None and job.signal.seconds <= takes:
        least = round(2 * takes) + 30
        yield Finding(
            job.script.line_of("signal"),
            "signal-late",
            f"the signal comes {duration_text(job.signal.seconds)} before the limit, and a "
            f"checkpoint takes {duration_text(takes)}, after the step that runs",
            f"#SBATCH --signal={job.options['signal'].partition('@')[0]}@{least}",
        )


def background(job: Job) -> Iterator[Finding]:
    """Check that the script waits for its commands in the background."""
    waits = [one for one in job.script.commands if one.words[:1] == ["wait"]]
    for launch in job.script.launches:
        if launch.command.end == "&" and not any(one.line >= launch.line for one in waits):
            yield Finding(
                launch.line,
                "no-wait",
                "the script ends while the ranks run in the background, and the job with it",
                "wait for them: see slurm/train-cpu.sbatch",
            )


def forwarded(job: Job) -> Iterator[Finding]:
    """Check that a signal reaches the ranks."""
    if job.signal is None:
        return
    name = _NUMBERS.get(job.signal.name, job.signal.name)
    traps = [(one, heard[1]) for one in job.script.commands if (heard := _trap(one, name))]
    for launch in job.trainings:
        if job.signal.to_batch:
            yield from _by_batch(job, launch, traps, name)
        elif launch.kind == "mpiexec":
            yield Finding(
                launch.line,
                "mpiexec-signal",
                "without B: Slurm signals what srun started: mpiexec hears nothing, and what it "
                "started by srun on other nodes ends",
                f"#SBATCH --signal=B:{name}@{job.signal.seconds}, and pass it on: see "
                "slurm/train-cpu.sbatch",
            )
    if not job.signal.to_batch and job.trainings:
        for command, handler in traps:
            if handler:
                yield Finding(
                    command.line,
                    "trap-never",
                    f"this trap never runs: without B: the batch shell does not get {name}",
                    f"#SBATCH --signal=B:{name}@{job.signal.seconds}; or no trap, where srun "
                    "starts the ranks",
                )


def _by_batch(
    job: Job, launch: Launch, traps: Sequence[tuple[Command, str]], name: str
) -> Iterator[Finding]:
    waits = [
        one for one in job.script.commands if one.words[:1] == ["wait"] and one.line >= launch.line
    ]
    see = "see slurm/train-cpu.sbatch"
    if launch.is_exec:
        yield Finding(
            launch.line,
            "exec",
            "exec puts the launcher in the batch shell's place: nobody is left to trap "
            f"{name}, nor to queue the job again after code 85",
            f"run it in the background, trap, wait: {see}",
        )
    elif not any(handler for _, handler in traps):
        yield Finding(
            launch.line,
            "no-trap",
            f"with B: {name} goes to this shell alone, which has no trap and dies of it: the ranks "
            "hear nothing",
            f"trap 'kill -{name} \"$job\"' {name}, where job=$! of the launcher: {see}; or, with "
            "srun, no B:",
        )
    elif launch.command.end != "&":
        yield Finding(
            launch.line,
            "trap-late",
            "bash runs a trap only when the command in the foreground has ended: too late",
            f"run it in the background, and wait in a loop: {see}",
        )
    elif waits and not any(one.in_loop for one in waits) and len(waits) < 2:
        yield Finding(
            waits[0].line,
            "wait-once",
            f"a trapped {name} ends wait: the script goes on, and the job ends while ranks write "
            "their checkpoint",
            'while kill -0 "$job"; do wait "$job" || true; done',
        )
    for command, handler in traps:
        body = _body(job, handler) if handler and not launch.is_exec else ""
        if body and not _FORWARDS.search(body):
            yield Finding(
                command.line,
                "trap-forward",
                f"the trap does not pass {name} on: the ranks hear nothing",
                f"trap 'kill -{name} \"$job\"' {name}, where job=$! of the launcher",
            )
        elif launch.kind == "mpiexec" and _USR2.search(body) and not _is_open_mpi(job, launch):
            yield Finding(
                command.line,
                "mpiexec-usr2",
                "mpiexec of MPICH dies of USR2, and its ranks with it",
                f"trap 'kill -TERM \"$job\"' {name} (MPICH, Intel MPI; Open MPI passes USR2 on)",
            )


def _is_open_mpi(job: Job, launch: Launch) -> bool:
    """Return whether something says that this is Open MPI's mpiexec."""
    return bool(_OPEN_MPI.search(f"{job.code} {' '.join(launch.options)}"))


def _trap(command: Command, name: str) -> tuple[str, str] | None:
    """Return a signal and its handler where the command traps it; the last one may be ""."""
    words = [one for one in command.words if one != "--"]
    if words[:1] != ["trap"] or len(words) < 3:
        return None
    heard = {_NUMBERS.get(one, one.upper().removeprefix("SIG")) for one in words[2:]}
    return (name, words[1].removeprefix("-")) if name in heard else None


def _body(job: Job, handler: str) -> str:
    """Return a handler with the body of the function that it calls."""
    called = handler.split()[0].rstrip(";")
    bodies = [" ".join(one.words) for one in job.script.commands if one.function == called]
    return "\n".join([handler, *bodies])


def requeued(job: Job) -> Iterator[Finding]:
    """Check that something queues the job again, and this task of an array alone."""
    lines = [
        number for number, text in enumerate(job.code.splitlines(), 1) if _REQUEUE.search(text)
    ]
    if "array" in job.options:
        yield from _array(job)
    if lines and not _LOOKS.search(job.code):
        yield Finding(
            lines[0],
            "requeue-cancelled",
            "a job that scancel ends is queued again: its ranks stop at a checkpoint, too",
            'if [[ $(squeue -h -j "$SLURM_JOB_ID" -o %T) != *COMPLETING* ]]; then scontrol requeue '
            '"$SLURM_JOB_ID"; fi',
        )
    for launch in job.trainings:
        if launch.container and not lines and not re.search(r"\b85\b", job.code):
            yield Finding(
                launch.line,
                "container",
                f"there is no scontrol inside {launch.container}: ranks that stop at a checkpoint "
                "end with code 85, and nobody queues the job again",
                'after the ranks: if ((status == 85)); then scontrol requeue "$SLURM_JOB_ID"; fi; '
                "slurm/train-container.sbatch does it",
            )


def _array(job: Job) -> Iterator[Finding]:
    this = "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
    for number, text in enumerate(job.code.splitlines(), 1):
        target = job.script.expand(text)
        if _REQUEUE.search(text) and "SLURM_ARRAY_TASK_ID" not in target:
            yield Finding(
                number,
                "array-requeue",
                "this may queue all tasks of the array again: the job's number of one of them is "
                "that of the array",
                f'scontrol requeue "{this}"',
            )
        if re.search(r"\bsbatch\b.*\$\{?0", text) and not re.search(r"--array|\s-a", text):
            yield Finding(
                number,
                "array-requeue",
                "this submits all tasks of the array again",
                'sbatch --array="$SLURM_ARRAY_TASK_ID" ...',
            )
