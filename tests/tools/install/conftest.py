"""Let installations share the time of compiling, and nothing else."""

import pytest
from installation import quick_compiler


@pytest.fixture(scope="session")
def compiler(tmp_path_factory) -> str:
    return quick_compiler(tmp_path_factory.mktemp("compiler"))
