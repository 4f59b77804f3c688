"""Jobs on a private Slurm (cluster.py), one for each worker of pytest; MPICH's ranks.

Skipped, with the reason, where Slurm is not installed; root with apt has it installed by
`make test-slurm`, and is not excused.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster
from packages import installable, missing

BIN = Path(sys.executable).parent


@pytest.fixture(scope="session")
def slurm() -> Iterator[Cluster]:
    """The daemons; for most tests `cluster` is what they want."""
    if lacking := missing():
        reason = f"not installed: {', '.join(lacking)}"
        if installable():
            pytest.fail(f"{reason}; make test-slurm installs it", pytrace=False)
        pytest.skip(reason)
    # Ranks share few cores: they sleep where MPICH's would spin. Over several nodes MPICH with UCX
    # sends requests that are longer than Slurm's pmi2 plugin reads: docs/slurm.md, Troubles.
    environment = {
        "OMP_NUM_THREADS": "1",
        "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
        "MPIR_CVAR_CH4_NETMOD": "ofi",
        "VENV": sys.prefix,
        "PYTHON": sys.executable,
        "MPIEXEC": str(BIN / "mpiexec"),
    }
    with Cluster(nodes=2, cpus=4, environment=environment) as cluster:
        yield cluster


@pytest.fixture
def cluster(slurm: Cluster, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The private Slurm, idle before and after the test; every job leaves nothing of wagma's."""
    yield slurm
    slurm.cancel_all()
    if not request.session.testsfailed:
        assert slurm.memory_files() == []
        assert slurm.processes() == []
