"""Launched processes: their ranks, what they agree on, how they end, what they show."""
