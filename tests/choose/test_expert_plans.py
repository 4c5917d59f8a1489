"""Plans of Mixtral's layers split the experts over the mesh; two all_to_alls send tokens there and back."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.collectives import Kind
from planner.ir.graph import Annotation, Graph
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall, Program, Reshard
from planner.ir.sharding import Sharding
from planner.pipeline import plan, validate_plan
from planner.planning.plan_types import Plan, Request

BATCH, SEQUENCE, EXPERTS, ACTIVE, WIDTH, BF16 = 16, 2048, 8, 2, 4096, 2
PRODUCT, COMBINE = "b e c d, e f d -> b e c f", "b s e c, b e c d -> b s d"
VIRTUAL = Mesh.parse("ep=16").split_axis("ep", EXPERTS).notation
# mesh, how many times its even share an expert takes, the axis of the experts
CASES = [("ep=8", 1.0, 0), ("dp=1,ep=8", 1.25, 1), (VIRTUAL, 1.0, 0)]


def layer(mesh: Mesh, capacity: float) -> Graph:
    """A training step of one layer in Mixtral's sizes, with few words."""
    sizes: dict[str, Any] = {"layers": 1, "batch": BATCH, "seq": SEQUENCE, "vocabulary": 512}
    document = import_zoo("mixtral-8x7b", train="adam", capacity=capacity, **sizes)
    return load_graph(GraphDocument.model_validate(document), mesh)


@cache
def planned(mesh: str, capacity: float = 1.0, whole: bool = False) -> Plan:
    """With every expert on every device, if `whole`."""
    devices = Mesh.parse(mesh)
    graph = layer(devices, capacity)
    names = [entry.id for entry in graph.inputs if "experts" in entry.name and entry.kind == "parameter"]
    pins = tuple(Annotation(name, Sharding(((), (), ()))) for name in names if whole)
    request = Request(gap=5e-3, deterministic=True)
    return plan(replace(graph, annotations=pins), devices, load_profile("h100-sxm"), request=request)


def program_of(found: Plan) -> Program:
    assert found.analysis is not None
    return found.analysis.program


def forward(program: Program, equation: str) -> list[OpCall]:
    runs = [done for done in program.instructions if isinstance(done, OpCall)]
    return [run for run in runs if run.op.attrs.get("equation") == equation and run.op.phase == "forward"]


def way_to(program: Program, run: OpCall, operand: int) -> list[int]:
    """Places of the moves that bring an operand."""
    makers = {name: place for place, done in enumerate(program.instructions) for name in done.results}
    name, found = run.operands[operand], list[int]()
    while isinstance(done := program.instructions[makers[name]], Reshard):
        found.insert(0, makers[name])
        name = done.operand
    return found


@pytest.mark.parametrize(("mesh", "capacity", "axis"), CASES)
def test_tokens_go_to_their_experts_and_back_by_all_to_alls(mesh: str, capacity: float, axis: int) -> None:
    """Each of its bytes by hand: an expert's slots of every sequence, [b, e, c, d], of which a device keeps 1 / n."""
    program, analysis = program_of(planned(mesh, capacity)), planned(mesh, capacity).analysis
    assert analysis is not None
    slots = min(SEQUENCE, math.ceil(capacity * ACTIVE * SEQUENCE / EXPERTS))
    tokens = BATCH * EXPERTS * slots * WIDTH * BF16
    devices = Mesh.parse(mesh).devices
    for equation, operand, source, target in ((PRODUCT, 0, 0, 1), (COMBINE, 1, 1, 0)):
        (run, *_) = forward(program, equation)
        places = way_to(program, run, operand)
        moves = [done.collective for place in places if isinstance(done := program.instructions[place], Reshard)]
        exchanged = [place for place, move in zip(places, moves, strict=True) if move.kind is Kind.ALL_TO_ALL]
        assert len(exchanged) == 1
        (move,) = [move for move in moves if move.kind is Kind.ALL_TO_ALL]
        assert (move.axes, move.source_dim, move.dim) == ((axis,), source, target)
        if devices == EXPERTS:  # the meshes of one axis
            assert len(moves) == 1
            assert (analysis.received[exchanged[0]] == tokens // devices * (EXPERTS - 1) // EXPERTS).all()
        assert analysis.times_ps[exchanged[0]] > 0
    for product in forward(program, PRODUCT):
        assert axis in dict(zip((loop.name for loop in product.op.rule.loops), product.option, strict=True))["e"]


@pytest.mark.parametrize("mesh", ["ep=8", VIRTUAL])
def test_a_plan_with_experts_apart_is_run_and_counted(mesh: str) -> None:
    verdict = validate_plan(planned(mesh)).verdict
    assert verdict is not None
    assert verdict.verdict == "equal"
    assert verdict.counted_bytes == verdict.predicted_bytes
    assert verdict.counted_peak_bytes == verdict.predicted_peak_bytes


def test_experts_apart_are_faster_than_every_expert_everywhere_and_than_any_named_layout() -> None:
    step = planned("ep=8").certificate.objective_s or math.inf
    together = planned("ep=8", whole=True).certificate
    assert step < together.bound_s
    assert all(step < named.step_s for named in planned("ep=8").baselines)


def test_fewer_experts_than_devices_are_split_over_a_virtual_axis_and_each_ones_work_over_the_rest() -> None:
    plain, virtual = planned("ep=16"), planned(VIRTUAL)
    for found, experts, inner in ((plain, (), (0,)), (virtual, (0,), (1,))):
        for product in forward(program_of(found), PRODUCT):
            split = dict(zip((loop.name for loop in product.op.rule.loops), product.option, strict=True))
            assert (split["e"], split["f"]) == (experts, inner)
    assert (virtual.certificate.objective_s or math.inf) < plain.certificate.bound_s
