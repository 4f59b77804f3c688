"""The profile of a training: what each rank did in a step, the slow rank and the cause.

`wagma.Profile` writes it; docs/profile.md says how.

    python -m wagma profile profile.json
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from wagma.units import percent_text, plural, size_text, time_text

SUMMARY = "show what the ranks of a training did, and which is slow (wagma.Profile)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file and the format to the command's parser."""
    parser.add_argument("file", type=Path, metavar="FILE", help="file that wagma.Profile wrote")
    parser.add_argument("--json", action="store_true", help="print the diagnosis as JSON")


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    """Print the table and the diagnosis of a profile."""
    from wagma.profile.contents import TrainingProfile
    from wagma.profile.files import ProfileError, load

    try:
        profile: TrainingProfile = load(arguments.file)
    except OSError as error:
        parser.error(f"{arguments.file} cannot be read: {error.strerror}")
    except ProfileError as error:
        parser.error(str(error))
    if not arguments.json:
        method = f", {profile.method}" if profile.method else ""
        model = f", a model of {size_text(profile.model_bytes)}" if profile.model_bytes else ""
        counts = f"{plural(profile.ranks, 'rank')}, {plural(profile.steps, 'step')}"
        sys.stdout.write(f"{counts}{method}{model}\n\n{profile.table()}\n\n")
        for size, (count, seconds) in sorted(profile.communication_sizes.items()):
            each = f"{time_text(seconds / (count or 1))} each, without waiting"
            sys.stdout.write(f"{plural(count, 'collective')} of {size_text(size)}: {each}\n")
        share = percent_text(profile.hook_share)
        each = time_text(float(profile.hook_seconds.max()) / profile.steps)
        sys.stdout.write(f"Recording took at most {share} of a rank's time: {each} per step.\n")
        sys.stdout.flush()
    try:
        diagnosis = profile.diagnosis()
    except ValueError as error:
        parser.error(f"{arguments.file}: {error}")
    if arguments.json:
        sys.stdout.write(json.dumps(asdict(diagnosis), indent=2) + "\n")
    else:
        sys.stdout.write(f"{diagnosis.words}\n")
    return 0
