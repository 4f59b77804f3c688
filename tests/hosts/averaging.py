"""A rank: averages versioned contributions, and rank 0 checks what everybody got.

The argument is JSON: `options` of PartialAllreduce, `steps`, `noise` (elements beyond the slots
that tell the versions), `pause` (seconds, of random sleeps before and after each call). Rank 0
prints JSON: what the ranks talked through, and how often what happened; or every rank's error where
the collective is refused.
"""

import json
import random
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "support"))

import versioned
from mpi4py import MPI

from wagma.collectives import PartialAllreduce


def main() -> None:
    comm = MPI.COMM_WORLD
    settings = json.loads(sys.argv[1])
    options = {"group_size": comm.size, "quorum": 1, "average": False, **settings["options"]}
    quorum = options["group_size"] if options["quorum"] == "all" else options["quorum"]
    period = options.get("sync_period")
    plan = versioned.Plan(
        comm.size,
        options["group_size"],
        quorum,
        sync_period=period,
        window=period or 64,
        average=options["average"],
        noise=settings["noise"],
    )

    def pause(rng: random.Random) -> float:
        return rng.choice((0.0, 0.0, 1.0)) * rng.random() * settings["pause"]

    x = plan.contribution(comm.rank, -1)
    try:
        coll = PartialAllreduce(comm, x, **options)
    except ValueError as error:
        refused = comm.gather(str(error))
        if refused is not None:
            print(json.dumps({"refused": refused}))
        return
    with coll:
        log = versioned.run(plan, comm.rank, coll, x, settings["steps"], delay=pause)
    transports = comm.gather(coll.transport)
    logs = comm.gather(log)
    if logs is not None:
        print(json.dumps({"transports": transports, **versioned.check(plan, logs)}))


if __name__ == "__main__":
    main()
