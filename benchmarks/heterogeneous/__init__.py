"""Emulated clusters of unequal nodes: how long a step takes with each way to divide the batch."""
