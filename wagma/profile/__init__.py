"""What the ranks of a training did: recorded by `wagma.Profile`, read by `load`.

    with wagma.Profile(comm, "profile.json") as profile:
        for batch in profile.batches(loader):
            ...

    print(wagma.profile.load("profile.json").diagnosis().words)

``python -m wagma profile profile.json`` prints the times of each rank, the slow one and the cause.
"""

from wagma.profile.contents import TrainingProfile
from wagma.profile.diagnosis import Diagnosis
from wagma.profile.files import ProfileError, load, save
from wagma.profile.recording import Profile

__all__ = ["Diagnosis", "Profile", "ProfileError", "TrainingProfile", "load", "save"]
