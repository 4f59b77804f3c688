"""Emulated clusters of unequal nodes, and divisions of a batch: ``wagma bench heterogeneous``."""
