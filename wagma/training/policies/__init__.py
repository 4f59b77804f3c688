"""Compute policies: how much a rank computes for a step, whatever averages the result."""
