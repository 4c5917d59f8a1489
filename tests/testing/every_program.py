"""Every program that a formulation offers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from planner.choose.formulate import Choice, Formulation
from planner.choose.options import layouts, options
from planner.errors import InvalidSharding
from planner.judge.analysis import Analysis
from planner.model.graph import Graph
from planner.model.sharding import Sharding
from planner.model.steps import readers
from planner.pipeline import written


def every_program(graph: Graph, question: Formulation) -> Iterator[tuple[int, int]]:
    """Time and peak of every program: every layout, every option, every hub in which its value is made or read."""
    mesh, who = question.model.mesh, readers(graph)
    by_op = [list(options(op.rule, mesh)) for op in graph.ops]
    whole = {value: layouts(kind, mesh) for value, kind in graph.types.items()}
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
                        found = Analysis(written(question, choice), question.model)
                    except InvalidSharding:
                        continue  # what is not partial cannot become so
                    yield found.step_ps, found.peak_bytes
