"""Explain what a batch script would run where."""

import re
import shlex
from collections.abc import Iterator

from wagma.slurm.checks import lint
from wagma.slurm.checks.findings import Job
from wagma.slurm.plan import SIGNAL_EARLY_S, Component, array_tasks, time_limit
from wagma.slurm.script import Launch, Script
from wagma.units import duration_text, plural

_WIDTH = 14
_BINDINGS = {"cpu-bind": "--cpu-bind={}", "bind-to": "-bind-to {}", "map-by": "--map-by {}"}


def explain(script: Script) -> str:
    """Return what a script would run where, line by line."""
    job = Job(script)
    lines = [f"{script.path}: {_headline(job)}", ""]
    for heading, texts in _parts(job):
        for index, text in enumerate(texts):
            lines.append(f"  {heading if not index else '':<{_WIDTH}}{text}")
    mistakes = len(lint(script))
    if mistakes:
        lines += [
            "",
            f"lint finds {plural(mistakes, 'mistake')}: python -m wagma slurm lint {script.path}",
        ]
    return "\n".join(lines) + "\n"


def _headline(job: Job) -> str:
    name = job.options.get("job-name", job.script.path.name)
    kind = "a heterogeneous job" if len(job.components) > 1 else "a job"
    if "array" in job.options:
        tasks = array_tasks(job.options["array"])
        kind = f"an array of {tasks[0]} jobs" if tasks else "an array of jobs"
        if tasks and tasks[1]:
            kind += f", {tasks[1]} at a time"
        kind += f" ({job.options['array']})"
    return f"{kind} named {name}"


def _parts(job: Job) -> Iterator[tuple[str, list[str]]]:
    yield "where", list(_where(job))
    yield "runs", list(_runs(job)) or ["nothing that starts several ranks: one process"]
    yield "output", list(_output(job))
    yield "time limit", list(_limit(job))
    if job.trainings:
        yield "signal", list(_signal(job))
        yield "at the limit", list(_end(job))
        yield "again", list(_again(job))


def _where(job: Job) -> Iterator[str]:
    for index, one in enumerate(job.components):
        group = f"group {index}: " if len(job.components) > 1 else ""
        yield group + _component(one)
    chosen = [
        f"{key} {job.options[key]}" for key in ("partition", "constraint") if key in job.options
    ]
    if chosen:
        yield ", ".join(chosen)
    if "exclusive" in job.options:
        yield "whole nodes: nobody else's jobs there"


def _component(one: Component) -> str:
    tasks = plural(one.tasks, "task")
    if one.nodes is None:
        text = f"{tasks} on as many nodes as they need"
    elif one.per_node and one.nodes > 1:
        text = f"{one.nodes} nodes with {plural(one.per_node, 'task')} each: {tasks}"
    else:
        text = f"{plural(one.nodes, 'node')} with {tasks}"
    text += f"; {plural(one.cores, 'core')} for each task"
    if one.per_node and (one.per_node > 1 or one.cores > 1):
        text += f", {one.per_node * one.cores} on a node"
    return text + (f"; GPUs: {one.gpus}" if one.gpus else "")


def _runs(job: Job) -> Iterator[str]:
    for launch in job.script.launches:
        yield f"line {launch.line}: {_ranks(job, launch)} of {_command(launch)}"
        details = [
            text.format(launch.options[key])
            for key, text in _BINDINGS.items()
            if key in launch.options
        ]
        if "mpi" in launch.options:
            details.insert(0, f"--mpi={launch.options['mpi']}")
        if launch.container:
            details.append(f"in a container ({launch.container})")
        threads = job.script.variables.get("OMP_NUM_THREADS")
        if threads and not launch.is_plain:
            details.append(f"OMP_NUM_THREADS={job.script.expand(threads)}")
        if details:
            yield f"  by {launch.kind}, {', '.join(details)}"


def _ranks(job: Job, launch: Launch) -> str:
    asked = launch.options.get("ntasks" if launch.kind == "srun" else "n")
    if asked is None or "SLURM_NTASKS" in asked:
        groups = launch.options.get("het-group")
        tasks = job.tasks if groups else job.components[0].tasks
        return plural(tasks, "rank") if launch.kind != "torchrun" else "ranks"
    return plural(int(asked), "rank") if asked.isdecimal() else f"{asked} ranks"


def _command(launch: Launch) -> str:
    text = shlex.join(launch.program) if launch.program else "nothing"
    return re.sub(r"'(\S*\$\S*)'", r"\1", text)


def _output(job: Job) -> Iterator[str]:
    default = "slurm-%A_%a.out" if "array" in job.options else "slurm-%j.out"
    yield _pattern(job, job.options.get("output", default))
    if "error" in job.options:
        yield f"errors: {_pattern(job, job.options['error'])}"
    again = "goes on in the same file" if job.options.get("open-mode") == "append" else "empties it"
    if job.script.has("requeue"):
        yield f"a job that runs again {again}"


def _pattern(job: Job, pattern: str) -> str:
    name = job.options.get("job-name", job.script.path.name)
    text = pattern.replace("%x", name)
    said = {"%j": "the job's number", "%A": "the array's number", "%a": "the task's number"}
    meant = [f"{key}: {what}" for key, what in said.items() if key in text]
    return f"{text} in the folder of sbatch{' (' + ', '.join(meant) + ')' if meant else ''}"


def _limit(job: Job) -> Iterator[str]:
    limit = time_limit(job.options)
    if limit is not None:
        yield duration_text(limit)
    else:
        yield "that of the partition" if "time" not in job.options else "none"


def _signal(job: Job) -> Iterator[str]:
    if job.signal is None:
        yield "none: ranks are not told that the time limit comes"
        return
    limit = time_limit(job.options)
    early = f"or up to {SIGNAL_EARLY_S} s sooner"
    yield f"{job.signal.name}, {duration_text(job.signal.seconds)} before the limit, {early}"
    if limit is not None:
        last = max(0, limit - job.signal.seconds)
        first = max(0, last - SIGNAL_EARLY_S)
        yield f"that is {duration_text(first)} to {duration_text(last)} after the start"
    whom = "to the batch shell alone, " if job.signal.to_batch else "to all that srun started"
    if job.signal.to_batch:
        has_trap = any(one.words[:1] == ["trap"] for one in job.script.commands)
        whom += "which passes it on by its trap" if has_trap else "which dies of it"
    yield whom


def _end(job: Job) -> Iterator[str]:
    if job.signal is not None:
        yield "before it: a training with wagma.preemption stops, writes a checkpoint, and has"
        yield "the job queued again, or ends with code 85"
    yield "what still runs gets TERM, and KILL after the site's KillWait"


def _again(job: Job) -> Iterator[str]:
    text = job.code
    if re.search(r"\bscontrol\s+requeue\b", text):
        this = "this task of the array" if "array" in job.options else "the job"
        also = ", or a new one that follows it" if "afterany" in text else ""
        yield f"code 85: the script queues {this} again{also}"
    else:
        yield "code 85: the script does nothing about it: only rank 0 can queue the job again"
    if job.script.has("requeue"):
        yield "a node that fails: Slurm queues the job again"
    else:
        yield "a node that fails: the job ends, unless the site's default is to queue it again"
