"""Train under Slurm: stop before the time limit, and resume in the next job. See docs/slurm.md.

The ranks are those that srun or mpiexec started. To run it by hand:

    mpiexec -n 4 python slurm/train.py --checkpoints checkpoints/test
"""

from wagma.preemption import Preemption

preemption = Preemption()  # catches signals from here on: the imports below take seconds

import argparse  # noqa: E402
import logging  # noqa: E402
import time  # noqa: E402

import torch  # noqa: E402

import wagma  # noqa: E402
from wagma.checkpoint import Checkpointer  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--checkpoints", default="checkpoints", help="folder, one per training")
parser.add_argument("--algorithm", choices=("allreduce", "cannikin", "wagma"), default="wagma")
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
parser.add_argument("--batch", type=int, default=256, help="samples of a step over all ranks")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--pause", type=float, default=0.0, help="seconds of sleep in each step")
parser.add_argument("--export", metavar="FILE", help="write the average model (safetensors)")
args = parser.parse_args()
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")  # on standard error

# Train on the task's GPU, if there is one.
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(args.seed)
inputs = torch.randn(8192, 20)  # in place of your data
labels = (inputs @ torch.randn(20) > 0).long()
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
model.to(device)
inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

if args.algorithm == "cannikin":
    algorithm = wagma.Cannikin("auto", args.batch, epoch_steps=50)
else:
    algorithm = wagma.AllreduceSGD() if args.algorithm == "allreduce" else wagma.WAGMA()
rank, size = algorithm.rank, algorithm.size
even = [len(part) for part in torch.arange(args.batch).tensor_split(size)]


def draw(version: int, batches: list[int]) -> torch.Tensor:
    """Return this rank's samples of a step, the same if a resumed job repeats it."""
    generator = torch.Generator().manual_seed(args.seed * 1_000_003 + version)
    drawn = torch.randint(len(inputs), (sum(batches),), generator=generator)
    return drawn.split(batches)[rank]


with (
    wagma.DistributedOptimizer(inner, algorithm, model=model) as opt,
    Checkpointer(args.checkpoints, opt, model=model, every=args.every) as saver,
):
    preemption.attach(opt, saver)
    if saver.load() and rank == 0:
        print(f"resumed at version {opt.version}", flush=True)
    while opt.version < args.steps and not preemption.stopping:
        batches = list(opt.plan.batches) if args.algorithm == "cannikin" else even
        mine = draw(opt.version, batches)
        opt.zero_grad()
        opt.weight = len(mine)
        outputs = model(inputs[mine].to(device))
        loss = torch.nn.functional.cross_entropy(outputs, labels[mine].to(device))
        loss.backward()
        time.sleep(args.pause)
        opt.step()
        if rank == 0 and opt.version % 100 == 0:
            print(f"version {opt.version}: loss {loss.item():.4f}", flush=True)
        saver.maybe_save()
    preemption.finish()  # after a stop: save a checkpoint, and have Slurm requeue the job
    versions = opt.version
    opt.synchronize()  # one model everywhere
    if args.export:
        saver.export(args.export)
if rank == 0:
    accuracy = (model(inputs.to(device)).argmax(1).cpu() == labels).float().mean()
    print(f"{size} ranks: {versions} versions, accuracy {accuracy:.1%}", flush=True)
