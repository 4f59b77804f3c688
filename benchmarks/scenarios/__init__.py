"""Ranks that compute between their calls, or idle, and what a rank takes: beside repeated calls."""
