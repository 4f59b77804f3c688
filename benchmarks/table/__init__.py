"""README's table: wagma beside every MPI that is there, and what other rows promise."""
