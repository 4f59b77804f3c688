"""Timelines that ranks have written (WAGMA_TRACE=dir): merged on one clock, and summed up.

docs/timeline.md says what is in them; ``python -m wagma trace`` is the command.
"""
