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


def describe_content(graph: Graph) -> tuple[object, ...]:
    """Return what a graph computes, with values numbered in order: equal for graphs that differ in names only."""
    number = {value: n for n, value in enumerate(graph.types)}
    flying = graph.in_flight
    return (
        tuple((entry.kind, entry.type, number.get(entry.next or "")) for entry in graph.inputs),
        tuple(
            (
                (op.op, op.phase, op.notation, op.accumulates, op.id in flying.late),
                tuple(sorted((name, repr(value)) for name, value in op.attrs.items())),
                tuple(number[value] for value in op.inputs),
                op.results,
            )
            for op in graph.ops
        ),
        tuple(number[value] for value in graph.outputs),
        (graph.microbatches, flying.after_forward, flying.after_backward),
    )


def rename_plan(plan: Plan, step: Graph) -> Plan:
    """Return the plan of a step whose graph differs from the planned one in names only."""
    if plan.analysis is None or plan.choice is None or list(plan.graph.types) == list(step.types):
        return replace(plan, graph=step)
    known = dict(zip(plan.graph.types, step.types, strict=True))
    program = plan.analysis.program
    clones = {known[op]: known[before] for op, before in find_clone_positions(program.graph).items()}
    graph = clone_at_positions(step, clones)
    names = dict(zip(program.graph.types, graph.types, strict=True))
    chosen = plan.choice
    choice = Choice(
        {names[name]: sharding for name, sharding in chosen.inputs.items()},
        {names[op]: option for op, option in chosen.options.items()},
        {names[name]: sharding for name, sharding in chosen.shared.items()},
        chosen.outputs,
    )
    analysis = Analysis(_rename_program(program, graph, names), plan.model)
    return replace(plan, graph=step, choice=choice, analysis=analysis)


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
