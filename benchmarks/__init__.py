"""What an allreduce costs, also when ranks do not arrive together: ``python -m wagma bench``."""
