"""Where the ranks of a job meet to make a collective, over MPI or over sockets of a machine."""
