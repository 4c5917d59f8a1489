"""Programs <-> the instructions of a plan document. A program is checked when it is read, so no damaged one runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.documents.graphs import dump_sharding, load_graph, load_mesh, load_sharding
from planner.documents.schemas import PlanDocument, ShardingDocument
from planner.errors import InvalidDocument, ShardplanError
from planner.ir.basis_moves import is_exact
from planner.ir.collectives import COLLECTIVES, Collective, Kind
from planner.ir.graph import Graph, Op
from planner.ir.loop_partition import LoopPartition
from planner.ir.mesh import Mesh
from planner.ir.program import Instruction, OpCall, Program, Reshard
from planner.ir.rematerialization import clone_at_positions
from planner.planning.step_graph import build_step

_DOCUMENT_KEYS = {"dim": "dim", "source_dim": "source_dim", "to": "sharding"}
"""The keys of a document for the fields of a collective."""


def dump_program(program: Program) -> list[dict[str, Any]]:
    """Return the instructions as JSON, outputs last."""
    return [
        *(_dump_instruction(done, program.mesh) for done in program.instructions),
        {"return": list(program.outputs)},
    ]


def _dump_instruction(done: Instruction, mesh: Mesh) -> dict[str, Any]:
    if isinstance(done, OpCall):
        option = [[mesh.names[axis] for axis in axes] for axes in done.option]
        run = {"op": done.op.id, "inputs": list(done.operands), "outputs": list(done.results), "option": option}
        return run | (
            {"cuts": {loop: _dump_cut(cut) for loop, cut in done.loop_partitions}} if done.loop_partitions else {}
        )
    move = done.collective
    dims = {"dim": move.dim, "source_dim": move.source_dim, "sharding": move.to and dump_sharding(move.to, mesh)}
    return {
        "collective": move.kind.value,
        "axes": [mesh.names[axis] for axis in move.axes],
        **{key: dim for key, dim in dims.items() if dim is not None},
        "input": done.operand,
        "output": done.result,
    }


def _dump_cut(cut: LoopPartition) -> dict[str, list[int]]:
    return {"offsets": list(cut.offsets)} if cut.offsets else {"halo": list(cut.halo)}


def _load_cut(entry: Mapping[str, list[int]]) -> LoopPartition:
    before, after = entry.get("halo", (0, 0))
    return LoopPartition((before, after), tuple(entry.get("offsets", ())))


def load_step(document: PlanDocument) -> Graph:
    """Return the graph of the step that a document plans: of all micro-batches and the update, with pins."""
    mesh, request = load_mesh(document.mesh), document.request
    return build_step(
        load_graph(document.graph.document, mesh),
        mesh,
        microbatches=request.microbatches,
        global_batch=request.global_batch,
        layout=request.layout,
    )


def load_program(document: PlanDocument) -> Program:
    """Return the program of a plan document. Raises InvalidDocument where the plan is infeasible or damaged."""
    mesh = load_mesh(document.mesh)
    graph = clone_at_positions(load_step(document), document.recomputed)
    if not document.program:
        raise InvalidDocument("the plan has no program", where="plan", got=document.solver.status)
    ops = {op.id: op for op in graph.ops}
    try:
        *listed, last = document.program
        arguments = ((i.id, load_sharding(document.shardings[i.id], mesh), i.type.shape) for i in graph.inputs)
        program = Program(
            graph,
            mesh,
            tuple((name, sharding.complete(len(shape), mesh)) for name, sharding, shape in arguments),
            tuple(_load_instruction(entry, ops, mesh) for entry in listed),
            tuple(last["return"]),  # type: ignore[arg-type]
        )
        _check_values(program)
        _check_stated(document, program)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        if isinstance(error, ShardplanError):
            raise error.at("plan: program") from None
        raise InvalidDocument("the program is damaged", where="plan: program", got=repr(error)) from None
    return program


def _check_stated(document: PlanDocument, program: Program) -> None:
    """Check that values are laid out, and ops run, as the plan says elsewhere."""
    for name, document_sharding in document.shardings.items():
        held = program.values[name]
        stated = load_sharding(document_sharding, program.mesh).complete(len(held.type.shape), program.mesh)
        if stated != held.sharding:
            where, got, wanted = f"value {name!r}", str(held.sharding), f"{stated}, as the plan's shardings say"
            raise InvalidDocument("the program is not the plan's", where=where, got=got, wanted=wanted)
    for entry in document.program:
        chosen = document.options.get(str(entry.get("op")))
        if chosen is not None and chosen != entry["option"]:
            where, wanted = f"op {entry['op']!r}", f"{chosen}, as the plan's options say"
            raise InvalidDocument("the program is not the plan's", where=where, got=entry["option"], wanted=wanted)


def _load_instruction(entry: Mapping[str, Any], ops: Mapping[str, Op], mesh: Mesh) -> Instruction:
    if "op" in entry:
        return _load_run(entry, ops[entry["op"]], mesh)
    axes = tuple(mesh.axis(axis) for axis in entry["axes"])
    kind = Kind(entry["collective"])
    dims = {key: entry[key] for key in _DOCUMENT_KEYS.values() if key in entry}
    to = dims.pop("sharding", None)
    keys = {_DOCUMENT_KEYS[field] for field in COLLECTIVES[kind].fields}
    if {*dims, *(["sharding"] if to else [])} != keys or any(type(d) is not int or d < 0 for d in dims.values()):
        raise InvalidDocument("dims of a collective", where=str(kind), got=dims, wanted=sorted(keys))
    target = load_sharding(ShardingDocument.model_validate(to), mesh) if to else None
    return Reshard(Collective(kind, axes, **dims, to=target), entry["input"], entry["output"])


def _load_run(entry: Mapping[str, Any], op: Op, mesh: Mesh) -> OpCall:
    run = OpCall(
        op,
        tuple(tuple(mesh.axis(axis) for axis in axes) for axes in entry["option"]),
        tuple(entry["inputs"]),
        tuple(entry["outputs"]),
        tuple((loop, _load_cut(cut)) for loop, cut in sorted(entry.get("cuts", {}).items())),
    )
    rule, option = op.rule, run.option
    if len(option) != len(rule.loops) or not rule.uses_axes_once(option) or not rule.is_allowed(option, mesh):
        loops = [f"{loop.name}={loop.size}" for loop in op.rule.loops]
        raise InvalidDocument("option does not fit the loops", where=f"op {op.id!r}", got=entry["option"], wanted=loops)
    for what, got, wanted in (("inputs", run.operands, op.inputs), ("outputs", run.results, op.results)):
        if len(got) != len(wanted):
            raise InvalidDocument(f"number of {what}", where=f"op {op.id!r}", got=len(got), wanted=len(wanted))
    return run


def _check_values(program: Program) -> None:
    """Check that every value is made once, has the type that its readers expect, and is moved exactly."""
    graph, values = program.graph, program.values
    defined = [name for name, _ in program.arguments] + [name for done in program.instructions for name in done.results]
    if len(set(defined)) < len(defined):
        raise InvalidDocument("a value is made twice", wanted="each value once")
    for done in program.instructions:
        if isinstance(done, OpCall):
            _require_same_types(program, f"op {done.op.id!r}", done.operands, wanted=done.op.inputs)
        else:
            held, after = values[done.operand], values[done.result].sharding
            if done.collective.to and after != after.checked(held.type.shape, program.mesh, str(done.collective)):
                raise InvalidDocument("sharding of an exchange", where=done.result, got=str(after), wanted="every dim")
            if not is_exact(done.collective, held.sharding, after, shape=held.type.shape, mesh=program.mesh):
                raise InvalidDocument("blocks do not nest", where=str(done.collective), got=str(held.sharding))
    if len(program.outputs) != len(graph.outputs):
        raise InvalidDocument("number of outputs", got=len(program.outputs), wanted=len(graph.outputs))
    _require_same_types(program, "return", program.outputs, wanted=graph.outputs)


def _require_same_types(program: Program, where: str, got: tuple[str, ...], *, wanted: tuple[str, ...]) -> None:
    for mine, theirs in zip(got, wanted, strict=True):
        if program.values[mine].type != program.graph.types[theirs]:
            kinds = str(program.values[mine].type), str(program.graph.types[theirs])
            raise InvalidDocument(f"type of {mine}", where=where, got=kinds[0], wanted=kinds[1])
