"""``python -m wagma.benchmarks.training``: the same as ``python -m wagma bench training``."""

import sys

from wagma.cli import main

sys.exit(main(["bench", "training", *sys.argv[1:]]))
