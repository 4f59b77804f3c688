"""`python -m wagma bench` where nothing can be measured: all ranks end, and it is said once."""

import subprocess
import sys
from pathlib import Path

import pytest
from bench_command import COMMAND, FEW, Ended, command, one_after_the_other, rows
from under_mpiexec import complete, in_turn, unlike

pytestmark = [pytest.mark.launch, pytest.mark.long]

# {}: a file of this name is no trace, and one that ends with .npz is not there.
WRONG = {
    "unknown pattern": (("--arrival", "sideways:1ms"), "unknown pattern 'sideways'"),
    "no multiple": (("-m", "6:12"), "6 is no multiple of 4 bytes"),
    "trace": (("--arrival", "trace:{}"), "line 2"),
    "quorum": (("--quorum", "3"), "2 ranks reduce together"),
    "samples": (("--samples", "{}/x"), "cannot be written"),
    "carry": (("-c", "--quorum", "1", "--late", "carry", "-T", "float16"), "only rounded"),
    "too large": (("-m", "65536G:65536G", "--samples", "{}.npz"), "of /dev/shm"),
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("trace") / "trace.csv"
    file.write_text("step,rank,seconds\n0,zero,1\n")
    return file


@pytest.fixture(scope="module")
def unmeasured(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Each of WRONG."""
    options = {
        case: ("allreduce", *(word.format(trace) for word in words))
        for case, (words, _) in WRONG.items()
    }
    return one_after_the_other(tmp_path_factory, options)


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_measured_is_said_once(case: str, trace: Path, unmeasured: Ended) -> None:
    _, message = WRONG[case]
    done = unmeasured[case]
    assert done.returncode == 2, done.stderr
    assert rows(done.stdout) == {}
    assert not Path(f"{trace}.npz").exists()  # that of --samples
    said = done.stdout + done.stderr  # launchers say things, too
    assert said.count("python -m wagma bench allreduce: ") == 1
    assert message in said


def test_a_transport_that_cannot_be_had_is_said_once(tmp_path: Path) -> None:
    without = "import sys\nfor name in 'mpich', 'openmpi':\n"
    without += "    sys.modules[f'wagma.collectives._mpi_{name}'] = None  # importing it fails\n"
    (tmp_path / "sitecustomize.py").write_text(without)
    words = ["bench", "allreduce", "-m", "8:8", *FEW]
    lines = [
        [*words, "--transport", "mpi"],
        words,
        words,
        ["bench", "training", "--transport", "mpi"],
    ]
    variables = [{}, {"WAGMA_TRANSPORT": "mpi"}, {"WAGMA_TRANSPORT": "pigeon"}, {}]
    done = in_turn(tmp_path, [[line] * 2 for line in lines], variables, PYTHONPATH=str(tmp_path))
    for one in (done[0], done[1], done[3]):
        refuse_to_measure(one, "wagma was built without the transport over MPI")
    refuse_to_measure(done[2], "WAGMA_TRANSPORT='pigeon'")


def test_nodes_share_no_memory() -> None:
    version = complete([sys.executable, "-c", "from mpi4py import MPI; print(MPI.get_vendor()[0])"])
    if version.stdout.strip() != "MPICH":
        pytest.skip("MPICH alone can be told that one node is two")
    words = command(2, "allreduce", "-m", "8:8", *FEW, "--transport", "shm")
    refuse_to_measure(
        complete(words, MPIR_CVAR_NUM_CLIQUES="2"), "the ranks are on several nodes and share no"
    )


def refuse_to_measure(done: subprocess.CompletedProcess[str], message: str) -> None:
    assert done.returncode == 2, done.stderr
    assert rows(done.stdout) == {}
    assert (done.stdout + done.stderr).count(message) == 1
    assert "Traceback" not in done.stderr


# Options of rank 0 and of rank 1, and what is said once.
UNLIKE = {
    "unknown option of a rank": ((), ("--nope",), "unrecognized arguments: --nope"),
    "unknown option of rank 0": (("--nope",), (), "unrecognized arguments: --nope"),
    "options that do not go together": ((), ("--corrupt",), "nobody would notice; add -c"),
    "help": ((), ("--help",), "rank 1 takes no part: it only shows its help"),
}
OTHER = {
    "iterations": ("allreduce -i 50", "allreduce -i 20", "-i is 50 on rank 0, 20 on rank 1;"),
    "validation": ("allreduce -c", "allreduce", "-c is given on rank 0, not given on rank 1;"),
    "sizes": ("allreduce", "allreduce -m 8:16", "-m is 8:8 on rank 0, 8:16 on rank 1;"),
    "kinds": ("iallreduce", "allreduce", "the kind is iallreduce on rank 0, allreduce on rank 1;"),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_ranks_with_different_arguments_do_not_wait_for_each_other(case: str) -> None:
    first, second, message = UNLIKE[case]
    done = unlike(
        [*COMMAND, "allreduce", "-m", "8:8", *FEW, *first],
        [*COMMAND, "allreduce", "-m", "8:8", *FEW, *second],
    )
    assert done.returncode == 2, done.stderr
    assert rows(done.stdout) == {}
    assert (done.stdout + done.stderr).count(message) == 1


@pytest.fixture(scope="module")
def disagreed(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """Each of OTHER."""

    def line(text: str) -> list[str]:
        kind, *options = text.split()
        return ["bench", kind, "-m", "8:8", *FEW, *options]

    lines = [[line(first), line(second)] for first, second, _ in OTHER.values()]
    return dict(zip(OTHER, in_turn(tmp_path_factory.mktemp("other"), lines), strict=True))


@pytest.mark.parametrize("case", OTHER)
def test_ranks_that_disagree_do_not_wait_for_each_other(case: str, disagreed: Ended) -> None:
    done = disagreed[case]
    assert done.returncode == 2, done.stderr
    assert rows(done.stdout) == {}
    assert (done.stdout + done.stderr).count(OTHER[case][2]) == 1
