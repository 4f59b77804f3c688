"""Batch scripts for Slurm: templates, what is wrong with a script, what it would run where.

``python -m wagma slurm`` is the command. Everything here is pure but for reading and writing files:
Slurm is not asked.
"""
