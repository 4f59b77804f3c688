"""Theory of the methods, in pure functions; most of it neglects communication."""
