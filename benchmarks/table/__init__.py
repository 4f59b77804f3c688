"""The table of docs/results.md: wagma beside every MPI that is there, and other promises."""
