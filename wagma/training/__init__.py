"""Training over the collectives: the optimizer, its parts, and the strategies that it takes."""
