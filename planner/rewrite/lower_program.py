"""A program over sharded tensors as one over local tensors, with the dialect's collectives between them."""

from __future__ import annotations

from planner.errors import InvalidRequest
from planner.ir.program import OpCall, Program
from planner.rewrite.lower_reshard import write_moves
from planner.spmd import Cluster, LocalOp, LocalType, SpmdBuilder, SpmdProgram, local_shape

MESH = "mesh"


def lower_program(program: Program) -> SpmdProgram:
    """Return the same computation over local tensors, on a mesh named `mesh`.

    A reshard becomes the calls of `write_moves`; values keep their names. Raises InvalidRequest for a step of several
    micro-batches, which is a loop, and InvalidSharding for an op that sends blocks while it runs.
    """
    if program.graph.microbatches > 1:
        got = f"a step of {program.graph.microbatches} micro-batches"
        raise InvalidRequest("a program of local tensors has no loop", got=got, wanted="a step of one")
    build, mesh = SpmdBuilder({MESH: Cluster(program.mesh)}, reserved=program.values.keys()), program.mesh
    for name, sharding in program.arguments:
        kind = program.values[name].type
        build.argument(name, LocalType(local_shape(kind.shape, sharding, mesh), kind.dtype), MESH)
    # A reshard that leaves every device what it has is another name of its operand.
    names = {name: name for name in program.values}
    for done in program.instructions:
        operands = tuple(names[name] for name in done.operands)
        if isinstance(done, OpCall):
            done.check_no_ring()
            build.append(LocalOp(done.op, done.option, operands, done.results, done.loop_partitions, MESH))
            continue
        source, target, written = program.values[done.operand], program.values[done.result], len(build.instructions)
        made = write_moves(
            build,
            operands[0],
            source.type,
            source=source.sharding,
            target=target.sharding,
            mesh=MESH,
            moves=[done.collective],
        )
        if len(build.instructions) > written:
            build.rename_last(done.result)
        else:
            names[done.result] = made
    return build.program([names[name] for name in program.outputs])
