"""Launched processes: their ranks, agreement on settings, end and output."""
