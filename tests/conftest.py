"""Puts this folder on the path: ranks.py and versioned.py are shared by the folders below."""
