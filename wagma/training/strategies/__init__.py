"""Training algorithms, one a file; `wagma.algorithms` lists them."""
