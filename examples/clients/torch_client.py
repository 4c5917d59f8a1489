"""A PyTorch model planned by a service: exported here, converted and planned there.

shardplan serve &
python -m examples.clients.torch_client [URL [KEY]]
"""

from __future__ import annotations

import io
import sys

import torch
from torch import nn

from examples.clients.asking import Planner, shardings


def exported(module: nn.Module, *arguments: torch.Tensor) -> bytes:
    """The program as torch.export writes it; module and arguments may be on the meta device."""
    written = io.BytesIO()
    torch.export.save(torch.export.export(module, arguments), written)
    return written.getvalue()


def main(url: str = Planner.url, key: str | None = None) -> None:
    with torch.device("meta"):  # shapes are enough: nothing is allocated
        model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024))
        program = exported(model, torch.zeros(4096, 1024))
    document = Planner(url, key).plan(
        program, "application/x-torch-export+json", mesh="dp=2,tp=4", gap=1e-3, name="mlp"
    )
    for name, axes in shardings(document).items():
        print(name, axes)


if __name__ == "__main__":
    main(*sys.argv[1:])
