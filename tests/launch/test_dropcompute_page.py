"""docs/dropcompute.md: its first block, as a reader would run it."""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from launched import finished

PAGE = (Path(__file__).resolve().parents[2] / "docs/dropcompute.md").read_text()
MPIEXEC = os.environ.get("WAGMA_TEST_MPIEXEC", str(Path(sys.executable).with_name("mpiexec")))


@pytest.mark.long
def test_the_page_runs(tmp_path: Path) -> None:
    program = tmp_path / "page.py"
    program.write_text(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0])
    done = finished([*shlex.split(MPIEXEC), "-n", "2", sys.executable, str(program)], 100.0)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        r"accuracy 9\d\.\d%, \d+\.\d s\nthreshold [\d.einf]+ s, dropped \d+\.\d%, speed-up "
        r"(\d\.\d+|nan), expected \d\.\d+\n",
        done.stdout,
    ), done.stdout
