"""The RFC's collectives, on sharded types, lead to the blocks of the target, even or not; a slow model judges."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from planner.errors import InvalidSharding
from planner.export.mlir import print_spmd
from planner.frontends.mlir import read_spmd
from planner.ir.collectives import Collective, Kind
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from planner.run.spmd_executor import run_spmd
from tests.testing.layout_oracle import Shape, agree, layouts, part, place, shard_array, unshard_array
from tests.testing.seeds import seeds

MESHES = ["2", "4", "2x2", "2x3", "3x2"]


def encoded(shape: Shape, sharding: Sharding, mesh: str = "") -> str:
    lists = [*map(list, sharding.split_axes), *([list(sharding.partial)] if sharding.partial else [])]
    return f"tensor<{'x'.join(map(str, shape))}xi64, #mesh.shard<{mesh}{lists}>>"


def program_text(mesh: Mesh, move: Collective, source: Sharding, shape: Shape, target: Sharding) -> str:
    axes: list[object] = [[]] * len(shape)
    if move.dim is not None:
        axes[move.dim] = list(move.axes)
    kinds = f"{encoded(shape, source)} -> {encoded(shape, target)}"
    line = {
        Kind.ALL_GATHER: f"all_gather %x {{mesh_axis = {axes}}}",
        Kind.ALL_SLICE: f"local_split %x {{sharding = {axes}}}",
        Kind.ALL_REDUCE: f'all_reduce %x {{mesh_axis = {list(move.axes)}, reduction = "sum"}}',
        Kind.REDUCE_SCATTER: f"reduce_scatter %x {{mesh_axis = {list(move.axes)}, tensor_axis = {move.dim}}}",
    }[move.kind]
    return f"""mesh.cluster @m(rank = {len(mesh.shape)}, dim_sizes = {list(mesh.shape)})
    func.func @f(%x: {encoded(shape, source)}) -> {encoded(shape, target)} attributes {{mesh_cluster = @m}} {{
      %0 = mesh.{line} : {kinds}
      return %0 : {encoded(shape, target)}
    }}"""


def random_move(random: Random, source: Sharding, mesh: Mesh) -> Collective | None:
    """A collective that the shardings allow, whether or not their blocks do."""
    dim = random.randrange(len(source.split_axes))
    used = {axis for axes in (*source.split_axes, source.partial) for axis in axes}
    free = [axis for axis in range(len(mesh.shape)) if axis not in used]
    tail = source.split_axes[dim][-1:] if random.random() < 0.5 else source.split_axes[dim]
    moves = [
        *([Collective(Kind.ALL_GATHER, tail, dim)] if tail else []),
        *([Collective(Kind.ALL_SLICE, tuple(random.sample(free, len(free))), dim)] if free else []),
        *([Collective(Kind.ALL_REDUCE, source.partial)] if source.partial else []),
        *([Collective(Kind.REDUCE_SCATTER, source.partial, dim)] if source.partial else []),
    ]
    return random.choice(moves) if moves else None


def blocks_nest(move: Collective, source: Sharding, target: Sharding, shape: Shape, mesh: Mesh) -> bool:
    """Whether every block of the coarser split is the union of those of the finer, element by element."""
    if move.dim is None or source.split_axes == target.split_axes:
        return True
    coarse, fine = sorted((source, target), key=lambda each: len(each.split_axes[move.dim or 0]))
    held: dict[int, set[int]] = {}
    whole: dict[int, set[int]] = {}
    for device in range(mesh.devices):
        group = place(mesh, device, coarse.split_axes[move.dim])
        blocks = (part(each, shape, mesh, device)[move.dim] for each in (coarse, fine))
        outer, inner = (set(range(block.start, block.stop)) for block in blocks)
        whole[group] = outer
        held.setdefault(group, set()).update(inner)
    return held == whole


@pytest.mark.parametrize("seed", seeds(400))
def test_collectives_on_sharded_types_reach_the_blocks_of_the_whole_tensor(seed: int) -> None:
    """conformance 42, conformance 43, conformance 45, conformance 51"""
    random, numbers = Random(seed), np.random.default_rng(seed)
    mesh = Mesh.parse(random.choice(MESHES))
    shape = tuple(random.randint(1, 13) for _ in range(random.randint(1, 2)))
    source = random.choice(layouts(len(shape), mesh, shape, [Reduction.SUM]))
    move = random_move(random, source, mesh)
    if move is None:
        return
    target = move.target(source)
    text = program_text(mesh, move, source, shape, target)
    if not blocks_nest(move, source, target, shape, mesh):
        with pytest.raises(InvalidSharding, match="blocks that do not nest"):
            read_spmd(text)
        return
    program = read_spmd(text)
    whole = numbers.integers(-50, 50, shape)
    run = run_spmd(program, {"x": shard_array(whole, source, mesh, numbers)})
    assert agree(unshard_array([held.array for held in run.outputs[0]], target, shape, mesh), whole)
    assert read_spmd(print_spmd(program)) == program


def test_uneven_shards_are_gathered_to_the_size_that_the_type_states() -> None:
    seven = Sharding(((0,),))
    text = program_text(Mesh.parse("4"), Collective(Kind.ALL_GATHER, (0,), 0), seven, (7,), Sharding(((),)))
    program = read_spmd(text)
    run = run_spmd(program, {"x": [np.array([1, 2]), np.array([3, 4]), np.array([5, 6]), np.array([7])]})
    assert [held.array.tolist() for held in run.outputs[0]] == [[1, 2, 3, 4, 5, 6, 7]] * 4
    assert str(program.values[program.outputs[0]].type) == "i64[7]"


def permutation(here: str, there: str, source: Sharding, target: Sharding) -> str:
    kinds = encoded((4,), source, "@mesh0, "), encoded((4,), target, "@mesh1, ")
    return f"""mesh.cluster @mesh0(rank = {len(here.split("x"))}, dim_sizes = [{here.replace("x", ", ")}])
    mesh.mesh @mesh1(shape = {there}) {{shardplan.devices = [{", ".join(map(str, range(4, 4 + count(there))))}]}}
    func.func @f(%x: {kinds[0]}) -> {kinds[1]} {{
      %0 = mesh.collective_permute %x : {kinds[0]} -> {kinds[1]}
      return %0 : {kinds[1]}
    }}"""


def count(sizes: str) -> int:
    return int(np.prod([int(size) for size in sizes.split("x")]))


def test_a_sharded_tensor_goes_to_the_devices_of_another_mesh() -> None:
    """conformance 56"""
    split = Sharding(((0,),))
    program = read_spmd(permutation("2", "2", split, split))
    run = run_spmd(program, {"x": [np.array([1, 2]), np.array([3, 4])]})
    assert program.values[program.outputs[0]].mesh == "mesh1"
    assert [held.array.tolist() for held in run.outputs[0]] == [[1, 2], [3, 4]]
    assert read_spmd(print_spmd(program)) == program


@pytest.mark.parametrize(
    ("here", "there", "target"),
    [("2", "4", ((0,),)), ("4", "2x2", ((0,),)), ("2", "2", ((),))],
)
def test_another_sharding_or_mesh_is_no_permutation(here: str, there: str, target: tuple[tuple[int, ...]]) -> None:
    with pytest.raises(InvalidSharding, match="the same sharding on a mesh of the same shape"):
        read_spmd(permutation(here, there, Sharding(((0,),)), Sharding(target)))


def test_the_cases_hold_uneven_blocks_that_nest_and_some_that_do_not() -> None:
    mesh = Mesh.parse("2x2")
    source, target = Sharding(((0,),)), Sharding(((0, 1),))
    move = Collective(Kind.ALL_SLICE, (1,), 0)
    found = [blocks_nest(move, source, target, (size,), mesh) for size in range(2, 14)]
    assert found == [False, True, True, False, False, True, True, False, False, True, True, False]
