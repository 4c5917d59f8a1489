"""Encode named layouts (`planner.judge.standard_layouts`) as assignments, so that they are priced as plans are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from planner.choose.formulate import Formulation
from planner.choose.variables import Role
from planner.ir.sharding import Sharding
from planner.judge.standard_layouts import Baseline


def encode_baseline(formulation: Formulation, baseline: Baseline) -> list[int] | None:
    """Encode a baseline as an assignment.

    A graph input is brought anew into the sharding that each reader wants, as in `planner.judge.baseline_choice`: FSDP
    gathers a parameter before each use. Other shared copies, and outputs, take their cheapest strategy given the rest.
    Returns None where required annotations of the graph rule the baseline out.
    """
    fixed: dict[int, int] = {}
    for op in formulation.graph.ops:
        option, mesh = baseline.options[op.id], formulation.model.mesh
        read = [op.rule.read_sharding(operand, option, mesh) for operand in range(len(op.inputs))]
        made = [op.rule.result_sharding(result, option) for result in range(len(op.results))]
        if not _fix_node(fixed, formulation, formulation.index[Role.OP, op.id], wanted=[*read, *made]):
            return None
    for entry in formulation.graph.inputs:
        node = formulation.index[Role.INPUT, entry.id]
        stored = baseline.inputs[entry.id]
        if not _fix_node(fixed, formulation, node, wanted=[stored]):
            return None
        copy = formulation.index.get((Role.SHARED_COPY, entry.id))
        if copy is not None:
            _fix_node(fixed, formulation, copy, wanted=[stored, stored])
    _complete_strategies(fixed, formulation)
    return [fixed[node] for node in range(len(formulation.variables))]


def _fix_node(fixed: dict[int, int], formulation: Formulation, node: int, *, wanted: Sequence[Sharding]) -> bool:
    """Fix a node's strategy with these shardings. Return whether it has one."""
    variable = formulation.variables[node]
    matches = np.ones(len(variable.costs), bool)
    for port, state in zip((*variable.operands, *variable.results), wanted, strict=True):
        matches &= port.is_in(state)
    if matches.any():
        fixed[node] = int(matches.argmax())
    return bool(matches.any())


def _complete_strategies(fixed: dict[int, int], formulation: Formulation) -> None:
    price, edges = _neighbour_prices(fixed, formulation), formulation.problem.edges
    leaving: dict[int, list[int]] = defaultdict(list)
    for number, edge in enumerate(edges):
        leaving[edge.source].append(number)
    for role in (Role.SHARED_COPY, Role.OUTPUT):
        for node, variable in enumerate(formulation.variables):
            if variable.role is role and node not in fixed:
                # Neighbours that are not fixed yet were priced at their best; from now on they see this choice.
                fixed[node] = int(price[node].argmin())
                for edge in (edges[number] for number in leaving[node]):
                    if edge.target not in fixed:
                        price[edge.target] += edge.cost(edge.source_class[fixed[node]], edge.target_class)


def _neighbour_prices(fixed: Mapping[int, int], formulation: Formulation) -> list[np.ndarray]:
    """Return by node and strategy the cost of edges to fixed nodes, plus the least cost of edges to the others."""
    price = [np.zeros(len(v.costs)) for v in formulation.variables]
    for edge in formulation.problem.edges:
        if edge.source in fixed and edge.target not in fixed:
            price[edge.target] += edge.cost(edge.source_class[fixed[edge.source]], edge.target_class)
        elif edge.target in fixed and edge.source not in fixed:
            price[edge.source] += edge.cost(edge.source_class, edge.target_class[fixed[edge.target]])
        elif edge.source not in fixed:
            price[edge.source] += edge.cost(edge.source_class[:, None], edge.target_class).min(axis=1)
    return price
