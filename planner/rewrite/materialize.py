"""Layouts as an SPMD program with explicit collectives.

What the planner chose follows `planner.ir.execution_order` step by step: a shared value is brought into the sharding
of its shared copy, an operand into the sharding that its op reads, each by the chain of moves that `route` gives;
then the op runs. What propagation completed has no shared copies. Every use starts from the definition and goes at
once to what the op reads, without a stop at the annotations between (the dialect's intermediate consolidation).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.ir.execution_order import Execute, Read, Reader, Share, Shrink, Step, order_steps
from planner.ir.graph import Graph, check_sizes
from planner.ir.indexing import Option
from planner.ir.loop_partition import find_loop_partitions
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.ir.sharding import Sharding
from planner.reshard.documented_path import ReshardPlanner
from planner.rewrite.builder import ProgramBuilder
from planner.rewrite.propagation.propagated import PropagatedShardings


def materialize(
    graph: Graph,
    mesh: Mesh,
    inputs: Mapping[str, Sharding],
    *,
    options: Mapping[str, Option],
    shared: Mapping[str, Sharding],
    outputs: Sequence[Sharding],
    route: ReshardPlanner,
    listed: Sequence[Step] | None = None,
) -> Program:
    """Return the program of a graph, given a layout per input and output, an option per op and a sharding per shared
    value.

    `listed` are the steps in their order; None: those of `order_steps`.
    """
    writer = ProgramBuilder(graph, mesh, route, dict(inputs))
    outputs_read: list[str] = []
    steps = order_steps(graph) if listed is None else listed
    first = _first_targets(steps, graph, mesh, options=options, shared=shared, outputs=outputs)
    for step in steps:
        match step:
            case Share(value):
                writer.reshard_for_all(value, shared[value])
            case Shrink(value):
                writer.shrink(value, first[value])
            case Read(value, reader):
                if reader.op is None:
                    outputs_read.append(writer.reshard_to(value, outputs[reader.operand]))
                else:
                    op = graph.ops[reader.op]
                    writer.add_operand(op, reader.operand, options[op.id])
            case Execute(position):
                writer.add_op_call(graph.ops[position], options[graph.ops[position].id])
    return writer.build(outputs_read)


def _first_targets(
    steps: Sequence[Step],
    graph: Graph,
    mesh: Mesh,
    *,
    options: Mapping[str, Option],
    shared: Mapping[str, Sharding],
    outputs: Sequence[Sharding],
) -> dict[str, Sharding]:
    """Return the target of the first reshard of every value that is read."""
    first: dict[str, Sharding] = {}
    for step in steps:
        match step:
            case Share(value):
                first.setdefault(value, shared[value])
            case Read(value, Reader(None, number)):
                first.setdefault(value, outputs[number])
            case Read(value, Reader(int(place), operand)):
                op = graph.ops[place]
                first.setdefault(value, op.rule.read_sharding(operand, options[op.id], mesh))
            case _:
                pass
    return first


def materialize_completed(
    graph: Graph, mesh: Mesh, completed: PropagatedShardings, *, route: ReshardPlanner, full_arguments: bool = False
) -> Program:
    """Return the program of a graph under the annotations that propagation completed.

    A result whose definition is annotated differently from how its op leaves it is resharded right after the op. With
    `full_arguments` every device is given whole tensors and first cuts its own shards.
    """
    layouts = {entry.id: completed.definition(entry.id) for entry in graph.inputs}
    whole = {name: Sharding.replicated(len(layout.split_axes)) for name, layout in layouts.items()}
    check_sizes(graph)
    writer = ProgramBuilder(graph, mesh, route, whole if full_arguments else layouts)
    for name, layout in layouts.items():
        writer.reshard_for_all(name, layout)
    for op in graph.ops:
        option = completed.option(op)
        # Halos and offsets of results are kept through ops that can run on them, without communication.
        cuts = find_loop_partitions(op.rule, option, [completed.definition(v) for v in op.values], mesh=mesh)
        for operand in range(len(op.inputs)):
            writer.add_operand(op, operand, option, cuts=cuts)
        writer.add_op_call(op, option, cuts)
        for value in op.values:
            writer.reshard_for_all(value, completed.definition(value))
    outputs = [writer.reshard_to(v, completed.use(Reader(None, number))) for number, v in enumerate(graph.outputs)]
    return writer.build(outputs)
