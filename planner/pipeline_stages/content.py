"""Equal content: stages that differ in names only have one plan, which is written once more with the other's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from planner.choose.formulate import Choice
from planner.ir.graph import Graph
from planner.ir.program import Instruction, OpCall, Program
from planner.ir.rematerialization import clone_at_positions, find_clone_positions
from planner.judge.analysis import Analysis
from planner.planning.plan_types import Plan

Passes = tuple[int, int, int]
"""Micro-batches of a step, and those in flight after their forward and their backward pass."""
Content = tuple[object, object, object, object, Passes]


def describe_content(graph: Graph) -> Content:
    """Return what a graph computes, with values numbered in order: equal for graphs that differ in names only."""
    flying = graph.in_flight
    return *describe_ops(graph), (graph.microbatches, flying.after_forward, flying.after_backward)


def describe_ops(graph: Graph) -> tuple[object, object, object, object]:
    """Return the content of a graph whatever the micro-batches are."""
    number = {value: n for n, value in enumerate(graph.types)}
    return (
        tuple(
            (entry.kind, entry.type, number.get(entry.next or ""), entry.id in graph.in_flight.gradients)
            for entry in graph.inputs
        ),
        tuple(
            (
                (op.op, op.phase, op.notation, op.accumulates, op.id in graph.in_flight.late, op.option),
                tuple(sorted((name, repr(value)) for name, value in op.attrs.items())),
                tuple(number[value] for value in op.inputs),
                op.results,
            )
            for op in graph.ops
        ),
        tuple((number[value], value in graph.sent) for value in graph.outputs),
        frozenset(
            (number[one.value], one.sharding, one.required, number.get(one.user or "", one.user), one.operand)
            for one in graph.annotations
        ),
    )


def rename_plan(plan: Plan, step: Graph) -> Plan:
    """Return the plan of a step whose ops differ from those of the planned one in names only.

    The step may have fewer micro-batches in flight, and another number of them.
    """
    is_same = list(plan.graph.types) == list(step.types) and plan.graph.in_flight == step.in_flight
    if plan.analysis is None or (is_same and plan.graph.microbatches == step.microbatches):
        return replace(plan, graph=step)
    graph, names = _match_names(plan.analysis.program.graph, plan.graph, step)
    analysis = Analysis(_rename_program(plan.analysis.program, graph, names), plan.model)
    return replace(plan, graph=step, choice=rename_choice(plan, step), analysis=analysis)


def rename_choice(plan: Plan, step: Graph) -> Choice:
    """Return the choice of a plan for a step whose ops are those of the planned one but for names."""
    assert plan.analysis is not None, "only a feasible plan has a choice"
    assert plan.choice is not None, "only a feasible plan has a choice"
    names, chosen = _match_names(plan.analysis.program.graph, plan.graph, step)[1], plan.choice
    return Choice(
        {names[name]: sharding for name, sharding in chosen.inputs.items()},
        {names[op]: option for op, option in chosen.options.items()},
        # The program has no clones of ops that are not computed again, nor does a choice need layouts of these.
        {names[name]: sharding for name, sharding in chosen.shared.items() if name in names},
        chosen.outputs,
    )


def _match_names(planned: Graph, graph: Graph, step: Graph) -> tuple[Graph, dict[str, str]]:
    """Return a step's graph with the clones of a planned graph, and its name of each of that graph's values."""
    known = dict(zip(graph.types, step.types, strict=True))
    clones = {known[op]: known[before] for op, before in find_clone_positions(planned).items()}
    with_clones = clone_at_positions(step, clones)
    return with_clones, dict(zip(planned.types, with_clones.types, strict=True))


def _rename_program(program: Program, graph: Graph, known: Mapping[str, str]) -> Program:
    names, root = dict(known), {name: name for name in known}
    instructions: list[Instruction] = []
    ops = {one.id: other for one, other in zip(program.graph.ops, graph.ops, strict=True)}
    for done in program.instructions:
        if isinstance(done, OpCall):
            operands, results = (tuple(names[name] for name in each) for each in (done.operands, done.results))
            instructions.append(replace(done, op=ops[done.op.id], operands=operands, results=results))
        else:
            # A copy is named after the value that it is one of.
            root[done.result] = value = root[done.operand]
            names[done.result] = known[value] + done.result.removeprefix(value)
            instructions.append(replace(done, operand=names[done.operand], result=names[done.result]))
    arguments = tuple((names[name], sharding) for name, sharding in program.arguments)
    return Program(graph, program.mesh, arguments, tuple(instructions), tuple(names[name] for name in program.outputs))
