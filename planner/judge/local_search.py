"""Improve a plan by local search: change one sharding at a time and materialize again (RFC, SLD: sharding mutation).

Candidates are the producers, shared copies and readers of values that collectives move, and the ops whose work several
devices repeat, in the order of the time they might save. A candidate takes the strategy that is cheapest while its
neighbours stay as they are, and the change is kept if the whole program becomes faster. Every kept change lowers the
step time, so the search ends, in a local optimum. It needs no solver.
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
"""Writes a choice as a program."""


@dataclass(frozen=True)
class LocalSearchResult:
    """The final strategies, their program, and the step times in ps from the start on."""

    strategies: tuple[int, ...]
    program: Program
    steps_ps: tuple[int, ...]


def improve_locally(
    question: Formulation,
    strategies: Sequence[int],
    write: Write,
    *,
    limit: int | None = None,
    is_time_up: Callable[[], bool] = lambda: False,
) -> LocalSearchResult:
    """Improve strategies one at a time, until no change pays or the time is up.

    `limit` is in bytes per device: no change may raise the peak above it. None: no limit.
    """
    chosen = tuple(strategies)
    analysis = Analysis(write(question, question.decode(chosen)), question.model)
    times = [analysis.step_ps]
    while not is_time_up():
        better = _find_improvement(question, chosen, analysis, write=write, limit=limit, is_time_up=is_time_up)
        if better is None:
            break
        chosen, analysis = better
        times.append(analysis.step_ps)
    return LocalSearchResult(chosen, analysis.program, tuple(times))


def _find_improvement(
    question: Formulation,
    chosen: tuple[int, ...],
    analysis: Analysis,
    *,
    write: Write,
    limit: int | None,
    is_time_up: Callable[[], bool],
) -> tuple[tuple[int, ...], Analysis] | None:
    edges = _node_edges(question)
    for node in _rank_candidates(question, analysis):
        costs = _strategy_costs(question, edges[node], chosen, node=node)
        best = int(costs.argmin())
        if costs[best] >= costs[chosen[node]]:
            continue
        if is_time_up():
            return None
        # The problem prices one value's reshards exactly, but the program may do better or worse: the program
        # decides.
        changed = (*chosen[:node], best, *chosen[node + 1 :])
        after = Analysis(write(question, question.decode(changed)), question.model)
        fits = limit is None or after.peak_bytes <= max(limit, analysis.peak_bytes)
        if fits and after.step_ps < analysis.step_ps:
            return changed, after
    return None


def _rank_candidates(question: Formulation, analysis: Analysis) -> Iterator[int]:
    """Yield nodes by the time in ps that they might save, in descending order."""
    savings = Counter[tuple[Role, str]]()
    program, graph = analysis.program, question.graph
    maker = {value: (Role.OP, op.id) for op in graph.ops for value in op.values}
    read, origin = find_readers(graph), dict[str, str]()
    repeated = {one.op: 1 - 1 / one.times for one in find_redundancies(program)}
    for done, time in zip(program.instructions, analysis.times_ps, strict=True):
        if isinstance(done, OpCall):
            savings[Role.OP, done.op.id] += int(time * repeated.get(done.op.id, 0))
        elif isinstance(done, Reshard):
            value = origin[done.result] = origin.get(done.operand, done.operand)
            near = {maker.get(value, (Role.INPUT, value)), (Role.SHARED_COPY, value)}
            near |= {
                (Role.OUTPUT, str(by.operand)) if by.op is None else (Role.OP, graph.ops[by.op].id)
                for by in read.get(value, ())
            }
            savings.update(dict.fromkeys(near, time))
    return (question.index[key] for key, saved in savings.most_common() if saved and key in question.index)


def _node_edges(question: Formulation) -> list[list[tuple[bool, int]]]:
    """Return the edges of each node: whether it is their source, and their number."""
    edges: list[list[tuple[bool, int]]] = [[] for _ in question.variables]
    for number, edge in enumerate(question.problem.edges):
        edges[edge.source].append((True, number))
        edges[edge.target].append((False, number))
    return edges


def _strategy_costs(
    question: Formulation, edges: list[tuple[bool, int]], chosen: tuple[int, ...], *, node: int
) -> NDArray[np.int64]:
    """Return the cost in ps of each strategy of a node while its neighbours stay as chosen."""
    costs = question.problem.nodes[node].cost.copy()
    for is_source, number in edges:
        edge = question.problem.edges[number]
        if is_source:
            costs += edge.cost(edge.source_class, edge.target_class[chosen[edge.target]])
        else:
            costs += edge.cost(edge.source_class[chosen[edge.source]], edge.target_class)
    return costs
