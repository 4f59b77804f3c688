"""Check batch scripts: each check yields a finding per mistake, with its remedy."""

from wagma.slurm.checks.findings import Finding
from wagma.slurm.checks.lint import lint

__all__ = ["Finding", "lint"]
