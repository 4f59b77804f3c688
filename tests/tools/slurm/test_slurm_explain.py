"""`python -m wagma slurm explain`: what a script would run where."""

from pathlib import Path

import pytest
from slurm_scripts import BODY, script

from wagma.cli import Ended, main
from wagma.slurm.explain import explain
from wagma.slurm.options import mpiexec_words, read_words
from wagma.slurm.plan import array_tasks, components
from wagma.slurm.script import read
from wagma.slurm.templates import folder
from wagma.units import duration_text, parse_limit

SEEDS = """\
{path}: an array of 5 jobs (0-4) named seeds

  where         1 node with 8 tasks; 2 cores for each task, 16 on a node
  runs          line 41: 8 ranks of python slurm/train.py --seed $SLURM_ARRAY_TASK_ID \
--checkpoints checkpoints/$SLURM_JOB_NAME-$SLURM_ARRAY_TASK_ID
                  by srun, --mpi=pmi2, --cpu-bind=cores, \
OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK - messages))
  output        seeds-%A-%a.out in the folder of sbatch (%A: the array's number, \
%a: the task's number)
                a job that runs again goes on in the same file
  time limit    4 h
  signal        USR2, 2 min before the limit, or up to 60 s sooner
                that is 3 h 57 min to 3 h 58 min after the start
                to the batch shell alone, which passes it on by its trap
  at the limit  before it: a training with wagma.preemption stops, writes a checkpoint, and has
                the job queued again, or ends with code 85
                what still runs gets TERM, and KILL after the site's KillWait
  again         code 85: the script queues this task of the array again, or a new one that \
follows it
                a node that fails: Slurm queues the job again
"""


def explained(tmp_path: Path, text: str) -> str:
    (tmp_path / "train.py").touch()
    path = tmp_path / "run.sbatch"
    path.write_text(text)
    return explain(read(path))


def test_a_whole_text(capsys: pytest.CaptureFixture[str]) -> None:
    path = folder() / "train-seeds.sbatch"
    assert main(["slurm", "explain", str(path)]) == 0
    assert capsys.readouterr().out == SEEDS.format(path=path)


def test_groups_of_unlike_nodes() -> None:
    text = explain(read(folder() / "train-het.sbatch"))
    assert "group 0: 1 node with 8 tasks" in text
    assert "group 1: 1 node with 4 tasks" in text
    assert "12 ranks of python slurm/train.py --algorithm cannikin" in text


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    text = explained(tmp_path, "#!/bin/bash\n#SBATCH -n 4\n" + BODY)
    assert "4 tasks on as many nodes as they need" in text
    assert "that of the partition" in text
    assert "none: ranks are not told" in text
    assert "the script does nothing about it" in text
    assert "the job ends, unless the site's default" in text
    assert "lint finds 4 mistakes: python -m wagma slurm lint" in text


def test_gpus_containers_and_other_launchers(tmp_path: Path) -> None:
    body = "srun -n2 --container-image=x python a.py\nmpiexec -n 3 -genv A 1 python b.py 2> log\n"
    text = explained(
        tmp_path, script(body, gpus_per_node="a100:4", partition="big", exclusive=None)
    )
    assert (
        "2 nodes with 4 tasks each: 8 tasks; 1 core for each task, 4 on a node; GPUs: 4 per" in text
    )
    assert "partition big" in text
    assert "whole nodes" in text
    assert "2 ranks of python a.py" in text
    assert "in a container (srun --container-image)" in text
    assert "3 ranks of python b.py\n" in text


def test_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Ended) as end:
        main(["slurm", "explain", str(tmp_path / "none")])
    assert end.value.code == 2
    assert "cannot be read" in capsys.readouterr().err
    assert "one process" in explained(tmp_path, "")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("30", 1800), ("30:20", 1820), ("1:02:03", 3723), ("2-0", 172800), ("1-2:3", 93780)),
        *(("0-0:0:9", 9), ("UNLIMITED", None), ("1:2:3:4", None), ("", None)),
    ],
)
def test_times(text: str, seconds: int | None) -> None:
    assert parse_limit(text) == seconds


def test_times_as_text() -> None:
    assert [duration_text(one) for one in (90, 120, 5400, 90061)] == [
        *("90 s", "2 min", "1 h 30 min", "1 d 1 h 1 min 1 s")
    ]


@pytest.mark.parametrize(
    ("text", "tasks"),
    [("0-4", (5, None)), ("0-9:3%2", (4, 2)), ("1,3,7-8", (4, None)), ("x", None), ("", None)],
)
def test_arrays(text: str, tasks: tuple[int, int | None] | None) -> None:
    assert array_tasks(text) == tasks


def test_words_of_launchers() -> None:
    options, program = read_words(
        ["-N2", "-n", "4", "--exclusive", "-l", "--mpi", "pmix", "a", "-n"]
    )
    assert options == {"nodes": "2", "ntasks": "4", "exclusive": "", "l": "", "mpi": "pmix"}
    assert program == ["a", "-n"]
    options, program = mpiexec_words(["-np", "4", "--mca", "a", "b", "--oversubscribe", "x", "-n"])
    assert (options["n"], options["mca"], program) == ("4", "a b", ["x", "-n"])


@pytest.mark.parametrize(
    ("options", "tasks", "nodes"),
    [
        ("-N 2-4 --ntasks-per-node=3", 6, 2),
        ("-n 7", 7, None),
        ("-n 8 --ntasks-per-node=4", 8, 2),
        ("--gpus=4 --ntasks-per-gpu=2", 8, None),
        ("-N 2 --gres=gpu:h100:4 --ntasks-per-gpu=1", 8, 2),
        ("", 1, None),
    ],
)
def test_tasks_of_a_job(tmp_path: Path, options: str, tasks: int, nodes: int | None) -> None:
    path = tmp_path / "run.sbatch"
    path.write_text(f"#!/bin/bash\n#SBATCH {options}\n")
    (one,) = components(read(path))
    assert (one.tasks, one.nodes) == (tasks, nodes)
