"""Which method a training should use: every method simulated with the times of a profile.

    from wagma.advise import advise
    from wagma.profile import load

    print(advise(load("profile.json")).text())

`python -m wagma advise profile.json` prints the same.
"""

from wagma.advise.advice import Advice, Proposal
from wagma.advise.search import advise

__all__ = ["Advice", "Proposal", "advise"]
