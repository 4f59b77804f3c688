"""`python -m wagma doctor` as users start it: under mpiexec, alone, and where things are wrong."""

import json
import os
import re
import shlex
import subprocess
import sys
import uuid
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from launched import clean_environment

pytestmark = pytest.mark.launch

LIVENESS_S = 120.0
COMMAND = [sys.executable, "-m", "wagma", "doctor"]
# Without what this process's launcher has set; Open MPI's may run as root if it may here.
CLEAN = clean_environment() | {
    name: value for name, value in os.environ.items() if name.startswith("OMPI_ALLOW_RUN_AS_ROOT")
}


def doctor(ranks: int, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command on that many ranks, 0: without a launcher."""
    mpiexec = os.environ.get("WAGMA_TEST_MPIEXEC", str(Path(sys.executable).with_name("mpiexec")))
    launcher = [*shlex.split(mpiexec), "-n", str(ranks)] if ranks else []
    return subprocess.run(
        [*launcher, *COMMAND, *options],
        env={**CLEAN, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=LIVENESS_S,
        check=False,
    )


@cache
def other_size_variable() -> str:
    """What the mpiexec of an MPI that mpi4py does not load would set."""
    code = "from mpi4py import MPI; print(MPI.get_vendor()[0])"
    family = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=LIVENESS_S
    ).stdout.strip()
    return "PMI_SIZE" if family == "Open MPI" else "OMPI_COMM_WORLD_SIZE"


def lines(done: subprocess.CompletedProcess[str], level: str, topic: str) -> list[str]:
    """Texts of findings, each with its remedy."""
    joined = re.sub(r"\n +-> ", " -> ", done.stdout)
    return re.findall(rf"^  {level} +{topic} +(.*)$", joined, re.MULTILINE)


@pytest.mark.parametrize("ranks", [0, 1, 2, 3])
def test_ranks_that_work(ranks: int) -> None:
    done = doctor(ranks)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{ranks or 1} rank")
    assert done.stdout.count("doctor: 0 problems") == 1
    (sums,) = lines(done, "ok", "trial")
    assert f"3 sums over {ranks or 1} rank" in sums


def report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded


@pytest.mark.long
def test_the_json_of_two_ranks_is_one_object() -> None:
    done = doctor(2, "--json")
    assert done.returncode == 0, done.stderr
    facts = report(done)["facts"]
    assert [rank["rank"] for rank in facts["ranks"]] == [0, 1]
    assert facts["launcher"] == "MPI"


@pytest.mark.long
def test_singletons_of_another_mpiexec_say_so() -> None:
    done = doctor(0, **{other_size_variable(): "4"})
    assert done.returncode == 1, done.stdout
    (found,) = lines(done, "problem", "launch")
    assert "started 4 ranks, but mpi4py loads" in found
    assert f"launcher: {Path(sys.executable).with_name('mpiexec')}" in found
    assert done.stderr == ""


@pytest.mark.long
def test_of_singletons_one_reports() -> None:
    rank = {"PMI_SIZE": "PMI_RANK", "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK"}
    size = other_size_variable()
    done = doctor(0, **{size: "4", rank[size]: "2"})
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.long
def test_an_allocation_of_slurm_in_which_srun_started_nothing() -> None:
    done = doctor(0, SLURM_JOB_ID="7", SLURM_NTASKS="4")
    assert done.returncode == 1, done.stdout
    (found,) = lines(done, "problem", "launch")
    assert "for 4 tasks (SLURM_NTASKS)" in found
    assert "--mpi=pmi2" in found


@pytest.mark.long
def test_singletons_of_srun() -> None:
    done = doctor(
        0, SLURM_JOB_ID="7", SLURM_NTASKS="4", SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS="4"
    )
    assert done.returncode == 1, done.stdout
    (found,) = lines(done, "problem", "launch")
    assert "SLURM_STEP_NUM_TASKS is 4" in found
    assert "--mpi=pmix" in found


def test_without_an_mpi_library_the_rest_is_examined() -> None:
    done = doctor(0, MPI4PY_LIBMPI="/nonexistent/libmpi.so")
    assert done.returncode == 1, done.stdout
    (found,) = lines(done, "problem", "MPI")
    assert "/nonexistent/libmpi.so" in found
    assert "python -m pip install mpich" in found
    assert len(lines(done, "ok", "trial")) == 1
    assert done.stdout.endswith("doctor: 1 problem, 0 warnings\n")


@pytest.mark.long
def test_a_wrong_option_in_the_environment() -> None:
    done = doctor(2, WAGMA_TRANSPORT="pigeon")
    assert done.returncode == 1, done.stdout
    (found,) = lines(done, "problem", "environment")
    assert "WAGMA_TRANSPORT='pigeon' in the environment: transport='pigeon' must be" in found


def test_a_misspelled_variable_is_a_warning() -> None:
    done = doctor(0, WAGMA_SHM_LIMITS="1000000000")
    assert done.returncode == 0, done.stdout
    (found,) = lines(done, "warning", "environment")
    assert "-> WAGMA_SHM_LIMIT is one" in found


@pytest.mark.long
def test_a_handle_that_does_not_fit() -> None:
    done = doctor(0, "--bytes", "100TiB")
    assert done.returncode == 1, done.stdout
    (found,) = lines(done, "problem", "memory")
    assert "needs 100 TiB" in found
    assert "--shm-size" in found


@pytest.mark.long
@pytest.mark.parametrize("ranks_may_write", [True, False])
def test_another_shared_memory(ranks_may_write: bool) -> None:
    """A mount of its own, for which the process is root in a namespace of its own."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    mode = "rw" if ranks_may_write else "ro"
    mount = f"mount -t tmpfs -o size=64m,{mode} tmpfs /dev/shm"
    if not _works([*unshare, "sh", "-c", mount]):
        pytest.skip("namespaces are not to be had here")
    done = subprocess.run(
        [*unshare, "sh", "-c", f"{mount} && exec {shlex.join(COMMAND)}"],
        env=CLEAN,
        capture_output=True,
        text=True,
        timeout=LIVENESS_S,
        check=False,
    )
    if ranks_may_write:
        assert done.returncode == 0, done.stdout
        (found,) = lines(done, "warning", "memory")
        assert "64 MiB is what containers get by default" in found
        assert "--shm-size" in found
    else:  # MPI may abort, or not
        assert done.returncode != 0
        assert "/dev/shm cannot be used on rank 0: Read-only file system" in done.stderr


@pytest.mark.long
def test_a_shared_memory_too_small_for_mpi_is_told_once_before_it_starts() -> None:
    """MPI may crash there or not; whether it can at all depends on its version."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    mount = "mount -t tmpfs -o size=1m tmpfs /dev/shm"
    if not _works([*unshare, "sh", "-c", mount]):
        pytest.skip("namespaces are not to be had here")
    mpiexec = os.environ.get("WAGMA_TEST_MPIEXEC", str(Path(sys.executable).with_name("mpiexec")))
    ranks = [*shlex.split(mpiexec), "-n", "2", *COMMAND]
    done = subprocess.run(
        [*unshare, "sh", "-c", f"{mount} && exec {shlex.join(ranks)}"],
        env=CLEAN,
        capture_output=True,
        text=True,
        timeout=LIVENESS_S,
        check=False,
    )
    assert done.stderr.count("/dev/shm has only 1 MiB free: MPI may crash") == 1, done.stderr
    assert "--shm-size" in done.stderr
    if "Bus error" in done.stdout.partition("EXIT STRING")[2]:
        assert "Fatal Python error: Bus error" in done.stderr
        assert "in _start_mpi" in done.stderr


def _works(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=LIVENESS_S).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.long
def test_one_core_for_all() -> None:
    """The launcher's own binding is overridden: ranks inherit nothing but what is set here."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core: there is no other to be bound to")
    core = min(os.sched_getaffinity(0))
    binding = f"import os, runpy; os.sched_setaffinity(0, {{{core}}}); "
    run = (
        "import sys; sys.argv = ['wagma', 'doctor']; runpy.run_module('wagma', run_name='__main__')"
    )
    mpiexec = os.environ.get("WAGMA_TEST_MPIEXEC", str(Path(sys.executable).with_name("mpiexec")))
    done = subprocess.run(
        [*shlex.split(mpiexec), "-n", "2", sys.executable, "-c", binding + run],
        env=CLEAN,
        capture_output=True,
        text=True,
        timeout=LIVENESS_S,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    (found,) = lines(done, "problem", "cores")
    assert f"all 2 ranks are bound to core {core}" in found


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bytes", "much"], "'much' is no size"),
        (["--bytes", "0"], "'0' has no bytes: pass the size of the arrays"),
        (["--bytes", "0.5"], "'0.5' is no whole number of bytes"),
        (["--quorum", "some"], "'some' must be a number"),
        (["--quorum", "3"], "3 is more than the 2 ranks of a node"),
        (["--timeout", "0"], "'0' is out of range: write more than 0"),
        (["--timeout", "12"], "'12' has no unit: write 12ms or 12s"),
    ],
)
def test_wrong_usage_is_told_once(options: list[str], message: str) -> None:
    done = doctor(2, *options)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count(message) == 1


def test_ranks_of_torchrun_need_no_mpi() -> None:
    environment = {
        **CLEAN,
        "OMP_NUM_THREADS": "1",
        "MPI4PY_LIBMPI": "/nonexistent/libmpi.so",
        "WORLD_SIZE": "2",
        "WAGMA_JOB": str(uuid.uuid4()),
    }
    ranks = [
        subprocess.Popen(
            COMMAND, env={**environment, "RANK": rank}, stdout=subprocess.PIPE, text=True
        )
        for rank in "01"
    ]
    outputs = [rank.communicate(timeout=LIVENESS_S)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert "3 sums over 2 ranks" in outputs[0]
    assert outputs[1] == ""


@pytest.mark.long
def test_without_the_engine_one_rank_of_torchrun_reports(tmp_path: Path) -> None:
    missing = 'import sys\nsys.modules["wagma.collectives._engine"] = None\n'
    (tmp_path / "sitecustomize.py").write_text(missing)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    job = {"WORLD_SIZE": "2", "WAGMA_JOB": str(uuid.uuid4()), "PYTHONPATH": path}
    first, second = (doctor(0, RANK=rank, **job) for rank in "01")
    assert (first.returncode, second.returncode) == (1, 1)
    (found,) = lines(first, "problem", "launch")
    assert "WORLD_SIZE is 2, but without the engine the ranks cannot meet" in found
    assert len(lines(first, "problem", "engine")) == 1
    assert second.stdout == ""


@pytest.mark.long
def test_mpi_starts_as_mpi4py_is_configured() -> None:
    done = doctor(0, MPI4PY_RC_THREADS="0")
    assert done.returncode == 0, done.stderr
    assert "thread level SINGLE" in lines(done, "ok", "MPI")[0]


def test_a_rank_that_does_not_come_is_named() -> None:
    job = str(uuid.uuid4())
    done = doctor(0, "--timeout", "20s", RANK="0", WORLD_SIZE="2", WAGMA_JOB=job)
    assert done.returncode == 1, done.stdout
    (found,) = lines(done, "problem", "launch")
    assert "for rank 1, which has not come (timeout 10 s)" in found
    assert "unset RANK and WORLD_SIZE" in found
    assert "3 sums over 1 rank" in done.stdout


@pytest.mark.long
def test_what_another_job_left_in_the_environment_is_reported_under_mpiexec() -> None:
    left = {"RANK": "0", "WORLD_SIZE": "4", "MASTER_PORT": "29500", "WAGMA_JOB": str(uuid.uuid4())}
    done = doctor(1, "--json", "--timeout", "20s", **left)
    assert done.returncode == 1, done.stderr
    (found,) = (f for f in report(done)["findings"] if f["topic"] == "launch")
    assert found["level"] == "problem"
    assert "for ranks 1-3, which have not come (timeout 10 s)" in found["text"]


@pytest.mark.long
def test_a_rank_that_is_alone_by_mistake_and_does_not_report_says_why() -> None:
    job = str(uuid.uuid4())
    done = doctor(0, "--timeout", "16s", RANK="1", WORLD_SIZE="2", WAGMA_JOB=job)
    assert (done.returncode, done.stdout) == (1, "")
    assert "rank 1: " in done.stderr
    assert "rank 0" in done.stderr
    assert "-> if this is no job of torchrun's, unset RANK and WORLD_SIZE" in done.stderr


@pytest.mark.long
def test_ranks_that_the_environment_describes_wrongly() -> None:
    outputs = [doctor(0, RANK=rank, WORLD_SIZE="2", LOCAL_WORLD_SIZE="1") for rank in "01"]
    assert [done.returncode for done in outputs] == [1, 1]
    (found,) = lines(outputs[0], "problem", "launch")
    assert "the job's ranks are on several nodes" in found
    assert outputs[1].stdout == ""


@pytest.mark.long
def test_an_mpi_that_hangs_is_given_up(tmp_path: Path) -> None:
    """What hangs is named by its stack, also if it holds the GIL: a sleep in C, through PyDLL."""
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py/__init__.py").write_text("def rc(**_): pass\n")
    (tmp_path / "mpi4py/MPI.py").write_text("import ctypes\nctypes.PyDLL(None).sleep(600)\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = doctor(0, "--timeout", "20s", PYTHONPATH=path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert str(tmp_path / "mpi4py/MPI.py") in done.stderr


def test_help_is_printed_once() -> None:
    done = doctor(2, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("usage: python -m wagma doctor") == 1
    assert "--quorum K" in done.stdout


def test_ranks_of_torchrun_are_warned_of_the_world_of_mpi() -> None:
    job = {"TORCHELASTIC_RUN_ID": str(uuid.uuid4()), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            COMMAND, env={**CLEAN, **job, "RANK": rank}, stdout=subprocess.PIPE, text=True
        )
        for rank in "01"
    ]
    outputs = [rank.communicate(timeout=LIVENESS_S)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert "2 ranks met through the variables that torchrun sets" in outputs[0]
    assert "programs that pass it as comm are refused" in outputs[0]
    assert 'pass comm="auto"' in outputs[0]
    assert outputs[1] == ""
