"""`python -m wagma slurm lint`: files that a batch script sources or runs have to be there."""

from pathlib import Path

import pytest
from slurm_scripts import BODY, REQUEUE, changed, script

from wagma.slurm.checks import lint
from wagma.slurm.script import read


def missing(folder: Path, text: str) -> list[str]:
    """What lint says of files; it may say nothing else."""
    path = folder / "run.sbatch"
    path.write_text(text)
    findings = lint(read(path))
    assert {one.code for one in findings} <= {"no-file"}, findings
    return [one.text.partition(" is not there")[0] for one in findings]


def running(program: str) -> str:
    return script(changed(BODY, "python train.py", program))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (running("python train.py"), "train.py"),
        (running("python -u -X dev train.py --fast"), "train.py"),
        (running("/opt/env/bin/python3.12 train.py"), "train.py"),
        (running("python -O train.py"), "train.py"),
        (running("python -Wdefault train.py"), "train.py"),
        (running("bash -euo pipefail train.py"), "train.py"),
        (running("./train --fast"), "./train"),
        (running("bash /none/train.sh"), "/none/train.sh"),
        (script("source set.sh\n" + changed(BODY, "python train.py", "train")), "set.sh"),
        (script("cd runs\n. /none/set.sh\n" + changed(BODY, "python ", "")), "/none/set.sh"),
        (script(changed(BODY, "srun", "python prepare.py\ntrain=1\nsrun"))
         + "# not: train.py\n", "prepare.py"),
    ],
)  # fmt: skip
def test_a_missing_file_is_found_until_it_is_there(tmp_path: Path, text: str, name: str) -> None:
    others = {"train.py", "train", "prepare.py"} - {name.removeprefix("./")}
    for other in others:
        (tmp_path / other).touch()
    assert missing(tmp_path, text) == [name]
    if not name.startswith("/"):
        (tmp_path / name).touch()
        assert missing(tmp_path, text) == []


def test_a_file_may_lie_here_or_above_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, folder = tmp_path / "here", tmp_path / "clone/slurm"
    here.mkdir()
    folder.mkdir(parents=True)
    monkeypatch.chdir(here)
    assert missing(folder, running("python slurm/train.py")) == ["slurm/train.py"]
    (folder / "train.py").touch()
    assert missing(folder, running("python slurm/train.py")) == []
    assert missing(folder, running("python mine.py")) == ["mine.py"]
    (here / "mine.py").touch()
    assert missing(folder, running("python mine.py")) == []


@pytest.mark.parametrize(
    "text",
    [
        running("train"),
        running("python -u -m train"),
        running("python -c 1"),
        running("python -um train"),
        running("python <<EOF\nprint()\nEOF"),
        running("python < /none/train.py"),
        script("python <<EOF\nprint()\nEOF\n" + changed(BODY, "python ", "")),
        running("bash -lc 'python train.py'"),
        running('"$PROGRAM"'),
        running('python "$HOME/train.py"'),
        running("apptainer exec a.sif python /app/train.py") + REQUEUE,
        script('source "${VENV:-.venv}/bin/activate"\n' + changed(BODY, "python ", "")),
        script("[[ -f set.sh ]] && source set.sh\n" + changed(BODY, "python ", "")),
        script("cd ${HOME}/runs\n" + BODY),
        script(chdir="/runs"),
        script("cp templates/train.py train.py\n" + BODY),
    ],
)
def test_what_only_the_job_knows_is_left_to_it(tmp_path: Path, text: str) -> None:
    assert missing(tmp_path, text) == []
