"""Layouts as an SPMD program with explicit collectives.

What the planner chose follows `planner.model.steps` step by step: a shared value is brought into its hub sharding,
an operand into the sharding its op reads, by the chain of moves `route` gives; then the op runs. What propagation
completed has no hubs: every use starts from the definition, and goes from there to what the op reads at once,
with no stop at the annotations between (the dialect's intermediate consolidation).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.model.cuts import cuts_of
from planner.model.graph import Graph, check_sizes
from planner.model.indexing import Option
from planner.model.mesh import Mesh
from planner.model.program import Program
from planner.model.sharding import Sharding
from planner.model.steps import Execute, Read, Reader, Share, Step, steps
from planner.rewrite.propagation.completed import Completed
from planner.rewrite.writer import Route, Writer


def materialize(
    graph: Graph,
    mesh: Mesh,
    inputs: Mapping[str, Sharding],
    options: Mapping[str, Option],
    shared: Mapping[str, Sharding],
    outputs: Sequence[Sharding],
    route: Route,
    listed: Sequence[Step] | None = None,
) -> Program:
    """The program of a graph under a layout per input and output, an option per op, a sharding per shared value, in
    the order of `listed` (None: `steps`)."""
    writer = Writer(graph, mesh, route, dict(inputs))
    names: list[str] = []
    for step in steps(graph) if listed is None else listed:
        match step:
            case Share(value):
                writer.settle(value, shared[value])
            case Read(value, reader):
                if reader.op is None:
                    names.append(writer.moved(value, outputs[reader.operand]))
                else:
                    op = graph.ops[reader.op]
                    writer.read(op, reader.operand, options[op.id])
            case Execute(position):
                writer.run(graph.ops[position], options[graph.ops[position].id])
    return writer.program(names)


def materialize_completed(
    graph: Graph, mesh: Mesh, completed: Completed, route: Route, full_arguments: bool = False
) -> Program:
    """The program of a graph under the annotations that propagation completed.

    A result whose definition is annotated otherwise than its op leaves it is brought there right after the op.
    With `full_arguments` every device is given whole tensors and cuts its own shards first.
    """
    layouts = {entry.id: completed.definition(entry.id) for entry in graph.inputs}
    whole = {name: Sharding.replicated(len(layout.split_axes)) for name, layout in layouts.items()}
    check_sizes(graph)
    writer = Writer(graph, mesh, route, whole if full_arguments else layouts)
    for name, layout in layouts.items():
        writer.settle(name, layout)
    for op in graph.ops:
        option = completed.option(op)
        cuts = cuts_of(op.rule, [completed.definition(value) for value in op.values])
        for operand in range(len(op.inputs)):
            writer.read(op, operand, option, cuts)
        writer.run(op, option, cuts)
        for value in op.values:
            writer.settle(value, completed.definition(value))
    outputs = [writer.moved(v, completed.use(Reader(None, number))) for number, v in enumerate(graph.outputs)]
    return writer.program(outputs)
