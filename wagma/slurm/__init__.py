"""Write batch scripts for Slurm, find their mistakes, explain what they would run where.

``python -m wagma slurm`` is the command. It reads and writes files only:
Slurm is not asked.
"""
