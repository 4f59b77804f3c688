import torch, wagma
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("gloo")  # an ordinary DDP training, under torchrun
rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
torch.set_num_threads(1)
model = DistributedDataParallel(torch.nn.Linear(20, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, labels = torch.randn(32, 20), torch.randint(2, (32,))
delays = wagma.inject.parse("paper:1:0.05", size=size, seed=1)  # in each step one sleeps 50 ms
with wagma.Profile("auto", "profile.json"):
    for step in range(60):
        delays.inject(rank, step)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
torch.distributed.destroy_process_group()
