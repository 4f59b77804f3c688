"""A Slurm without daemons: a job's environment, a scontrol, signals at any moment, and restarts.

    job = Job(folder, seed=7, size=3)
    end = job.run(Moment(0.1, (Signal(1, signal.SIGUSR2),)))    # one run of the job

Ranks are processes that are forked after torch's import. What happens to them is what Slurm does:
when scontrol was asked to queue the job again all ranks get SIGTERM, and SIGKILL if they take no
notice; when a rank has died the others are killed.
"""

import json
import random
import re
import shutil
import signal
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from launched import Forked

KILL_WAIT_S = 10.0
RUN_S = 60.0  # far beyond what a run takes: a hang becomes a failure
POLL_S = 0.003
RESTART = 85
PLACE = re.compile(r"run-(\d+)-version-(\d+)")

# What imports torch on the first use is used before ranks are forked.
IMPORTS = """
import wagma.collectives.rendezvous.local, faulthandler, json, random, torch, traceback
import wagma.algorithms, wagma.checkpoint, wagma.preemption
torch.set_num_threads(1)
torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
"""

# Each line of a rank's log is a word and a version. A rank leaves without Python's own end, which
# takes seconds with torch, and in which signals have their defaults again.
SCRIPT = """
faulthandler.enable()
settings = json.loads(os.environ["SETTINGS"])
log = os.open(os.environ["RANK_LOG"] + f"-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

def note(line):
    # A signal's handler may interrupt another one here; a file of Python's would raise then.
    os.write(log, f"{line}\\n".encode())

class Sampler:
    def __init__(self):
        self.drawn = rank
    def state_dict(self):
        return {"drawn": self.drawn}
    def load_state_dict(self, state):
        self.drawn = state["drawn"]
    def draw(self):
        self.drawn = (self.drawn * 48271 + 11) % 2147483647
        return torch.full((4, 8), self.drawn / 2147483647)

def train():
    watched = True

    def caught(signum, _):
        # Without Preemption's handler, which calls this one, nothing is to stop.
        if watched and signal.getsignal(signum) is not caught:
            note(f"caught {opt.version}")

    torch.manual_seed(rank), random.seed(rank), np.random.seed(rank)
    sampler = Sampler()
    model = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    pauses = random.Random()
    for signum in (signal.SIGUSR2, signal.SIGTERM):
        signal.signal(signum, caught)
    with wagma.DistributedOptimizer(inner, wagma.AllreduceSGD(None), model=model) as opt:
        saver = wagma.checkpoint.Checkpointer(
            settings["checkpoints"], opt, model=model, every=settings["every"],
            asynchronous=settings["asynchronous"], extra={"sampler": sampler},
        )
        with wagma.preemption.Preemption(
            None, optimizer=opt, checkpointer=saver, max_restarts=1000
        ) as preemption:
            saver.load()
            note(f"begin {opt.version}")
            while opt.version < settings["steps"] and not preemption.stopping:
                opt.zero_grad()
                noise = torch.randn(4, 2) + random.random() + float(np.random.rand())
                (model(sampler.draw()) - noise).square().mean().backward()
                time.sleep(pauses.uniform(0, settings["pause"]))
                opt.step()
                note(f"made {opt.version}")
                saver.maybe_save()
            watched = opt.version < settings["steps"]
            preemption.finish()
        saver.close()
        parameters = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
        note(f"end {opt.version} {parameters.tobytes().hex()}")

status = 0
try:
    train()
except SystemExit as end:
    status = end.code if isinstance(end.code, int) else 1
    print(end.code, file=sys.stderr)
except BaseException:
    status = 1
    traceback.print_exc()
sys.stderr.flush()
os._exit(status)
"""

SCONTROL = """#!/bin/sh
[ {works} = yes ] || {{ echo "slurm_requeue error: Access denied" >&2; exit 1; }}
echo "$@" >> "{folder}/asked"
"""


class Ranks(Forked):
    """Processes that are forked after all imports."""

    imports = IMPORTS


@dataclass(frozen=True)
class Moment:
    """What happens to a run: after so many seconds ranks (-1: all) get signals, one by one."""

    seconds: float
    signals: tuple[tuple[int, signal.Signals], ...]

    @property
    def kills(self) -> bool:
        return any(signum == signal.SIGKILL for _, signum in self.signals)


@dataclass(frozen=True)
class Run:
    """What became of a run: by rank, and whether the job is to be queued again.

    `lines`: of each rank's log, the versions by word.
    """

    statuses: list[int]
    lines: list[dict[str, list[int]]]
    parameters: list[str]
    asked: list[str]
    errors: str

    @property
    def died(self) -> bool:
        return any(status < 0 for status in self.statuses)

    @property
    def stopped(self) -> bool:
        """It has ended at a checkpoint, to be run again."""
        return not self.died and (bool(self.asked) or set(self.statuses) == {RESTART})

    @property
    def done(self) -> bool:
        return not self.asked and set(self.statuses) == {0}

    def versions(self, word: str) -> list[int]:
        """The versions that ranks have logged with a word."""
        return [version for lines in self.lines for version in lines[word]]


class FakeSlurm:
    """One job, that is run until it is over.

    `scontrol`: "works", "refuses" or "missing". `every`: versions between checkpoints.
    """

    def __init__(
        self,
        folder: Path,
        *,
        size: int = 2,
        steps: int = 25,
        every: int = 4,
        pause: float = 0.004,
        asynchronous: bool = False,
        scontrol: str = "works",
        seed: int = 0,
    ) -> None:
        self.size = size
        self.checkpoints = folder / "checkpoints"
        self.restarts = 0
        self._folder = folder
        self._rng = random.Random(seed)
        self._settings = {
            "checkpoints": str(self.checkpoints),
            "steps": steps,
            "every": every,
            "pause": pause,
            "asynchronous": asynchronous,
        }
        commands = folder / "bin"
        commands.mkdir()
        self._path = f"{commands}:/usr/bin:/bin"
        if scontrol == "missing":
            for name in ("sh", "env"):
                (commands / name).symlink_to(shutil.which(name) or name)
            self._path = str(commands)
        else:
            works = "yes" if scontrol == "works" else "no"
            (commands / "scontrol").write_text(SCONTROL.format(works=works, folder=folder))
            (commands / "scontrol").chmod(0o755)

    def run(self, moment: Moment | None = None) -> Run:
        """Run the job once; the next time it is a restart."""
        asked = self._folder / "asked"
        asked.unlink(missing_ok=True)
        log = self._folder / f"log-{self.restarts}"
        with Ranks(self.size, "", ranks=()) as ranks:
            ranks._script += SCRIPT
            for rank in range(self.size):
                ranks.start(rank, **self._environment(rank, str(log)))
            self._watch(ranks, moment, asked)
            said = [ranks.errors(rank) for rank in range(self.size)]
            statuses = [ranks.processes[rank].returncode for rank in range(self.size)]
        self.restarts += 1
        lines = [read(Path(f"{log}-{rank}")) for rank in range(self.size)]
        return Run(
            [status if status is not None else 1 for status in statuses],
            [one for one, _ in lines],
            [parameters for _, parameters in lines],
            asked.read_text().splitlines() if asked.exists() else [],
            "".join(f"rank {rank}: {text}\n" for rank, text in enumerate(said) if text),
        )

    def newest(self) -> int:
        """The version of the newest checkpoint that all ranks have written; 0: there is none."""
        whole = []
        for folder in self.checkpoints.glob("run-*-version-*"):
            manifests = [json.loads(file.read_text()) for file in folder.glob("rank-*.json")]
            if len(manifests) == self.size:
                numbers = PLACE.fullmatch(folder.name)
                assert numbers is not None
                version = max(manifest["manifest"]["version"] for manifest in manifests)
                whole.append((int(numbers[1]), int(numbers[2]), version))
        return max(whole)[2] if whole else 0

    def _environment(self, rank: int, log: str) -> dict[str, str]:
        size = str(self.size)
        return {
            "PATH": self._path,
            "SETTINGS": json.dumps(self._settings),
            "RANK_LOG": log,
            "SLURM_JOB_ID": "4711",
            "SLURM_NTASKS": size,
            "SLURM_PROCID": str(rank),
            "SLURM_RESTART_COUNT": str(self.restarts),
        }

    def _watch(self, ranks: Ranks, moment: Moment | None, asked: Path) -> None:
        """Send the signals of the moment, and do what Slurm does, until all ranks have ended."""
        start = time.monotonic()
        planned = list(moment.signals) if moment else []
        ending = 0.0  # when ranks that do not end are killed
        while None in (states := [process.poll() for process in ranks.processes.values()]):
            now = time.monotonic()
            if now > start + RUN_S:
                raise AssertionError(f"ranks hang, {moment}: {stacks(ranks)}")
            while planned and now - start >= (moment.seconds if moment else 0):
                rank, signum = planned.pop(0)
                for one in range(self.size) if rank < 0 else [rank]:
                    ranks.processes[one].send_signal(signum)
            if any(state is not None and state < 0 for state in states):
                time.sleep(self._rng.choice((0, 0.05)))
                ranks.kill()
            elif not ending and asked.exists():
                ending = now + KILL_WAIT_S
                time.sleep(self._rng.choice((0, 0.02)))
                for process in ranks.processes.values():
                    process.send_signal(signal.SIGTERM)
            elif ending and now > ending:
                raise AssertionError("ranks took no notice of SIGTERM after scontrol requeue")
            time.sleep(POLL_S)


def stacks(ranks: Ranks) -> str:
    """End ranks that hang, and return where they were."""
    statuses = [process.poll() for process in ranks.processes.values()]
    for process in ranks.processes.values():
        process.send_signal(signal.SIGABRT)
    return f"{statuses}\n" + "\n".join(ranks.errors(rank) for rank in ranks.processes)


def read(log: Path) -> tuple[dict[str, list[int]], str]:
    """A rank's log: versions by word, and the parameters in the end."""
    found: dict[str, list[int]] = defaultdict(list)
    parameters = ""
    for line in log.read_text().splitlines() if log.exists() else []:
        word, version, *rest = line.split()
        found[word].append(int(version))
        parameters = rest[0] if rest else parameters
    return found, parameters
