"""Changing a sharding where the analysis says it pays, and materialising anew (RFC, SLD: sharding mutation).

Suspects are what the analysis finds wanting: the makers, the shared sharding and the readers of values that
collectives move, and the ops whose work several devices repeat, the dearest first. A suspect takes the strategy
that is best next to its neighbours as they are; the change stays if the whole program is faster. Every change
lowers the step time, so this ends, at a program that no such change of one sharding improves: not the optimum,
which is the solver's, but good without one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.choose.formulate import Choice, Formulation
from planner.choose.variables import Role
from planner.ir.execution_order import find_readers
from planner.ir.program import OpCall, Program, Reshard
from planner.judge.analysis import Analysis
from planner.judge.redundancy import find_redundancies

Write = Callable[[Formulation, Choice], Program]
"""Materialises a choice."""


@dataclass(frozen=True)
class LocalSearchResult:
    """The strategies at the end, their program, and the step times in ps from the start on."""

    strategies: tuple[int, ...]
    program: Program
    steps_ps: tuple[int, ...]


def improve_locally(
    question: Formulation, strategies: Sequence[int], write: Write, *, limit: int | None = None
) -> LocalSearchResult:
    """Improve strategies one at a time. `limit` in bytes per device: no change exceeds it and the peak before."""
    chosen = tuple(strategies)
    analysis = Analysis(write(question, question.decode(chosen)), question.model)
    times = [analysis.step_ps]
    while (better := _find_improvement(question, chosen, analysis, write=write, limit=limit)) is not None:
        chosen, analysis = better
        times.append(analysis.step_ps)
    return LocalSearchResult(chosen, analysis.program, tuple(times))


def _find_improvement(
    question: Formulation, chosen: tuple[int, ...], analysis: Analysis, *, write: Write, limit: int | None
) -> tuple[tuple[int, ...], Analysis] | None:
    edges = _node_edges(question)
    for node in _rank_candidates(question, analysis):
        costs = _strategy_costs(question, edges[node], chosen, node=node)
        best = int(costs.argmin())
        if costs[best] >= costs[chosen[node]]:
            continue
        changed = (*chosen[:node], best, *chosen[node + 1 :])
        after = Analysis(write(question, question.decode(changed)), question.model)
        fits = limit is None or after.peak_bytes <= max(limit, analysis.peak_bytes)
        if fits and after.step_ps < analysis.step_ps:
            return changed, after
    return None


def _rank_candidates(question: Formulation, analysis: Analysis) -> Iterator[int]:
    """Nodes by the time in ps that they might save, most first."""
    weight = Counter[tuple[Role, str]]()
    program, graph = analysis.program, question.graph
    maker = {value: (Role.OP, op.id) for op in graph.ops for value in op.values}
    read, origin = find_readers(graph), dict[str, str]()
    repeated = {one.op: 1 - 1 / one.times for one in find_redundancies(program)}
    for done, time in zip(program.instructions, analysis.times_ps, strict=True):
        if isinstance(done, OpCall):
            weight[Role.OP, done.op.id] += int(time * repeated.get(done.op.id, 0))
        elif isinstance(done, Reshard):
            value = origin[done.result] = origin.get(done.operand, done.operand)
            near = {maker.get(value, (Role.INPUT, value)), (Role.SHARED_COPY, value)}
            near |= {
                (Role.OUTPUT, str(by.operand)) if by.op is None else (Role.OP, graph.ops[by.op].id)
                for by in read.get(value, ())
            }
            weight.update(dict.fromkeys(near, time))
    return (question.index[key] for key, saved in weight.most_common() if saved and key in question.index)


def _node_edges(question: Formulation) -> list[list[tuple[bool, int]]]:
    """Edges of every node: whether it is their source, and their number."""
    found: list[list[tuple[bool, int]]] = [[] for _ in question.variables]
    for number, edge in enumerate(question.problem.edges):
        found[edge.source].append((True, number))
        found[edge.target].append((False, number))
    return found


def _strategy_costs(
    question: Formulation, edges: list[tuple[bool, int]], chosen: tuple[int, ...], *, node: int
) -> NDArray[np.int64]:
    """Cost of every strategy of a node in ps, its neighbours as chosen."""
    costs = question.problem.nodes[node].cost.copy()
    for is_source, number in edges:
        edge = question.problem.edges[number]
        if is_source:
            costs += edge.matrix[edge.source_class, edge.target_class[chosen[edge.target]]]
        else:
            costs += edge.matrix[edge.source_class[chosen[edge.source]], edge.target_class]
    return costs
