"""Programs to run: random assignments, training steps, and one that always reduces partial sums."""

from __future__ import annotations

import numpy as np

from planner.choose.cost import CostModel
from planner.choose.formulate import Formulation, formulate
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.frontends.zoo import import_zoo
from planner.ir.collectives import Collective, Kind
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Program, Reshard
from planner.ir.sharding import Reduction, Sharding
from planner.judge.baselines import encode_baseline
from planner.judge.standard_layouts import list_baselines
from planner.pipeline import write_program
from planner.run.shrink import shrink
from tests.testing.graphs import Sketch
from tests.testing.op_case import Case
from tests.testing.random_strategies import random_strategies


def question_of(graph: Graph, mesh: str) -> Formulation:
    return formulate(graph, CostModel(Mesh.parse(mesh), load_profile("h100-sxm")))


def random_program(question: Formulation, seed: int) -> Program:
    chosen = random_strategies(question, np.random.default_rng(seed))
    return write_program(question, question.decode(chosen))


def training_step(model: str, dtype: str, notation: str = "dp=2,tp=4") -> Program:
    """Return a shrunk training step with Adam, data and tensor parallel."""
    document = import_zoo(model, layers=1, batch=8, seq=64, train="adam", dtype=dtype)
    mesh = Mesh.parse(notation)
    graph = load_graph(validate_document(GraphDocument, document, model), mesh)
    question = question_of(graph, notation)
    chosen = encode_baseline(question, next(each for each in list_baselines(graph, mesh) if each.name == "DPxTP"))
    assert chosen is not None
    return shrink(write_program(question, question.decode(chosen)))


def three_inputs() -> Program:
    """Return relu(x w) - y on 4 devices with the product's reduction loop split."""
    s = Sketch()
    x, w, y = s.input(8, 8), s.input(8, 8), s.input(8, 8)
    product = s.op("matmul", [x, w], (8, 8))
    last = s.op("subtract", [s.op("relu", [product], (8, 8)), y], (8, 8))
    question = question_of(s.graph(last), "4")
    for seed in range(500):
        program = random_program(question, seed)
        if program.values[product].sharding.partial and [d for d in moves(program) if d.kind is Kind.ALL_REDUCE]:
            return program
    raise AssertionError("no program with an all_reduce")


def moves(program: Program) -> list[Collective]:
    return [done.collective for done in program.instructions if isinstance(done, Reshard)]


def alone(case: Case) -> Graph:
    """Return a graph of one op."""
    s = Sketch(case.results[0].dtype)
    operands = [s.input(*kind.shape, dtype=kind.dtype) for kind in case.operands]
    s.op(case.op, operands, *case.results, **case.attrs)
    return s.graph(*s.ops[0].values)


def known_by_its_rule() -> Graph:
    """Return a graph with an op that is defined by its rule only and is not in the table."""
    document = {
        "format": "shardplan.graph",
        "version": 1,
        "name": "custom",
        "producer": {"name": "test", "version": "1"},
        "inputs": [{"id": "x", "kind": "input", "name": "x", "shape": [8, 8], "dtype": "f32"}],
        "nodes": [
            {
                "id": "n",
                "op": "sort_rows",
                "inputs": ["x"],
                "attrs": {},
                "outputs": [{"shape": [8, 8], "dtype": "f32"}],
                "rule": "a b -> a b; blocked b",
            }
        ],
        "outputs": ["n"],
        "annotations": [],
    }
    return load_graph(validate_document(GraphDocument, document, "test"), Mesh.parse("2"))


def left_partial(reduction: Reduction, wrong: bool = False) -> Program:
    """Return a program whose output x is partial over an axis of 3 and split over another (`wrong`: returns y)."""
    s = Sketch("f32" if reduction.dtype_error("f32") is None else "i32")
    x, y = s.input(5, 4), s.input(5, 4)
    graph = s.graph(x, y)
    held = Sharding(((1,), ()), (0,), reduction)
    return Program(graph, Mesh.parse("3x2"), ((x, held), (y, held)), (), (y if wrong else x, y))
