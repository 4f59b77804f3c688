"""Adaptive fastest-k SGD (Kas Hanna et al., arXiv 2208.03134, 2022): policy and theory. Pure.

A master with n workers takes the fastest k gradients of every iteration, and then all workers
start anew. A small k is fast, a large k has a lower error floor; the papers' policies raise k.
"""

from wagma.theory.fastest_k.adaptive import AdaptiveK

__all__ = ["AdaptiveK"]
