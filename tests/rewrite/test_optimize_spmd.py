"""Passes over programs of collectives on local tensors: what each makes of a text, and that every device keeps its
outputs.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from planner.frontends.mlir import read_spmd
from planner.ir.graph import Op
from planner.ir.mesh import Mesh
from planner.ops import bind_op
from planner.rewrite.optimize_spmd import SPMD_PASSES, optimize_spmd
from planner.run.spmd_executor import run_spmd
from planner.run.undef import PartialArray
from planner.spmd import Cluster, LocalType, SpmdBuilder, SpmdProgram
from tests.testing import random_spmd
from tests.testing.command_line import refused, shardplan
from tests.testing.seeds import batches, seeds

CUTS = {"all_slice": "slice_axis", "reduce_scatter": "scatter_axis"}
CHOICES = ["all_reduce", "all_reduce", "all_gather", *CUTS, "add", "maximum", "full"]
T, U, V, W = "tensor<8xi64>", "tensor<4xi64>", "tensor<16xi64>", "tensor<32xi64>"
AR = "mesh.all_reduce {} on @m mesh_axes = [{}]{} : " + f"{T} -> {T}"
GATHER = "mesh.all_gather {} on @m mesh_axes = [{}] gather_axis = 0 : {} -> {}"
SLICE = "mesh.all_slice {} on @m mesh_axes = [{}] slice_axis = 0 : {} -> {}"
SCATTER = "mesh.reduce_scatter {} on @m mesh_axes = [{}] scatter_axis = 0 : {} -> {}"
CONST = f"arith.constant dense<3> : {T}"
MAX = "arith.maxsi {}, {} : {}"
ADD = "arith.addi {}, {} : {}"

# pass, lines (the last one returned), operations that are left: on a mesh of 2x2, x and y of 8 elements on each device
REWRITES = [
    ("fold_collectives", [AR.format("%x", 0, ""), AR.format("%0", 1, "")], "all_reduce [0, 1]"),  # conformance 75
    ("fold_collectives", [AR.format("%x", "", "")], ""),  # conformance 9
    ("fold_collectives", [AR.format("%x", 0, ""), AR.format("%0", 0, "")], "all_reduce [0], all_reduce [0]"),
    ("fold_collectives", [AR.format("%x", 0, " reduction = <max>"), AR.format("%0", 1, "")], None),
    ("fold_collectives", [GATHER.format("%x", 1, T, V), GATHER.format("%0", 0, V, W)], "all_gather [0, 1]"),
    ("fold_collectives", [SLICE.format("%x", 1, T, U), SLICE.format("%0", 0, U, "tensor<2xi64>")], "all_slice [1, 0]"),
    ("cancel_gather_slice", [GATHER.format("%x", 1, T, V), SLICE.format("%0", 1, V, T)], ""),
    ("cancel_gather_slice", [GATHER.format("%x", 1, T, V), SLICE.format("%0", 0, V, T)], None),
    ("cancel_gather_slice", [SLICE.format("%x", 1, T, U), GATHER.format("%0", 1, U, T)], None),
    (
        "cancel_gather_slice",
        [AR.format("%x", 1, ""), SLICE.format("%0", 1, T, U), GATHER.format("%1", 1, U, T)],
        "all_reduce [1]",
    ),
    # conformance 80
    ("form_reduce_scatter", [AR.format("%x", 0, ""), SLICE.format("%0", 0, T, U)], "reduce_scatter [0]"),
    (
        "form_reduce_scatter",
        [AR.format("%x", "0, 1", ""), SLICE.format("%0", 1, T, U)],
        "reduce_scatter [1], all_reduce [0]",
    ),
    ("form_reduce_scatter", [AR.format("%x", 0, ""), SLICE.format("%0", 1, T, U)], None),
    (
        "reassociate_all_reduce",  # conformance 76
        [AR.format("%x", 0, ""), AR.format("%y", 0, ""), ADD.format("%0", "%1", T)],
        "add, all_reduce [0]",
    ),
    (
        "reassociate_all_reduce",
        [AR.format("%x", 0, " reduction = <max>"), AR.format("%y", 0, " reduction = <max>"), MAX.format("%0", "%1", T)],
        "maximum, all_reduce [0]",
    ),
    ("reassociate_all_reduce", [AR.format("%x", 0, ""), AR.format("%y", 1, ""), ADD.format("%0", "%1", T)], None),
    ("reassociate_all_reduce", [AR.format("%x", 0, ""), AR.format("%y", 0, ""), MAX.format("%0", "%1", T)], None),
    (
        "reassociate_reduce_scatter",  # conformance 77
        [SCATTER.format("%x", 0, T, U), SCATTER.format("%y", 0, T, U), ADD.format("%0", "%1", U)],
        "add, reduce_scatter [0]",
    ),
    (
        "sink_all_gather",  # conformance 78
        [GATHER.format("%x", 0, T, V), GATHER.format("%y", 0, T, V), MAX.format("%0", "%1", V)],
        "maximum, all_gather [0]",
    ),
    ("sink_all_gather", [GATHER.format("%x", 0, T, V), GATHER.format("%y", 1, T, V), MAX.format("%0", "%1", V)], None),
    (
        "decompose_all_reduce",  # conformance 79
        [AR.format("%x", 0, ""), CONST, MAX.format("%0", "%1", T)],
        "reduce_scatter [0], full, maximum, all_gather [0]",
    ),
    ("decompose_all_reduce", [AR.format("%x", 0, ""), MAX.format("%0", "%y", T)], None),
    ("shrink_constants", [CONST, SLICE.format("%0", 1, T, U)], "full"),  # conformance 70
    ("eliminate_common_collectives", [AR.format("%x", 0, ""), AR.format("%x", 0, ""), MAX.format("%0", "%1", T)],
     "all_reduce [0], maximum"),
    ("eliminate_dead_code", [AR.format("%x", 0, ""), AR.format("%y", 0, "")], "all_reduce [0]"),
]  # fmt: skip


def text_of(lines: list[str]) -> str:
    body = "\n".join(f"%{number} = {line}" for number, line in enumerate(lines))
    kind = lines[-1].split()[-1]
    return f"""mesh.mesh @m(shape = 2x2)
    func.func @f(%x: {T}, %y: {T}) -> {kind} {{
    {body}
    return %{len(lines) - 1} : {kind}
    }}"""


def ops_of(program: SpmdProgram) -> str:
    found = re.findall(r"= (\w+)\(.*?\)(?:.* mesh_axes=(\[.*?\]))?", str(program))
    return ", ".join(f"{op} {axes.replace(',', ', ')}".strip() for op, axes in found)


def assert_equal_runs(before: SpmdProgram, after: SpmdProgram, what: str) -> None:
    """Run both on different integers per device: outputs and undefined elements are equal on every device."""
    random = np.random.default_rng(0)
    given = {
        name: [random.integers(-9, 9, value.type.tensor.shape, np.int64) for _ in range(before.meshes["m"].devices)]
        for name, value in before.arguments
    }
    for one, other in zip(run_spmd(before, given).outputs, run_spmd(after, given).outputs, strict=True):
        assert all(map(held_alike, one, other)), what


def held_alike(one: PartialArray, other: PartialArray) -> bool:
    """Return whether both are undefined in the same places and equal in the others."""
    masks = [held.mask(np) for held in (one, other)]
    alike = one.array.shape == other.array.shape and bool((masks[0] == masks[1]).all())
    return alike and bool((one.array == other.array)[~masks[0]].all())


@pytest.mark.parametrize(("name", "lines", "left"), REWRITES)
def test_a_pass_rewrites_its_pattern_and_nothing_else(name: str, lines: list[str], left: str | None) -> None:
    program = read_spmd(text_of(lines))
    after = SPMD_PASSES[name](program)
    if left is None:
        assert after is program
    else:
        assert ops_of(after) == left
    assert_equal_runs(program, after, name)


def random_program(seed: int) -> SpmdProgram:
    """A chain of collectives and ops over the same few axes, so that passes find their patterns."""
    random = np.random.default_rng(seed)
    mesh = ["2x2", "2x3", "4", "2x1x2"][random.integers(4)]
    build, rank = SpmdBuilder({"m": Cluster.parse(mesh)}, "m"), len(Mesh.parse(mesh).axes)
    names = [build.argument(name, LocalType((12, 6), "i64")) for name in "xy"]
    groups = [tuple(random.permutation(rank)[: random.integers(0, 3)].tolist()) for _ in range(2)]
    for _ in range(12):
        name = names[-1 - int(random.integers(min(3, len(names))))]
        axes, dim = groups[random.integers(2)], int(random.integers(2))
        kind = build.types[name]
        size = kind.tensor.shape[dim]
        op = str(random.choice(CHOICES))
        if op == "all_reduce":
            reduction = random.choice(["sum", "sum", "max"])
            names += build.call(op, name, mesh_axes=axes, reduction=reduction)
        elif op == "all_gather" and size < 100:
            names += build.call(op, name, mesh_axes=axes, gather_axis=dim)
        elif op in CUTS and size % build.clusters["m"].mesh.group_size(axes) == 0:
            names += build.call(op, name, types=None, dtype=None, mesh_axes=axes, **{CUTS[op]: dim})
        elif op in ("add", "maximum"):
            others = [each for each in names if build.types[each] == kind]
            names += add_local(build, op, (name, random.choice(others)), kind)
        elif op == "full":
            names += add_local(build, op, (), kind)
    return build.program([names[-1], names[-2]])


def add_local(build: SpmdBuilder, op: str, operands: tuple[str, ...], kind: LocalType) -> tuple[str, ...]:
    tensor, attrs = kind.tensor, {"value": 2} if op == "full" else {}
    rule = bind_op(op, (tensor,) * len(operands), (tensor,), attrs=attrs, notation=None)
    return build.local(Op("n", op, operands, (tensor,), rule, attrs), *operands)


@pytest.mark.parametrize("batch", batches(400, 50))
def test_every_device_keeps_its_outputs(batch: list[int]) -> None:
    for seed in batch:
        program = random_program(seed)
        for name in SPMD_PASSES:
            assert_equal_runs(program, SPMD_PASSES[name](program), f"seed {seed}, {name}")
        assert_equal_runs(program, optimize_spmd(program), f"seed {seed}")
        assert_equal_runs(program, optimize_spmd(program, tuple(SPMD_PASSES)), f"seed {seed}, all")


def test_every_pass_finds_its_pattern_in_random_programs() -> None:
    found: Counter[str] = Counter()
    for seed in range(150):
        program = random_program(seed)
        found.update(name for name in SPMD_PASSES if SPMD_PASSES[name](program) is not program)
    assert set(found) == set(SPMD_PASSES)


@pytest.mark.parametrize("seed", seeds(100))
def test_messages_and_uneven_tensors_survive_all_passes(seed: int) -> None:
    writer, _ = random_spmd.written(seed)
    program = writer.build.program(list(writer.held))
    after = optimize_spmd(program, tuple(SPMD_PASSES))
    runs = [run_spmd(each, writer.given, reducers=random_spmd.REDUCERS) for each in (program, after)]
    for one, other in zip(*(run.outputs for run in runs), strict=True):
        assert all(map(held_alike, one, other))


def test_the_command_runs_named_passes(tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(text_of([AR.format("%x", 0, ""), CONST, MAX.format("%0", "%1", T)]))
    whole = shardplan("optimize", path)
    assert whole.code == 0
    assert "mesh.all_reduce %x on @m mesh_axes = [0]" in whole.out
    named = shardplan("optimize", path, "--pass", "decompose-all-reduce", "--format", "shard").out
    assert [word in named for word in ("shard.reduce_scatter", "shard.all_gather", "all_reduce")] == [True, True, False]
    assert ops_of(read_spmd(named)) == "reduce_scatter [0], full, maximum, all_gather [0]"
    assert shardplan("optimize", path, "--json").json == {"program": whole.out[:-1]}
    refused(shardplan("optimize", path, "--pass", "sideways"), "sideways")


def test_the_command_needs_collectives(tmp_path: Path) -> None:
    path = tmp_path / "graph.mlir"
    path.write_text(f"mesh.mesh @m(shape = 2)\nfunc.func @f(%x: {T}) -> {T} {{\n return %x : {T}\n}}")
    refused(shardplan("optimize", path), "no program of collectives")
