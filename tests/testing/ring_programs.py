"""Programs in which blocks of keys and values pass round a ring of devices."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

import solvers
from planner.choose.formulate import Formulation
from planner.choose.variables import Role
from planner.errors import InvalidSharding
from planner.ir.graph import Graph
from planner.ir.program import Program
from planner.pipeline import write_program
from tests.testing.graphs import Sketch
from tests.testing.random_strategies import random_strategies
from tests.testing.sample_programs import question_of

ATTENTION = "scaled_dot_product_attention"
BATCH, HEADS, KEY_HEADS, SEQUENCE, HEAD = 1, 4, 2, 16, 4


def trained(sequence: int = SEQUENCE, **attrs: object) -> Graph:
    """Return attention with shared keys, and its gradient."""
    s = Sketch()
    own, shared = (BATCH, KEY_HEADS, HEADS // KEY_HEADS, sequence, HEAD), (BATCH, KEY_HEADS, 1, sequence, HEAD)
    query, key, value, grad = (s.input(*shape) for shape in (own, shared, shared, own))
    mixed = s.op(ATTENTION, [query, key, value], own, ring=True, causal=True, **attrs)
    into = s.op(
        f"{ATTENTION}_backward", [query, key, value, grad], own, shared, shared, ring=True, causal=True, **attrs
    )
    outputs = [s.op("negate", [name], shape) for name, shape in ((mixed, own), (into, own), (f"{into}:1", shared))]
    return s.graph(*outputs, f"{into}:2")


def with_rings(question: Formulation, seed: int) -> solvers.Choice:
    """Return random strategies, in which every op runs as a ring that can."""
    random = np.random.default_rng(seed)
    chosen = np.array(random_strategies(question, random))
    for op in question.graph.ops:
        place = question.index[Role.OP, op.id]
        rings = [n for n, option in enumerate(question.variables[place].options) if op.rule.ring_axes(option)]
        if rings:
            chosen[place] = random.choice(rings)
    return chosen


def possible_rings(question: Formulation, seed: int) -> tuple[solvers.Choice, Program]:
    """Return random strategies with rings, and their program; not every pair of layouts has a way between them."""
    for attempt in range(seed, seed + 50):
        with suppress(InvalidSharding):
            chosen = with_rings(question, attempt)
            return chosen, write_program(question, question.decode(chosen))
    raise AssertionError("no program")


def ring_program(mesh: str, seed: int = 0, graph: Graph | None = None) -> Program:
    return possible_rings(question_of(graph or trained(), mesh), seed)[1]
