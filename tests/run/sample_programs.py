"""Programs to run: those of random choices, training steps, and one that is sure to reduce partial sums."""

from __future__ import annotations

import numpy as np

from planner.choose.cost import CostModel
from planner.choose.formulate import Formulation, formulate
from planner.choose.hardware import load
from planner.documents.graphs import graph_from
from planner.documents.schemas import GraphDocument, checked
from planner.frontends.zoo import import_zoo
from planner.judge.baselines import baselines, strategies
from planner.model.collectives import Collective, Kind
from planner.model.graph import Graph
from planner.model.mesh import Mesh
from planner.model.program import Move, Program
from planner.pipeline import written
from planner.run.shrink import shrink
from tests.choices import random_strategies
from tests.graphs import Sketch


def question_of(graph: Graph, mesh: str) -> Formulation:
    return formulate(graph, CostModel(Mesh.parse(mesh), load("h100-sxm")))


def random_program(question: Formulation, seed: int) -> Program:
    chosen = random_strategies(question, np.random.default_rng(seed))
    return written(question, question.decode(chosen))


def training_step(model: str, dtype: str) -> Program:
    """With Adam, data and tensor parallel, shrunk."""
    document = import_zoo(model, layers=1, batch=8, seq=64, train="adam", dtype=dtype)
    mesh = Mesh.parse("dp=2,tp=4")
    graph = graph_from(checked(GraphDocument, document, model), mesh)
    question = question_of(graph, "dp=2,tp=4")
    chosen = strategies(question, next(each for each in baselines(graph, mesh) if each.name == "DPxTP"))
    assert chosen is not None
    return shrink(written(question, question.decode(chosen)))


def three_inputs() -> Program:
    """relu(x w) - y on 4 devices, the product's reduction loop split."""
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
    return [done.collective for done in program.instructions if isinstance(done, Move)]
