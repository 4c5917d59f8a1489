"""A program for Model Explorer: graph JSON with nodes in the groups of their scopes, and numbers on nodes and groups.

Nodes are the arguments, ops, collectives and outputs. The group of an op is its scope, that of a collective the scope
of the op that first reads its result. Attributes show sharding, shape on a device, and bytes received and held (of the
device with most). A group has the sum of the bytes that its nodes receive.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from planner.ir.accounting import Accounting
from planner.ir.program import Instruction, OpCall, Program
from planner.ir.sharding import shard_shape

Attributes = Mapping[str, object]


def print_model_explorer(program: Program) -> str:
    """Return the JSON text: one collection of one graph."""
    account = Accounting(program)
    received = account.received.max(axis=1).tolist()
    ids = {value: (f"argument {value}", 0) for value, _ in program.arguments}
    nodes = [
        _node(ids[i.id][0], i.name, i.kind, edges=[], outputs=_outputs(account, [i.id])) for i in program.graph.inputs
    ]
    homes, groups = _producers(program), Counter[str]()
    for place, (done, count) in enumerate(zip(program.instructions, received, strict=True)):
        name, label = _node_name(done, place)
        edges = [_edge(ids[value], k) for k, value in enumerate(done.operands)]
        facts = _node_attributes(program, done, count)
        nodes.append(
            _node(name, label, homes[place], edges=edges, outputs=_outputs(account, done.results), facts=facts)
        )
        ids |= {value: (name, number) for number, value in enumerate(done.results)}
        parts = homes[place].split("/") if homes[place] else []
        groups.update({"/".join(parts[: n + 1]): count for n in range(len(parts))})
    ends = [_edge(ids[value], k) for k, value in enumerate(program.outputs)]
    nodes.append(_node("return", "return", "", edges=ends, outputs=[]))
    totals = {group: {"received bytes": str(count)} for group, count in groups.items()}
    graph = {"id": program.graph.name, "nodes": nodes, "groupNodeAttributes": totals}
    return json.dumps({"label": program.graph.name, "graphs": [graph]}, indent=1) + "\n"


def _producers(program: Program) -> list[str]:
    """Return the group of every instruction, as a path."""
    homes, read_in = [], dict[str, str]()
    for done in reversed(program.instructions):
        home = done.op.scope.replace(".", "/") if isinstance(done, OpCall) else read_in.get(done.result, "")
        homes.append(home)
        read_in |= dict.fromkeys(done.operands, home)
    return homes[::-1]


def _node_name(done: Instruction, place: int) -> tuple[str, str]:
    if isinstance(done, OpCall):
        return done.op.id, done.op.op
    return f"{place} {done.result}", str(done.collective.kind)


def _node_attributes(program: Program, done: Instruction, received: int) -> Attributes:
    names = program.mesh.names
    if not isinstance(done, OpCall):
        return {"axes": ", ".join(names[axis] for axis in done.collective.axes), "received bytes": received}
    split = zip(done.op.rule.loops, done.option, strict=True)
    loops = ", ".join(f"{loop.name}: {'/'.join(names[axis] for axis in axes)}" for loop, axes in split if axes)
    return {"phase": done.op.phase, "split loops": loops, **done.op.attrs}


def _outputs(account: Accounting, values: Iterable[str]) -> list[dict[str, Any]]:
    program, shown = account.program, []
    for number, value in enumerate(values):
        held = program.values[value]
        facts = {
            "value": value,
            "type": str(held.type),
            "sharding": held.sharding.format_axes(program.mesh),
            "shape on a device": list(shard_shape(held.sharding, held.type.shape, program.mesh)),
            "held bytes": int(account.value_bytes[value].max()),
        }
        shown.append({"id": str(number), "attrs": _pairs(facts)})
    return shown


def _edge(source: tuple[str, int], operand: int) -> dict[str, str]:
    name, number = source
    return {"sourceNodeId": name, "sourceNodeOutputId": str(number), "targetNodeInputId": str(operand)}


def _node(
    name: str,
    label: str,
    group: str,
    *,
    edges: list[dict[str, str]],
    outputs: list[dict[str, Any]],
    facts: Attributes | None = None,
) -> dict[str, Any]:
    return {
        "id": name,
        "label": label,
        "namespace": group,
        "attrs": _pairs(facts or {}),
        "incomingEdges": edges,
        "outputsMetadata": outputs,
    }


def _pairs(facts: Attributes) -> list[dict[str, str]]:
    return [{"key": key, "value": str(value)} for key, value in facts.items()]
