"""Training over the collectives: the optimizer, its parts, and the algorithms that it takes."""
