"""slurm/train.py, which the batch scripts run, by mpiexec alone: it ends early, and goes on."""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from launched import finished

pytestmark = pytest.mark.launch

SCRIPT = Path(__file__).resolve().parents[3] / "slurm/train.py"
MPIEXEC = os.environ.get("WAGMA_TEST_MPIEXEC", str(Path(sys.executable).with_name("mpiexec")))
LIVENESS_S = 100.0


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["allreduce", "cannikin", "wagma"])
def test_it_trains_and_goes_on_where_it_was(algorithm: str, tmp_path: Path) -> None:
    words = [*shlex.split(MPIEXEC), "-n", "2", sys.executable, str(SCRIPT)]
    words += ["--algorithm", algorithm, "--checkpoints", str(tmp_path / "checkpoints")]
    first = finished([*words, "--steps", "150"], LIVENESS_S)
    assert first.returncode == 0, first.stderr
    model = tmp_path / "model.safetensors"
    second = finished([*words, "--steps", "300", "--export", str(model)], LIVENESS_S)
    assert second.returncode == 0, second.stderr
    assert "resumed at version 100" in second.stdout
    accuracy = re.search(r"2 ranks: 300 versions, accuracy ([\d.]+)%", second.stdout)
    assert accuracy, second.stdout
    assert float(accuracy[1]) > 95
    assert model.exists()
