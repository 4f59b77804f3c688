"""``python -m wagma doctor``: what is wrong with this machine and this launch, and what to do.

``gather`` collects the facts of all ranks: each probes itself (``machine``, ``software``), then
they try things with each other (``ranks``). The checks are functions from these facts to findings
and touch nothing else; ``output`` prints.
"""
