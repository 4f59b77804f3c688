"""``python -m wagma``."""

import sys

from wagma.cli import main

sys.exit(main())
