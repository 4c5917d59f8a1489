"""Enumeration of every program of a formulation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from planner.choose.formulate import Choice, Formulation
from planner.choose.options import enumerate_options, list_layouts
from planner.errors import InvalidSharding
from planner.ir.execution_order import find_readers
from planner.ir.graph import Graph
from planner.ir.sharding import Sharding
from planner.judge.analysis import Analysis
from planner.pipeline import write_program


def every_program(graph: Graph, question: Formulation) -> Iterator[tuple[int, int]]:
    """Yield step time (ps) and peak (bytes) of every program: all layouts, options and shardings of shared copies."""
    mesh, who = question.model.mesh, find_readers(graph)
    by_op = [list(enumerate_options(op.rule, mesh)) for op in graph.ops]
    whole = {value: list_layouts(kind, mesh) for value, kind in graph.types.items()}
    made = {entry.id: whole[entry.id] for entry in graph.inputs}
    for op, mine in zip(graph.ops, by_op, strict=True):
        made |= {v: [op.rule.result_sharding(k, option) for option in mine] for k, v in enumerate(op.values)}
    hubs: dict[str, list[Sharding]] = {}
    for value, reading in who.items():
        if len(reading) > 1:
            read = [
                whole[value]
                if r.op is None
                else [graph.ops[r.op].rule.read_sharding(r.operand, option, mesh) for option in by_op[r.op]]
                for r in reading
            ]
            hubs[value] = list(dict.fromkeys(state for states in (made[value], *read) for state in states))
    inputs, shared = [entry.id for entry in graph.inputs], list(hubs)
    for starts in product(*(whole[name] for name in inputs)):
        for chosen in product(*by_op):
            for centres in product(*hubs.values()):
                for ends in product(*(whole[value] for value in graph.outputs)):
                    choice = Choice(
                        dict(zip(inputs, starts, strict=True)),
                        {op.id: option for op, option in zip(graph.ops, chosen, strict=True)},
                        dict(zip(shared, centres, strict=True)),
                        ends,
                    )
                    try:
                        found = Analysis(write_program(question, choice), question.model)
                    except InvalidSharding:
                        continue  # what is not partial cannot become so
                    yield found.step_ps, found.peak_bytes
