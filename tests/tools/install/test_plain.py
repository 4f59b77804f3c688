"""A plain installation, built with the MPI that the build asks for by itself."""

import sys

import pytest
from installation import CONNECT, ROOT, Installation, output, packages_of, run

pytestmark = [pytest.mark.install, pytest.mark.long]


@pytest.fixture(scope="module")
def plain(tmp_path_factory, compiler) -> Installation:
    where = tmp_path_factory.mktemp("plain")
    return Installation(where, compiler, editable=False)


def test_plain_from_an_empty_folder(plain):
    assert plain.use(plain.empty) == packages_of(plain.site / "wagma")


def test_plain_from_the_clone_says_what_hides_it(plain):
    done = run(plain.python, "-c", "import wagma", cwd=plain.clone)
    assert done.returncode == 1
    message = done.stderr.splitlines()[-1]
    assert message.startswith("ImportError: ")
    assert str(plain.clone / "wagma") in message
    assert f"pip install -e {plain.clone}" in message


def test_plain_installs_what_type_checkers_and_compilers_need(plain):
    for name in (
        "py.typed",
        "collectives/_engine.pyi",
        "benchmarks/_loop.pyi",
        "include/wagma_options.h",
    ):
        assert (plain.site / "wagma" / name).exists(), name
    assert not list((plain.site / "wagma").rglob("*.c")), "generated sources were installed"


def test_plain_installs_all_batch_scripts(plain):
    def files(folder):
        found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        return {str(path) for path in found if path.suffix != ".pyc"}

    scripts = files(ROOT / "slurm")
    assert {"train.py", "train-cpu.sbatch", "env/mpich.sh"} <= scripts
    assert files(plain.site / "wagma/slurm/templates") == scripts
    assert output(plain.python, "-m", "wagma", "slurm", "init", "--help", cwd=plain.empty)


def test_plain_is_built_with_an_mpi_that_the_build_asked_for(plain):
    (extension,) = (plain.site / "wagma/collectives").glob("_mpi_*.so")
    assert extension.name.startswith("_mpi_mpich.")
    dynamic = output("readelf", "-d", extension, cwd=plain.empty)
    assert "libmpi.so.12" in dynamic
    assert "pip-build-env" not in dynamic, "looks for libraries where the build was"
    assert '"wagma_transport"' in output(plain.python, "-c", CONNECT, cwd=plain.empty)


def test_plain_has_the_text_of_the_cuda_kernels(plain):
    (engine,) = (plain.site / "wagma/collectives").glob("_engine.*.so")
    assert (ROOT / "csrc/kernels/cuda/sum.cuh").read_bytes() in engine.read_bytes()


def test_unusable_mpi_compiler_that_was_named_ends_the_build(plain, tmp_path):
    # With the build's requirements that are installed here.
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-build-isolation"]
    done = run(
        *(*install, "--target", tmp_path / "site", plain.clone), cwd=plain.empty, WAGMA_MPICC="gcc"
    )
    assert done.returncode != 0
    assert not (tmp_path / "site").exists()
    assert "WAGMA_MPICC='gcc' does not compile a program with mpi.h" in done.stdout + done.stderr
