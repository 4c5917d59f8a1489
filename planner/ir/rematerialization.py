"""Ops that are done twice: a graph in which some values are made again for those who read them late, and the way back.

The copy of op f does what f does, of the same operands, right before op number `late[f]`; f's readers from there on
read the copy. An operand that is itself made again by then is read from its copy. Copies before one and the same op
keep the order of what they copy, so that they stay in an order that respects their uses.
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
    """The graph with a copy of every op of `late`, before the op of that number."""
    names = _name_clones(graph, late)
    before: dict[int, list[Op]] = defaultdict(list)
    copies = {
        v: (copied, late[op.id]) for op in graph.ops if op.id in late for v, copied in _pair_values(op, names[op.id])
    }

    def seen(value: str, place: int) -> str:
        copied, since = copies.get(value, (value, 0))
        return copied if since <= place else value

    for op in graph.ops:
        if op.id in late:
            place = late[op.id]
            read = tuple(seen(value, place) for value in op.inputs)
            before[place].append(replace(op, id=names[op.id], inputs=read, phase="backward", recompute_of=op.id))
    ops: list[Op] = []
    for place, op in enumerate(graph.ops):
        ops += [*before[place], replace(op, inputs=tuple(seen(value, place) for value in op.inputs))]
    reads, made = {op.id: op.inputs for op in ops}, {value: copied for value, (copied, _) in copies.items()}
    pins = [pin for one in graph.annotations for pin in _clone_annotations(one, reads, names, copies=made)]
    return replace(graph, ops=tuple(ops), annotations=tuple(pins))


def drop_clones(graph: Graph, dropped: Collection[str]) -> Graph:
    """The graph without these copies: who reads one reads what it copies."""
    gone = {op.id: op for op in graph.ops if op.id in dropped}
    first = {v: f for op in gone.values() for f, v in _pair_values(replace(op, id=op.recompute_of or op.id), op.id)}
    ops = (replace(op, inputs=tuple(first.get(v, v) for v in op.inputs)) for op in graph.ops if op.id not in gone)
    pins = dict.fromkeys(
        replace(one, value=first.get(one.value, one.value)) for one in graph.annotations if one.user not in gone
    )
    return replace(graph, ops=tuple(ops), annotations=tuple(pins))


def drop_all_clones(graph: Graph) -> Graph:
    """The graph in which nothing is made again."""
    copies = {op.id for op in graph.ops if op.recompute_of is not None}
    return drop_clones(graph, copies) if copies else graph


def find_cloned_values(graph: Graph) -> dict[str, str]:
    """Value -> the copy that is made of it."""
    by_id = {op.id: op for op in graph.ops}
    again = [op for op in graph.ops if op.recompute_of is not None]
    return dict(pair for op in again for pair in _pair_values(by_id[op.recompute_of or ""], op.id))


def find_clone_positions(graph: Graph) -> dict[str, str]:
    """Op that is done again -> the op before which it is; copies before one another before the op after them all."""
    found: dict[str, str] = {}
    following = ""
    for op in reversed(graph.ops):
        if op.recompute_of is None:
            following = op.id
        else:
            found[op.recompute_of] = following
    return dict(reversed(found.items()))


def clone_at_positions(graph: Graph, before: Mapping[str, str]) -> Graph:
    """The graph whose `repeats` these are. Raises InvalidGraph for an op that it does not have."""
    position = {op.id: place for place, op in enumerate(graph.ops)}
    for op in (name for pair in before.items() for name in pair):
        if op not in position:
            raise InvalidGraph("no such op to do again", where="recomputed", got=op, wanted="an op of the graph")
    late = {op.id: position[before[op.id]] for op in graph.ops if op.id in before}
    return clone_ops(graph, late) if late else graph


def _pair_values(op: Op, copy: str) -> list[tuple[str, str]]:
    return [(value, value_id(copy, k)) for k, value in enumerate(op.values)]


def _name_clones(graph: Graph, late: Mapping[str, int]) -> dict[str, str]:
    """An id for every copy that no value of the graph has."""
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
    """What is asked of a value, or of a use of it, asked of its copy and of a copy's uses too."""
    values = dict.fromkeys((one.value, copies.get(one.value, one.value)))
    users = [one.user] if one.user is None or one.user not in names else [one.user, names[one.user]]
    asked = [replace(one, value=value, user=user) for value in values for user in users]
    return [each for each in asked if each.user is None or each.value in reads.get(each.user, (one.value,))]
