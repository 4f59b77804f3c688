"""``python -m wagma tune``: how data is exchanged over messages, measured on this machine."""
