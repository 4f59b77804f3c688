"""Wait-avoiding group averaging for data-parallel training on CPUs.

``wagma.collectives`` holds the collectives; this package holds what trains with them.
"""

from importlib.util import find_spec
from pathlib import Path

if find_spec("wagma.collectives") is None:
    _folder = Path(__file__).resolve().parent
    raise ImportError(
        f"the source folder {_folder} hides the installed package wagma: run Python from another "
        f"folder than {_folder.parent}, or install wagma in place: "
        f"python -m pip install -e {_folder.parent}"
    )
