"""Placements, specs and Model Explorer graphs as JSON: the tools that read them lay tensors out as planned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.errors import InvalidRequest
from planner.export.formats import FORMATS, export_program
from planner.ir.accounting import count_received_bytes
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.ir.sharding import Sharding, shard_bounds
from tests.testing.graphs import small_transformer
from tests.testing.sample_programs import question_of, random_program

TORCH = pytest.mark.frameworks("torch")
JAX = pytest.mark.frameworks("jax")
EVERY_FORMAT = [
    pytest.param(name, marks=pytest.mark.frameworks(entry.extra) if entry.extra else ())
    for name, entry in FORMATS.items()
]
EVEN = {"d": 16, "ff": 32, "heads": 8, "batch": 8, "seq": 8}


@pytest.fixture(scope="module")
def program() -> Program:
    return random_program(question_of(small_transformer(Mesh.parse("dp=2,tp=4"), **EVEN), "dp=2,tp=4"), 3)


def laid_out(program: Program, document: dict[str, Any]) -> list[tuple[str, Any, np.ndarray, np.ndarray]]:
    """Of every value that the document says all of: its name, layout, a whole array, and the bounds of its shards."""
    said = [(i["id"], i["layout"]) for i in document["arguments"]] + list(document["values"].items())
    left_out = {remark.split(":")[0] for remark in document["remarks"]}
    shown = []
    for name, layout in said:
        held = program.values[name]
        if not held.sharding.partial and name not in left_out:
            whole = np.arange(np.prod(held.type.shape)).reshape(held.type.shape)
            shown.append((name, layout, whole, shard_bounds(held.sharding, held.type.shape, program.mesh)))
    assert len(shown) > 20
    return shown


def part(whole: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    return whole[tuple(slice(*ends) for ends in bounds.tolist())]


@TORCH
def test_dtensor_cuts_every_tensor_as_the_plan_does(program: Program) -> None:
    import torch
    from torch.distributed._local_tensor import LocalTensor
    from torch.distributed.tensor import distribute_tensor

    from planner.export.sharding_documents import load_placements
    from tests.testing.torch_devices import eight_local_devices

    document = json.loads(export_program(program, "dtensor"))
    with eight_local_devices((2, 4)) as mesh:
        for name, layout, whole, bounds in laid_out(program, document):
            everywhere = LocalTensor({device: torch.from_numpy(whole.copy()) for device in range(8)})
            local = distribute_tensor(everywhere, mesh, load_placements(layout)).to_local()
            for device, shard in local._local_tensors.items():
                np.testing.assert_array_equal(shard.numpy(), part(whole, bounds[device]), name)


@TORCH
@pytest.mark.parametrize("split", [((0, 1), ()), ((0, 2), (1,)), ((2,), (0, 1)), ((0,), (1, 2)), ((0, 1, 2), ())])
@pytest.mark.parametrize("size", [1, 5, 6, 9, 12])
def test_dtensor_on_joined_axes_cuts_unevenly_along_several_as_the_plan_does(
    size: int, split: tuple[tuple[int, ...], ...]
) -> None:
    import torch
    from torch.distributed._local_tensor import LocalTensor
    from torch.distributed.tensor import distribute_tensor

    from planner.export.dtensor import join_placements
    from tests.testing.torch_devices import eight_local_devices

    mesh, held = Mesh.parse("2x2x2"), Sharding(split)
    whole = np.arange(7 * size).reshape((size, 7) if len(split[0]) > 1 else (7, size))
    joined, bounds = join_placements(held, whole.shape, mesh), shard_bounds(held, whole.shape, mesh)
    with eight_local_devices(mesh.shape):
        everywhere = LocalTensor({device: torch.from_numpy(whole.copy()) for device in range(8)})
        local = distribute_tensor(everywhere, joined.device_mesh("cpu", mesh), joined.placements).to_local()
        for device, shard in local._local_tensors.items():
            np.testing.assert_array_equal(shard.numpy(), part(whole, bounds[device]))


@TORCH
@pytest.mark.parametrize("size", [1, 5, 7, 9, 12])
def test_dtensor_cuts_unevenly_along_one_axis_as_the_plan_does_and_along_two_it_does_not(size: int) -> None:
    import torch
    from torch.distributed._local_tensor import LocalTensor
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    from planner.export.dtensor import placements
    from tests.testing.torch_devices import eight_local_devices

    mesh, held = Mesh.parse("2x4"), Sharding(((1,),))
    made, remarks = placements(held, (size,), mesh)
    assert (made, remarks) == ((Replicate(), Shard(0)), [])
    assert placements(Sharding(((1, 0),)), (size,), mesh)[1], "said, not done"
    whole, bounds = np.arange(size), shard_bounds(held, (size,), mesh)
    with eight_local_devices((2, 4)) as device_mesh:
        everywhere = LocalTensor({device: torch.from_numpy(whole.copy()) for device in range(8)})
        local = distribute_tensor(everywhere, device_mesh, made).to_local()
        for device, shard in local._local_tensors.items():
            np.testing.assert_array_equal(shard.numpy(), part(whole, bounds[device]))


@TORCH
def test_a_module_with_its_parameters_placed_computes_the_same(program: Program) -> None:
    import torch
    from torch.distributed._local_tensor import LocalTensor
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    from planner.export.sharding_documents import distribute_module
    from tests.testing.torch_devices import eight_local_devices

    layouts = {"0.weight": [{"replicate": True}, {"shard": 0}], "2.weight": [{"replicate": True}, {"shard": 1}]}
    arguments = [{"name": name, "kind": "parameter", "layout": layout} for name, layout in layouts.items()]
    torch.manual_seed(0)
    module, x = (
        torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 8)),
        torch.randn(4, 16),
    )
    wanted = module(x).detach()
    with eight_local_devices((2, 4)) as mesh:
        x = LocalTensor({device: x.clone() for device in range(8)})
        placed = distribute_module(module, mesh, {"arguments": arguments})
        weights = dict(placed.named_parameters())
        assert all(isinstance(weight, DTensor) for weight in weights.values())
        assert weights["0.weight"].placements == (Replicate(), Shard(0))
        made = placed(distribute_tensor(x, mesh, [Shard(0), Replicate()])).full_tensor()
        for mine in made._local_tensors.values():
            torch.testing.assert_close(mine, wanted)


@JAX
def test_a_partition_spec_cuts_every_tensor_as_the_plan_does(program: Program) -> None:
    from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

    document = json.loads(export_program(program, "partition-spec"))
    mesh = AbstractMesh(tuple(document["mesh"].values()), tuple(document["mesh"]))
    for name, layout, whole, bounds in laid_out(program, document):
        spec = PartitionSpec(*(tuple(entry) if isinstance(entry, list) else entry for entry in layout))
        shape = tuple((bounds[0, :, 1] - bounds[0, :, 0]).tolist())
        assert NamedSharding(mesh, spec).shard_shape(whole.shape) == shape, name


def test_model_explorer_has_every_instruction_and_the_bytes_of_every_scope(program: Program) -> None:
    document = json.loads(export_program(program, "model-explorer"))
    (graph,) = document["graphs"]
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert len(nodes) == len(graph["nodes"]) == len(program.arguments) + len(program.instructions) + 1
    for node in nodes.values():
        for edge in node["incomingEdges"]:
            outputs = nodes[edge["sourceNodeId"]]["outputsMetadata"]
            assert edge["sourceNodeOutputId"] in [output["id"] for output in outputs]
    top = {
        name: int(facts["received bytes"]) for name, facts in graph["groupNodeAttributes"].items() if "/" not in name
    }
    at_the_ends = sum(
        int(fact["value"])
        for node in nodes.values()
        for fact in node["attrs"]
        if fact["key"] == "received bytes" and not node["namespace"]
    )
    assert sum(top.values()) + at_the_ends == count_received_bytes(program).max(axis=1).sum()


@pytest.mark.parametrize("name", EVERY_FORMAT)
def test_every_format_is_the_same_text_each_time(name: str, program: Program) -> None:
    if name in ("mesh", "shard"):  # these have no words for an exchange: tests/export/test_mlir_programs.py
        return
    assert export_program(program, name) == export_program(program, name)


def test_an_unknown_format_is_refused(program: Program, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"format \(got gspmd; wanted one of mesh, shard, sdy, dtensor"):
        export_program(program, "gspmd")
