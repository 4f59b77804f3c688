import time
import torch, wagma

torch.set_num_threads(1)  # the workers share the cores
torch.manual_seed(0)
inputs = torch.randn(8192, 20)  # in place of your data
labels = (inputs @ torch.randn(20) > 0).long()
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)  # any torch optimizer

algorithm = wagma.WAGMA(sync_period=10)  # over the workers that mpiexec or torchrun started
rank, size = algorithm.rank, algorithm.size
mine = torch.arange(rank, len(inputs), size)  # this worker's share of the data
delays = wagma.inject.parse("paper:1:0.1", size=size, seed=1)  # in each step one sleeps 0.1 s
began = time.perf_counter()
with wagma.DistributedOptimizer(inner, algorithm, model=model) as optimizer:
    while optimizer.version < 100:
        delays.inject(rank, optimizer.version)
        batch = mine[torch.randint(len(mine), (32,))]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
        optimizer.step()  # averages with the workers that are there
    optimizer.synchronize()  # one model everywhere
took, weight = time.perf_counter() - began, model[0].weight[0, 0]
accuracy = (model(inputs).argmax(1) == labels).float().mean()
print(f"{rank} of {size}: {took:.1f} s, accuracy {accuracy:.1%}, a weight {weight:.4f}", flush=True)
