"""The program of an assignment: every layout as chosen, every op under its option, no useless reshard."""

from __future__ import annotations

import numpy as np
import pytest

from planner.choose.cost import CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.ir.execution_order import find_readers
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall, Reshard
from planner.pipeline import write_program
from tests.testing.graphs import random_graph
from tests.testing.random_strategies import random_strategies
from tests.testing.seeds import seeds


@pytest.mark.parametrize("seed", seeds(20))
def test_the_program_has_the_chosen_layouts(seed: int) -> None:
    graph, mesh = random_graph(seed, 6), Mesh.parse(["2x2", "3", "2x2x2"][seed % 3])
    question = formulate(graph, CostModel(mesh, load_profile("h100-sxm")))
    choice = question.decode(random_strategies(question, np.random.default_rng(seed)))
    program = write_program(question, choice)
    values = program.values
    runs = [done for done in program.instructions if isinstance(done, OpCall)]
    moves = [done for done in program.instructions if isinstance(done, Reshard)]
    assert dict(program.arguments) == choice.inputs
    assert tuple(values[name].sharding for name in program.outputs) == choice.outputs
    assert [(run.op.id, run.option, run.results) for run in runs] == [
        (op.id, choice.options[op.id], op.values) for op in graph.ops
    ]
    assert all(values[move.operand].sharding != values[move.result].sharding for move in moves)
    read = {name for done in program.instructions for name in done.operands} | set(program.outputs)
    assert {move.result for move in moves} <= read
    for value, sharding in choice.shared.items():
        assert len(find_readers(graph)[value]) > 1
        assert sharding in {each.sharding for name, each in values.items() if name.split(".")[0] == value}
