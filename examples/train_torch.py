"""Trains a small model by its plan: `torchrun --nproc-per-node 4 examples/train_torch.py`."""

import torch
import torch.distributed as dist
from torch import nn

import planner.torch
from planner import Request


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.layers(x), labels)


dist.init_process_group("gloo")
torch.manual_seed(0)
module, batch = Classifier(), (torch.randn(32, 64), torch.randint(0, 10, (32,)))
model = planner.torch.parallelize(module, batch, "dp=4", train="adamw", request=Request(layout="fsdp"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(21):
    optimizer.zero_grad()
    loss = model(*batch)
    loss.backward()
    optimizer.step()
    if step % 10 == 0 and dist.get_rank() == 0:
        print(f"step {step}: loss {loss.item():.3f}")
dist.destroy_process_group()
