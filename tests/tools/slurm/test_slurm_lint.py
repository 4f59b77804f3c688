"""`python -m wagma slurm lint`: each mistake has a file that makes it, and one that does not."""

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from slurm_scripts import BODY, BY_SHELL, REQUEUE, changed, script

from wagma.cli import Ended, main
from wagma.slurm.checks import CHECKS, Finding, lint
from wagma.slurm.script import read
from wagma.slurm.templates import folder, names


class Case(NamedTuple):
    """A script with a mistake, one without, what its line has, and what the remedy has."""

    wrong: str
    right: str
    at: str
    remedy: str


PIPED = changed(BODY, "train.py", "train.py | tee log")
B = "B:USR2@120"
BY_MPIEXEC = changed(BY_SHELL, "srun --mpi=pmi2", "mpiexec -n 8")
FUNCTION = """
stop() {
    kill -USR2 "$job"
}
"""

# By code: the options of a wrong script, those of a right one, where, and the remedy.
OPTIONS: dict[str, tuple[dict[str, str], dict[str, str], str, str]] = {
    "bad-value": ({"ntasks": "0"}, {"ntasks": "8"}, "--ntasks=0", "a number from 1 on"),
    "no-time": ({"without": "time"}, {}, "--output", "--time="),
    "signal-at-start": ({"signal": "USR2@4000"}, {}, "--signal", "--signal=USR2@360"),
    "array-output": (
        {"array": "0-3", "output": "%x-%A.out"},
        {"array": "0-3", "output": "%x-%A-%a.out"},
        "--output",
        "%a",
    ),
    "no-signal": ({"without": "signal"}, {}, "--output", "--signal=USR2@120"),
    "bad-signal": ({"signal": "USR2:120"}, {}, "--signal", "--signal=USR2@120"),
    "usr1-nccl": (
        {"signal": "SIGUSR1@120", "gpus_per_task": "1"},
        {"gpus_per_task": "1"},
        "--signal",
        "--signal=SIGUSR2@120",
    ),
    "signal-name": ({"signal": "INT@90"}, {"signal": "TERM@90"}, "--signal", "--signal=USR2@90"),
    "no-requeue": ({"without": "requeue"}, {}, "--output", "#SBATCH --requeue"),
    "no-append": ({"without": "open-mode"}, {}, "--output", "--open-mode=append"),
}
# By code: what is replaced in the body, what by in a wrong script and in a right one, where, and
# the remedy.
BODIES = {
    "no-file": ("train.py", "tarin.py", "train.py", "srun", "in full"),
    "no-program": (" python train.py", "", " train", "srun", "python train.py"),
    "nested": (
        "python",
        "mpiexec python",
        "-n 1 mpiexec -n 8 python",
        "srun",
        "srun --mpi=pmi2 python",
    ),
    "no-launcher": (
        "srun --mpi=pmi2 ",
        "",
        "python prepare.py\nsrun --mpi=pmi2 ",
        "python train",
        "srun --mpi=pmi2 python train.py",
    ),
    "no-mpi": (" --mpi=pmi2", "", " -n 1", "srun", "--mpi=pmix"),
    "overcommit": ("pmi2", "pmi2 -n 16", "pmi2 -n 8", "srun", "HEAVY_YIELD=1"),
    "threads": (
        "export OMP_NUM_THREADS=1\n",
        "OMP_NUM_THREADS=1\n",
        "OMP_NUM_THREADS=1 ",
        "srun",
        "export OMP_NUM_THREADS",
    ),
    "kill-on-bad-exit": ("pmi2", "pmi2 -K", "pmi2", "srun", "--wait=60"),
    "no-wait": ("train.py", "train.py &", "train.py &\nwait", "srun", "wait for them"),
}

CASES = {
    **{
        code: Case(script(**wrong), script(**right), at, remedy)
        for code, (wrong, right, at, remedy) in OPTIONS.items()
    },
    **{
        code: Case(script(changed(BODY, old, wrong)), script(changed(BODY, old, right)), at, remedy)
        for code, (old, wrong, right, at, remedy) in BODIES.items()
    },
    "crlf": Case(script().replace("\n", "\r\n"), script(), "#!/bin/bash", "sed -i"),
    "shebang": Case(script().removeprefix("#!/bin/bash\n"), script(), "job-name", "#!/bin/bash"),
    "late-option": Case(
        changed(script(), "srun", "#SBATCH --exclusive\nsrun"),
        changed(script(), "#SBATCH --time", "\n# text\n#SBATCH --exclusive\n#SBATCH --time"),
        "--exclusive",
        "move the line up",
    ),
    "no-option": Case(
        changed(script(), "#SBATCH --time", "# SBATCH --exclusive\n#SBATCH --time"),
        changed(script(), "#SBATCH --time", "##SBATCH --exclusive\n#SBATCH --time"),
        "--exclusive",
        "#SBATCH",
    ),
    "gpu-unbound": Case(
        script(gres="gpu:4"),
        script(changed(BODY, "--mpi=pmi2", "--mpi=pmi2 --gpu-bind=per_task:1"), gres="gpu:4"),
        "srun",
        "--gpus-per-task=1",
    ),
    "srun-cores": Case(
        script(cpus_per_task="2"),
        script(changed(BODY, "pmi2", 'pmi2 -c "$SLURM_CPUS_PER_TASK"'), cpus_per_task="2"),
        "srun",
        "--cpus-per-task=",
    ),
    "pipe-status": Case(
        script(PIPED), script(f"set -euo pipefail\n{PIPED}"), "srun", "set -o pipefail"
    ),
    "signal-late": Case(
        changed(script(), "\nsrun", "\n# checkpoint-seconds: 150\nsrun"),
        changed(script(), "\nsrun", "\n# checkpoint-seconds: 50\nsrun"),
        "--signal",
        "--signal=USR2@330",
    ),
    "mpiexec-signal": Case(
        script(changed(BODY, "srun --mpi=pmi2", "mpiexec -n 8")),
        script(changed(BY_MPIEXEC, "kill -USR2", "kill -TERM"), signal=B),
        "mpiexec",
        "--signal=B:USR2@120",
    ),
    "mpiexec-usr2": Case(
        script(BY_MPIEXEC, signal=B),
        script(changed(BY_MPIEXEC, "-n 8", "--map-by core -n 8"), signal=B),
        "trap",
        "kill -TERM",
    ),
    "trap-never": Case(
        script(BY_SHELL),
        script(changed(BODY, "export", "trap true TERM\nexport")),
        "trap",
        "--signal=B:USR2@120",
    ),
    "exec": Case(
        script(changed(BODY, "srun", "exec srun"), signal=B),
        script(changed(BODY, "srun", "exec srun")),
        "exec srun",
        "train-cpu.sbatch",
    ),
    "no-trap": Case(script(signal=B), script(BY_SHELL, signal=B), "srun", "trap 'kill -USR2"),
    "trap-late": Case(
        script(changed(BY_SHELL, "train.py &", "train.py"), signal=B),
        script(BY_SHELL, signal=B),
        "srun",
        "in the background",
    ),
    "wait-once": Case(
        script(changed(BY_SHELL, 'while kill -0 "$job"; do wait "$job"; done', "wait"), signal=B),
        script(BY_SHELL, signal=B),
        "wait",
        "while kill -0",
    ),
    "trap-forward": Case(
        script(changed(BY_SHELL, 'kill -USR2 "$job"', "touch stop"), signal=B),
        script(FUNCTION + changed(BY_SHELL, "'kill -USR2 \"$job\"'", "stop"), signal="B:12@120"),
        "trap",
        "kill -USR2",
    ),
    "array-requeue": Case(
        script(BODY + REQUEUE, array="0-3"),
        script(
            BODY
            + changed(REQUEUE, '$SLURM_JOB_ID"\n', '${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"\n'),
            array="0-3",
        ),
        "scontrol",
        "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}",
    ),
    "requeue-cancelled": Case(
        script(BODY + '\nscontrol requeue "$SLURM_JOB_ID"\n'),
        script(BODY + REQUEUE),
        "scontrol",
        "squeue",
    ),
    "container": Case(
        script(changed(BODY, "python", "apptainer exec wagma.sif python")),
        script(changed(BODY, "python", "apptainer exec wagma.sif python") + REQUEUE),
        "apptainer",
        "status == 85",
    ),
}


@pytest.fixture(autouse=True)
def programs(tmp_path: Path) -> None:
    """Have the programs of the scripts beside them."""
    for name in ("train.py", "prepare.py", "a.py"):
        (tmp_path / name).touch()


def found(tmp_path: Path, text: str, **options: float) -> list[Finding]:
    path = tmp_path / "run.sbatch"
    path.write_bytes(text.encode())
    return lint(read(path), **options)


@pytest.mark.parametrize("code", CASES)
def test_a_mistake_is_found_where_it_is(tmp_path: Path, code: str) -> None:
    case = CASES[code]
    findings = found(tmp_path, case.wrong)
    assert [one.code for one in findings] == [code], findings
    assert case.at in case.wrong.splitlines()[findings[0].line - 1], findings
    assert case.remedy in findings[0].remedy
    assert found(tmp_path, case.right) == []


def test_every_code_has_a_case() -> None:
    codes = set()
    for path in Path(lint.__code__.co_filename).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding":
                texts = [one for one in ast.walk(node.args[1]) if isinstance(one, ast.Constant)]
                codes |= {text.value for text in texts}
    assert codes == set(CASES)


def test_the_page_lists_every_code() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/slurm.md").read_text()
    listed = page.partition("| it finds | codes |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z0-9]+(?:-[a-z0-9]+)*)`", listed)) == set(CASES)


ALSO: dict[str, tuple[Callable[[], str], list[str]]] = {
    "of several options on a line": (
        lambda: changed(script(), "#SBATCH --time=1:00:00", "#SBATCH -t 60 --exclusive"),
        [],
    ),
    "of a comment behind an option": (
        lambda: changed(script(), "--requeue", "--requeue  # it's allowed"),
        [],
    ),
    "of torchrun": (
        lambda: script(changed(BODY, "--mpi=pmi2 python", "torchrun --nnodes 1"), gres="gpu:4"),
        [],
    ),
    "of wagma's own commands": (
        lambda: changed(
            changed(script(without="signal"), "#SBATCH --requeue\n", ""),
            "python train.py",
            "python -m wagma bench skew",
        ),
        [],
    ),
    "of tools without ranks": (
        lambda: script("export OMP_NUM_THREADS=1\nsrun hostname\nsrun --mpi=pmi2 python a.py\n"),
        [],
    ),
    "of the site's default of --mpi": (
        lambda: script(
            changed(BODY, "--mpi=pmi2 ", "").replace("\n", "\nexport SLURM_MPI_TYPE=pmix\n", 1)
        ),
        [],
    ),
    "of a resubmitted array": (
        lambda: script(
            BODY + 'sbatch --dependency=afterany:$SLURM_JOB_ID "$0"\n', array="0-3", output="%j"
        ),
        ["array-requeue"],
    ),
    "of srun under mpiexec": (
        lambda: (
            script(changed(BODY, "srun --mpi=pmi2", "mpiexec -n 8 env A=1 srun"), without="signal")
            + "# lint: ignore no-signal\n"
        ),
        ["nested"],
    ),
    "of mpiexec under srun, with a limit": (
        lambda: script(changed(BODY, "python train.py", "timeout 60 mpiexec python train.py")),
        ["nested"],
    ),
    "of mpiexec under srun, with a priority": (
        lambda: script(changed(BODY, "python train.py", "nice mpiexec python train.py")),
        ["nested"],
    ),
    "of an argument that is called as a launcher": (
        lambda: script(changed(BODY, "train.py", "train.py mpiexec")),
        [],
    ),
    "of a heredoc": (lambda: script(BODY + "cat <<EOF\nsrun python it's &\nEOF\n"), []),
    "of an ignored code": (lambda: script(BODY, without="time") + "# lint: ignore no-time\n", []),
    "of USR1 without GPUs": (lambda: script(signal="USR1@120"), ["signal-name"]),
    "of an overcommitted job": (lambda: script(overcommit=None), ["overcommit"]),
    "of ranks that yield": (
        lambda: script("export MPIR_CVAR_ENABLE_HEAVY_YIELD=1" + BODY, overcommit=None),
        [],
    ),
}


@pytest.mark.parametrize("case", ALSO)
def test_what_is_found(tmp_path: Path, case: str) -> None:
    text, codes = ALSO[case]
    assert [one.code for one in found(tmp_path, text())] == codes


# What sbatch 22.05 refuses and takes, or the controller where sbatch leaves it to that.
@pytest.mark.parametrize(
    ("name", "refused", "taken"),
    [
        ("ntasks", ["0", "abc", "1k", ""], ["8"]),
        ("ntasks-per-node", ["x", "0"], ["2"]),
        ("cpus-per-task", ["0", "$CORES"], ["1"]),
        ("nodes", ["0", "3-2", "a", "2-b", "-1"], ["2", "2-4", "0-3", "1k", "1,3", "1-9:2"]),
        ("array", ["5-2", "0-a", "1-3:0", "1,2%0", "1-3%x", ""], ["7", "[0-9:3]", "1,4-7%2"]),
        ("time", ["foo", "1:2:3:4", "", "1h"], ["30", "1-12", "4:00:00", "infinite", "-1"]),
    ],
)
def test_values(tmp_path: Path, name: str, refused: list[str], taken: list[str]) -> None:
    options = {name: "", "output": "%x-%a.out", "without": "signal"}
    for value in [*refused, *taken]:
        findings = found(tmp_path, script(**{**options, name: value}))
        bad = [one for one in findings if one.code == "bad-value"]
        assert len(bad) == (value in refused), (value, findings)
        assert not bad or (f"--{name}={value}" in bad[0].text and f"--{name}=" in bad[0].remedy)


def test_values_of_srun(tmp_path: Path) -> None:
    text = script(changed(BODY, "srun", "srun --ntasks=0"))
    (bad,) = (one for one in found(tmp_path, text) if one.code == "bad-value")
    assert text.splitlines()[bad.line - 1].startswith("srun --ntasks=0")


@pytest.mark.parametrize("words", ["", " -n 4", " --mpi=pmi2 --label", " -n 4 > log"])
def test_a_launcher_without_a_program(tmp_path: Path, words: str) -> None:
    codes = [one.code for one in found(tmp_path, script(f"srun{words}\n"))]
    assert codes == ["no-program"]
    assert found(tmp_path, script(f"srun{words} hostname\n")) == []


@pytest.mark.parametrize("words", ["--mpi=list", "-V", "--help", "--unknown ./a.py", '"$@"'])
def test_a_launcher_that_needs_no_program(tmp_path: Path, words: str) -> None:
    found_ = found(tmp_path, script(f"export OMP_NUM_THREADS=1\nsrun --mpi=pmi2 {words}\n"))
    assert "no-program" not in [one.code for one in found_]


def test_a_checkpoint_that_takes_longer_than_is_left(tmp_path: Path) -> None:
    assert found(tmp_path, script(), checkpoint_s=100.0) == []
    assert [one.code for one in found(tmp_path, script(), checkpoint_s=130.0)] == ["signal-late"]


def test_sourced_files_are_read(tmp_path: Path) -> None:
    text = changed(script(), "export OMP_NUM_THREADS=1", "source set.sh").replace("pmi2", "$KIND")
    assert [one.code for one in found(tmp_path, text)] == ["no-file", "threads"]
    (tmp_path / "set.sh").write_text("KIND=pmix\nexport OMP_NUM_THREADS=1\n")
    assert found(tmp_path, text) == []


@pytest.mark.parametrize("name", names())
def test_own_templates_are_clean(name: str) -> None:
    assert lint(read(folder() / f"{name}.sbatch"), 60.0) == []


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.sbatch", tmp_path / "bad.sbatch"
    good.write_text(script())
    bad.write_text(script(without="time"))
    assert main(["slurm", "lint", str(good)]) == 0
    assert capsys.readouterr().out == "1 file: nothing found\n"
    assert main(["slurm", "lint", str(good), str(bad)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{bad}:8: there is no time limit")
    assert lines[1] == "    -> #SBATCH --time=04:00:00"
    assert lines[2:] == ["2 files: 1 mistake"]
    assert main(["slurm", "lint", str(bad), "--json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["file"], row["line"], row["code"]) == (str(bad), 8, "no-time")
    assert main(["slurm", "lint", str(good), "--json", "--checkpoint-seconds", "150"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["code"] == "signal-late"


def test_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "binary").write_bytes(b"\x7fELF\0")
    for path, said in (
        (tmp_path / "none", "cannot be read: No such file"),
        (tmp_path, "cannot be read: Is a directory"),
        (tmp_path / "binary", "is no text"),
    ):
        with pytest.raises(Ended) as end:
            main(["slurm", "lint", str(path)])
        assert end.value.code == 2
        assert said in capsys.readouterr().err


def test_all_checks_are_run() -> None:
    assert len(set(CHECKS)) == len(CHECKS) == 18


def test_a_short_job_may_be_signalled_at_its_start(tmp_path: Path) -> None:
    path = tmp_path / "short.sbatch"
    path.write_text(script(time="1", signal="B:USR2@15"))
    (finding,) = [one for one in lint(read(path)) if one.code == "signal-at-start"]
    assert finding.remedy == "a longer --time"
    path.write_text(script(time="2", signal="B:USR2@15"))
    assert "signal-at-start" not in {one.code for one in lint(read(path))}
