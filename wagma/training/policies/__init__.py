"""Compute policies: how much a rank computes for a step, with any algorithm."""
