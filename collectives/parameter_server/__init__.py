"""Ranks that hold the parameters, and learners that send them gradients, over messages."""
