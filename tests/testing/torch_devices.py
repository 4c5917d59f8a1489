"""A torch device mesh in a single process, which holds every rank's tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch.distributed._local_tensor import LocalTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore


@contextmanager
def eight_local_devices(shape: tuple[int, ...]) -> Iterator[Any]:
    """Create a device mesh of local ranks that hold real data."""
    devices = math.prod(shape)
    dist.init_process_group("fake", rank=0, world_size=devices, store=FakeStore())
    try:
        with LocalTensorMode(devices):
            yield init_device_mesh("cpu", shape)
    finally:
        dist.destroy_process_group()
