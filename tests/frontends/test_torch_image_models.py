"""Image models: the imported graph, whole and as planned on a mesh, gives torch's numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from planner import Request, pipeline
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.frontends.torch import build_graph_document
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.judge.analysis import Analysis
from planner.run.executor import SINGLE_DEVICE, run_program, run_whole
from planner.run.validate import validate
from tests.testing.hardware import EAGER
from tests.testing.random_shards import reassembled

torch: Any = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")

pytestmark = pytest.mark.frameworks("torch")
nn, F = torch.nn, torch.nn.functional


class Calls(nn.Module):  # type: ignore[misc, name-defined]
    """A module whose forward pass is a function of it and its input."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


def normed(inside: int, outside: int, taps: int, stride: int) -> Any:
    """A convolution without bias, and the normalisation of its channels."""
    return nn.Sequential(
        nn.Conv2d(inside, outside, taps, stride, taps // 2, bias=False),
        nn.BatchNorm2d(outside),
    )


def residual(inside: int, outside: int, stride: int) -> Any:
    def forward(self: Any, x: Any) -> Any:
        return F.relu(self.second(F.relu(self.first(x))) + self.skip(x))

    skip = nn.Identity() if stride == 1 and inside == outside else normed(inside, outside, 1, stride)
    first, second = normed(inside, outside, 3, stride), normed(outside, outside, 3, 1)
    return Calls(forward, first=first, second=second, skip=skip)


def resnet() -> Any:
    """He, Zhang, Ren, Sun, "Deep residual learning", 2015, of three blocks."""
    return nn.Sequential(
        normed(3, 4, 7, 2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        residual(4, 4, 1),
        residual(4, 8, 2),
        residual(8, 8, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


def unet() -> Any:
    """A U-Net of one level with group normalisation, and copies of elements on the way up."""

    def forward(self: Any, x: Any) -> Any:
        left = self.down(x)
        return self.last(torch.cat([F.interpolate(self.middle(left), scale_factor=2), left], 1))

    down = nn.Sequential(nn.Conv2d(3, 4, 3, padding="same"), nn.GroupNorm(2, 4), nn.SiLU())
    middle = nn.Sequential(
        nn.AvgPool2d(2), nn.Conv2d(4, 4, 3, padding=2, dilation=2), nn.ConvTranspose2d(4, 4, 3, 1, 1)
    )
    return Calls(forward, down=down, middle=middle, last=nn.Conv2d(8, 3, 1))


def vit() -> Any:
    """Dosovitskiy and others, "An image is worth 16x16 words", 2020, of one block, with a depthwise convolution."""
    width, heads = 16, 4

    def attend(self: Any, x: Any) -> Any:
        parts = self.qkv(x).reshape(*x.shape[:2], 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts.unbind(0))
        return self.out(mixed.transpose(1, 2).flatten(2))

    def forward(self: Any, x: Any) -> Any:
        patches = self.local(self.patches(x)).flatten(2).transpose(1, 2)
        x = torch.cat([self.head.expand(x.shape[0], -1, -1), patches], 1) + self.places
        x = x + self.attention(self.norms[0](x))
        return self.classes((x + self.mlp(self.norms[1](x)))[:, 0])

    return Calls(
        forward,
        patches=nn.Conv2d(3, width, 4, 4),
        local=nn.Conv2d(width, width, 3, padding=1, groups=width),
        head=nn.Parameter(torch.zeros(1, 1, width)),
        places=nn.Parameter(torch.zeros(1, 17, width)),
        norms=nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)]),
        attention=Calls(attend, qkv=nn.Linear(width, 3 * width), out=nn.Linear(width, width)),
        mlp=nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
        classes=nn.Linear(width, 10),
    )


# name -> module, image
MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "resnet": (resnet, (1, 3, 32, 32)),
    "unet": (unet, (1, 3, 16, 12)),
    "vit": (vit, (2, 3, 16, 16)),
}
PROGRAMS = [(name, mesh) for name in MODELS for mesh in ("4", "2x2", "2x2x2")]


@cache
def model(name: str) -> tuple[GraphDocument, dict[str, Any], Any]:
    """The document, arrays for its inputs, and torch's result; all parameters and statistics are random."""
    make, shape = MODELS[name]
    torch.manual_seed(0)
    module = make().double().eval()
    for tensor in (*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())):
        torch.nn.init.uniform_(tensor, 0.05, 0.6)
    image = torch.randn(shape, dtype=torch.float64)
    with torch.no_grad():
        document = build_graph_document(torch.export.export(module, (image,), strict=False), name)
        made = module(image).numpy()
    tensors = dict(module.named_parameters()) | dict(module.named_buffers()) | {"x": image, "input": image}
    arrays = {entry["id"]: tensors[entry["name"]].detach().numpy() for entry in document["inputs"]}
    return validate_document(GraphDocument, document, name), arrays, made


def graph(name: str, mesh: Mesh = SINGLE_DEVICE) -> Graph:
    return load_graph(model(name)[0], mesh)


def assert_torch_s(name: str, got: Any) -> None:
    wanted = model(name)[2]
    np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12 * abs(wanted).max())


@pytest.mark.parametrize("name", MODELS)
def test_the_imported_graph_gives_torch_s_numbers(name: str) -> None:
    values = run_whole(graph(name), model(name)[1], np, precision="f64")
    assert_torch_s(name, values[graph(name).outputs[0]])


def has_halos(program: Program) -> bool:
    return any(any(value.sharding.halo_sizes) for value in program.values.values())


@pytest.mark.parametrize(("name", "mesh"), PROGRAMS)
def test_a_planned_program_gives_torch_s_numbers(name: str, mesh: str) -> None:
    plan = pipeline.plan(graph(name, Mesh.parse(mesh)), Mesh.parse(mesh), EAGER, request=Request(gap=0.01))
    assert isinstance(plan.analysis, Analysis)
    program = plan.analysis.program
    assert has_halos(program) or name == "vit"
    done = run_program(program, model(name)[1], np, precision="f64")
    assert_torch_s(name, reassembled(program, [outputs[0] for outputs in done.outputs], np.float64))
    assert validate(program).verdict == "equal"
