"""Figures of papers, made again: ``wagma reproduce METHOD``.

A method is a module of this package with a tuple `PICTURES`, and a line of `command.METHODS`.
"""
