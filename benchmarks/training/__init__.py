"""Trains one model with several algorithms under one imbalance: ``wagma bench training``."""
