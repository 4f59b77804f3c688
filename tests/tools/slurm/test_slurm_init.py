"""`python -m wagma slurm init`: scripts from the templates, and the templates themselves."""

import re
import subprocess
from pathlib import Path

import pytest

from wagma.cli import Ended, main
from wagma.slurm.checks import lint
from wagma.slurm.checks.findings import Job
from wagma.slurm.script import Script, read
from wagma.slurm.templates import MPIS, folder, names

TRAININGS = [name for name in names() if name.startswith("train")]
END = re.compile(r'^"\$\{ranks\[@\]\}".*', re.MULTILINE | re.DOTALL)


def written(*words: str, output: str = "run.sbatch") -> Script:
    assert main(["slurm", "init", *words, "-o", output]) == 0
    return read(Path(output))


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(Ended) as end:
        main(["slurm", "init", *words])
    assert end.value.code == 2
    return capsys.readouterr().err


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", names())
def test_a_template_is_short_and_bash(name: str) -> None:
    path = folder() / f"{name}.sbatch"
    text = path.read_text()
    assert len(text.splitlines()) < 60
    subprocess.run(["bash", "-n", str(path)], check=True, timeout=10)
    assert re.findall(r"^# (\d)\. ", text, re.MULTILINE) == ["1", "2"], "two lines are to be set"
    assert f"sbatch slurm/{name}.sbatch" in text or name == "bench"


def test_templates_with_a_shell_between_end_alike() -> None:
    """What passes signals on and queues again is the same; arrays differ in what is queued."""
    ends = {
        END.search((folder() / f"{name}.sbatch").read_text())[0].replace('"-$tell"', "-USR2")  # type: ignore[index]
        for name in ("train-cpu", "train-gpu", "train-het")
    }
    assert len(ends) == 1


@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("name", names())
def test_what_is_written_is_clean_and_bash(name: str, mpi: str) -> None:
    script = written(name, "--mpi", mpi, "--time", "2-12", "--name", "mine")
    assert lint(script) == []
    subprocess.run(["bash", "-n", "run.sbatch"], check=True, timeout=10)
    assert "slurm/" not in script.code, "it needs no file of the sources"
    assert script.options()["job-name"] == "mine"
    assert script.options()["time"] == "2-12"
    kind = {"openmpi": "pmix", "cray": "cray_shasta"}.get(mpi, "pmi2")
    assert {one.options["mpi"].rstrip("}").rpartition("-")[2] for one in Job(script).ranks} == {
        kind
    }


def test_numbers_are_those_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--nodes 3 --tasks-per-node 6 --cpus-per-task 4 --gpus-per-task 2 --time 90"
    more = "--signal-seconds 300 --partition gpu --account me --script mine.py --venv /opt/env"
    script = written("train-gpu", *words.split(), *more.split())
    assert capsys.readouterr().out.startswith("run.sbatch written. Check the numbered lines")
    options = script.options()
    assert Job(script).tasks == 18
    assert [options[name] for name in ("cpus-per-task", "gpus-per-task", "time", "signal")] == [
        *("4", "2", "90", "B:USR2@300")
    ]
    assert (options["partition"], options["account"]) == ("gpu", "me")
    assert script.launches[0].program[:2] == ["python", "mine.py"]
    assert 'source "/opt/env/bin/activate"' in script.text
    assert not Path("train.py").exists()
    assert "#SBATCH --nodes=3\n" in script.text


def test_cores_are_those_of_both_groups() -> None:
    script = written("train-het", "--cpus-per-task", "4", "--tasks-per-node", "2")
    assert [(one.tasks, one.cores) for one in Job(script).components] == [(2, 4), (4, 4)]


def test_mpiexec_in_place_of_srun() -> None:
    script = written("train-seeds", "--launcher", "mpiexec", "--array", "0-9%3")
    (launch,) = script.launches
    assert launch.kind == "mpiexec"
    assert launch.options["bind-to"].startswith("core:")
    assert launch.program[:2] == ["python", "train.py"]
    assert lint(script) == []


def test_the_example_is_written_beside_it() -> None:
    Path("jobs").mkdir()
    script = written(output="jobs/first.sbatch")
    assert script.launches[0].program[1] == "jobs/train.py"
    assert Path("jobs/train.py").read_text() == (folder() / "train.py").read_text()
    assert "sbatch jobs/first.sbatch" in script.text


@pytest.mark.parametrize("name", ["my train.py", "$(touch ran).py"])
def test_names_that_the_shell_would_take_apart_are_quoted(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).touch()
    script = written("--script", name, output="my run.sbatch")
    assert script.launches[0].program[1] == name
    assert "sbatch 'my run.sbatch'" in script.text
    assert "sbatch 'my run.sbatch'\n" in capsys.readouterr().out
    (line,) = re.findall(r"^program=.*", script.text, re.MULTILINE)
    show = f'SLURM_JOB_NAME=job; {line}; printf "%s\\n" "${{program[@]}}"'
    said = subprocess.check_output(["bash", "-c", show], text=True, timeout=10)
    assert said.splitlines()[:3] == ["python", name, "--checkpoints"]
    assert not Path("ran").exists()


def test_nothing_is_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text("mine")
    assert "train.py would be overwritten: --force" in refused(capsys)
    assert Path("train.py").read_text() == "mine"
    assert not Path("train-cpu.sbatch").exists()
    assert main(["slurm", "init", "--script", "train.py"]) == 0
    assert "train-cpu.sbatch would be overwritten" in refused(capsys, "--script", "train.py")
    assert main(["slurm", "init", "--force"]) == 0
    assert Path("train.py").read_text() != "mine"
    assert main(["slurm", "init", "-o", "second.sbatch"]) == 0, "the same example is no obstacle"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train-cpu --gpus-per-task 1", "train-cpu has no --gpus-per-task: .* are train-gpu"),
        ("train-cpu --array 0-3", "templates that have it are bench-sweep, train-seeds"),
        ("train-seeds --array some", "--array some: write 0-9"),
        ("train-cpu --time soon", "--time soon: write minutes"),
        ("train-cpu --nodes 0", "0"),
        ("bench --signal-seconds 9", "bench has no signal"),
        ("bench --script train.py", "bench runs no script"),
        ("train-gpu --launcher mpiexec", "needs srun; train-cpu, train-seeds can do"),
        ("train-cpu --launcher mpiexec --mpi cray", "Cray MPICH has none"),
        ("train-cpu -o none/x.sbatch --script x", "cannot be written: No such file"),
        ("train-cpu --partition a\tb", "without blanks and quotes"),
        ("train-cpu --name a/b", "--name a/b: it names files and folders"),
        ("some", "invalid choice"),
    ],
)
def test_what_is_refused(capsys: pytest.CaptureFixture[str], words: str, said: str) -> None:
    assert re.search(said, refused(capsys, *words.split(" ")))
    assert not list(Path().iterdir())


@pytest.mark.parametrize("mpi", MPIS)
def test_an_environment_gives_what_templates_need(mpi: str, tmp_path: Path) -> None:
    """Sourced by bash, with a Slurm job's variables."""
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/activate").touch()
    environment = {
        "SLURM_NTASKS": "6",
        "SLURM_CPUS_PER_TASK": "2",
        "I_MPI_ROOT": "/opt/intel",
        "CRAY_MPICH_DIR": "/opt/cray",
        "PATH": "/usr/bin:/bin",
    }
    lines = (
        f'set -euo pipefail; source {folder()}/env/{mpi}.sh; echo "$MPI_TYPE" "${{MPIEXEC[@]-}}"'
    )
    done = subprocess.run(
        ["bash", "-c", lines],
        env=environment,
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    )
    kind, *command = done.stdout.split()
    assert kind == {"openmpi": "pmix", "cray": "cray_shasta"}.get(mpi, "pmi2")
    assert command == [] if mpi == "cray" else "-n 6" in " ".join(command)


def test_what_is_missing_or_does_not_fit_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    written("--script", "my.py", "--signal-seconds", "3600", "--time", "60", "--name", "mine")
    out = capsys.readouterr().out
    assert "my.py is not there" in out
    assert "--script" in out
    assert ".venv/bin/activate is not there" in out
    assert "signal-at-start" in out
    assert "checkpoints/mine" in Path("run.sbatch").read_text().split("--nodes")[0]
    activate = Path("env/bin/activate")
    activate.parent.mkdir(parents=True)
    activate.touch()
    written("--venv", "env", output="other.sbatch")
    assert "is not there" not in capsys.readouterr().out


def test_a_refusal_names_the_option_as_it_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--name 'a b'" in refused(capsys, "--name", "a b")
