"""``python -m wagma doctor``: what is wrong with this machine and this launch, and what to do.

``probe`` gathers the facts of a process, out of ``software``, ``machine`` and ``control_groups``,
and ``gather`` those of all ranks; the checks are functions from these facts to findings and touch
nothing else; ``output`` prints.
"""
