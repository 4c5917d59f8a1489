"""Rematerialization: a graph in which some ops run twice, for readers that come late, and the way back.

The clone of op f does what f does, with the same operands, right before op number `late[f]`; the readers of f from
there on read the clone. An operand that is itself cloned by then is read from its clone. Clones before one and the
same op keep the order of their originals, so that definitions stay before uses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace

from planner.errors import InvalidGraph
from planner.ir.graph import Annotation, Graph, Op, value_id

CLONE_SUFFIX = "again"
"""What the id of a copy ends in."""


def clone_ops(graph: Graph, late: Mapping[str, int]) -> Graph:
    """Return the graph with a clone of every op of `late`, right before the op of the given number."""
    names = _name_clones(graph, late)
    before: dict[int, list[Op]] = defaultdict(list)
    copies = {
        v: (copied, late[op.id]) for op in graph.ops if op.id in late for v, copied in _pair_values(op, names[op.id])
    }

    def latest(value: str, place: int) -> str:
        copied, available_from = copies.get(value, (value, 0))
        return copied if available_from <= place else value

    for op in graph.ops:
        if op.id in late:
            place = late[op.id]
            read = tuple(latest(value, place) for value in op.inputs)
            before[place].append(replace(op, id=names[op.id], inputs=read, phase="backward", recompute_of=op.id))
    ops: list[Op] = []
    for place, op in enumerate(graph.ops):
        ops += [*before[place], replace(op, inputs=tuple(latest(value, place) for value in op.inputs))]
    reads, clone_of_value = {op.id: op.inputs for op in ops}, {value: copied for value, (copied, _) in copies.items()}
    pins = [pin for one in graph.annotations for pin in _clone_annotations(one, reads, names, copies=clone_of_value)]
    return replace(graph, ops=tuple(ops), annotations=tuple(pins))


def drop_clones(graph: Graph, dropped: Collection[str]) -> Graph:
    """Return the graph without the clones `dropped`: their readers read the originals."""
    dropped_ops = {op.id: op for op in graph.ops if op.id in dropped}
    original = {
        v: f for op in dropped_ops.values() for f, v in _pair_values(replace(op, id=op.recompute_of or op.id), op.id)
    }
    ops = (
        replace(op, inputs=tuple(original.get(v, v) for v in op.inputs)) for op in graph.ops if op.id not in dropped_ops
    )
    pins = dict.fromkeys(
        replace(one, value=original.get(one.value, one.value))
        for one in graph.annotations
        if one.user not in dropped_ops
    )
    return replace(graph, ops=tuple(ops), annotations=tuple(pins))


def drop_all_clones(graph: Graph) -> Graph:
    """Return the graph without any clone."""
    copies = {op.id for op in graph.ops if op.recompute_of is not None}
    return drop_clones(graph, copies) if copies else graph


def find_cloned_values(graph: Graph) -> dict[str, str]:
    """Return the clone of every value that has one."""
    by_id = {op.id: op for op in graph.ops}
    clones = [op for op in graph.ops if op.recompute_of is not None]
    return dict(pair for op in clones for pair in _pair_values(by_id[op.recompute_of or ""], op.id))


def find_clone_positions(graph: Graph) -> dict[str, str]:
    """Return, for every op that is cloned, the op before which the clone runs.

    Of several clones in a row, each is listed before the op that follows them all.
    """
    positions: dict[str, str] = {}
    following = ""
    for op in reversed(graph.ops):
        if op.recompute_of is None:
            following = op.id
        else:
            positions[op.recompute_of] = following
    return dict(reversed(positions.items()))


def clone_at_positions(graph: Graph, before: Mapping[str, str]) -> Graph:
    """Return the graph with the clones that `find_clone_positions` describes. Raises InvalidGraph for an unknown op."""
    position = {op.id: place for place, op in enumerate(graph.ops)}
    for op in (name for pair in before.items() for name in pair):
        if op not in position:
            raise InvalidGraph("no such op to recompute", where="recomputed", got=op, wanted="an op of the graph")
    late = {op.id: position[before[op.id]] for op in graph.ops if op.id in before}
    return clone_ops(graph, late) if late else graph


def _pair_values(op: Op, copy: str) -> list[tuple[str, str]]:
    return [(value, value_id(copy, k)) for k, value in enumerate(op.values)]


def _name_clones(graph: Graph, late: Mapping[str, int]) -> dict[str, str]:
    """Return an id for every clone that no value of the graph has."""
    names = {}
    for op in late:
        name = f"{op}.{CLONE_SUFFIX}"
        while name in graph.types:
            name += f".{CLONE_SUFFIX}"
        names[op] = name
    return names


def _clone_annotations(
    one: Annotation, reads: Mapping[str, tuple[str, ...]], names: Mapping[str, str], *, copies: Mapping[str, str]
) -> list[Annotation]:
    """Return an annotation also for the clone of its value, and for the clone of its user."""
    values = dict.fromkeys((one.value, copies.get(one.value, one.value)))
    users = [one.user] if one.user is None or one.user not in names else [one.user, names[one.user]]
    annotations = [replace(one, value=value, user=user) for value in values for user in users]
    return [each for each in annotations if each.user is None or each.value in reads.get(each.user, (one.value,))]
