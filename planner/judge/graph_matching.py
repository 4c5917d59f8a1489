"""Match the ops of two graphs, independently of their names and order.

The label of an op describes what it does: its op name, attributes, rule, and the types of operands and results. Its
view adds its place in the graph, by colour refinement: the views of its operands, then those of its readers, then those
of its operands again. Two ops have equal views only if everything that they depend on, and that depends on them, is
alike. Ops match in this order of criteria:

    equal views          the op was renamed or reordered at most
    equal halves         equal by what they depend on and by what depends on them: something beside them changed
    one equal half       equal by what they depend on, else by what depends on them: something after or before changed
    read by a match      as the same operand, with equal labels: this tells parallel branches apart
    equal names          with equal labels: something before and after them changed
    equal labels         along the longest common runs of both graphs: the same, and renamed

Ops whose view is unique are matched first; among several, those of equal name, then in order. Inputs match as the
operands of matched ops. Time is linear in the number of ops, except for the last step, which is quadratic in the ops
that the others leave.

An op without a match was edited, added or removed. To find edited ops, `match_edited` matches the remaining ops again,
with labels that consist of the op name only, without shapes.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import chain

from planner.ir.execution_order import find_readers
from planner.ir.graph import Graph, Input, Op

Label = Callable[[Op, Graph], Hashable]


@dataclass(frozen=True)
class GraphMatching:
    """Maps names of ops and values of the new graph to those of the base. Others were added or removed."""

    ops: Mapping[str, str]
    values: Mapping[str, str]


def match_graphs(base: Graph, new: Graph) -> GraphMatching:
    """Match the ops and values of two graphs that are the same."""
    ops = _pair_ops(base, new, {}, label=_op_label, given=lambda entry: (entry.kind, entry.type))
    return GraphMatching(ops, _match_values(base, new, ops))


def match_edited(base: Graph, new: Graph, exact: GraphMatching) -> GraphMatching:
    """Extend an exact matching by ops that were edited, with their operands and results."""
    ops = _pair_ops(
        base, new, exact.ops, label=lambda op, graph: (op.op, op.recompute_of is None), given=lambda entry: entry.kind
    )
    return GraphMatching(ops, _match_values(base, new, ops))


def _pair_ops(
    base: Graph, new: Graph, known: Mapping[str, str], *, label: Label, given: Callable[[Input], Hashable]
) -> dict[str, str]:
    """Return the known matches, extended by all ops that match by the given labels."""
    numbers: dict[Hashable, int] = {}
    labels = [_number_keys(graph, numbers, label) for graph in (base, new)]
    pairs = zip((base, new), labels, strict=True)
    below, above, views = zip(*(_refine_views(graph, numbers, own, given=given) for graph, own in pairs), strict=True)
    halves = tuple(
        {op: numbers.setdefault((low[op], high[op]), len(numbers)) for op in low}
        for low, high in zip(below, above, strict=True)
    )
    matches = dict(known)
    # From the most to the least specific view, and unique ops first: a wrong pair would spread along the edges.
    for mine, other in (views, halves, below, above):
        _pair_class(matches, base, new, mine=mine, other=other, alone=True)
    _propagate_pair(matches, base, new, *labels)
    for mine, other in (views, halves, below, above):
        _pair_class(matches, base, new, mine=mine, other=other, alone=False)
        _propagate_pair(matches, base, new, *labels)
    _pair_leftovers(matches, base, new, *labels)
    return matches


def _pair_leftovers(
    matches: dict[str, str], base: Graph, new: Graph, mine: Mapping[str, int], other: Mapping[str, int]
) -> None:
    """Match the remaining ops of equal labels: by name, then along common runs."""
    taken = set(matches.values())
    # Frontends name ops by position, so a name is only trusted once structure has paired all it can.
    free = {op.id: mine[op.id] for op in base.ops if op.id not in taken}
    matches |= {op.id: op.id for op in new.ops if op.id not in matches and free.get(op.id) == other[op.id]}
    taken = set(matches.values())
    left = [op.id for op in base.ops if op.id not in taken], [op.id for op in new.ops if op.id not in matches]
    kinds = [mine[op] for op in left[0]], [other[op] for op in left[1]]
    for block in SequenceMatcher(None, *kinds, autojunk=False).get_matching_blocks():
        matches |= {left[1][block.b + k]: left[0][block.a + k] for k in range(block.size)}


def _number_keys(graph: Graph, numbers: dict[Hashable, int], label: Label) -> dict[str, int]:
    return {op.id: numbers.setdefault(label(op, graph), len(numbers)) for op in graph.ops}


def _op_label(op: Op, graph: Graph) -> Hashable:
    attrs = json.dumps(dict(op.attrs), sort_keys=True, default=str)
    return (
        op.op,
        attrs,
        str(op.rule.pattern),
        tuple(graph.types[v] for v in op.inputs),
        op.results,
        op.recompute_of is None,
    )


def _refine_views(
    graph: Graph, numbers: dict[Hashable, int], labels: Mapping[str, int], *, given: Callable[[Input], Hashable]
) -> tuple[dict[str, int], ...]:
    """Return the views of each op: by what it depends on, by what depends on it, and by both."""

    def number(key: Hashable) -> int:
        return numbers.setdefault(key, len(numbers))

    inputs = {entry.id: number(given(entry)) for entry in graph.inputs}
    below = seen = _view_from_inputs(graph, inputs, labels, number=number)
    above = _view_from_readers(
        graph, {value: labels[op.id] for op in graph.ops for value in op.values} | inputs, number
    )
    # Two rounds are enough to tell apart ops that only the other direction's neighbours distinguish; more cost time.
    for _ in range(2):
        values = _view_from_readers(graph, seen, number)
        seen = _view_from_inputs(graph, values, {op.id: values[op.values[0]] for op in graph.ops}, number=number)
    return tuple({op.id: each[op.values[0]] for op in graph.ops} for each in (below, above, seen))


def _view_from_inputs(
    graph: Graph, inputs: Mapping[str, int], own: Mapping[str, int], *, number: Callable[[Hashable], int]
) -> dict[str, int]:
    """Number each value by its op's own number and the numbers of its operands."""
    views = {entry.id: inputs[entry.id] for entry in graph.inputs}
    for op in graph.ops:
        key = own[op.id], tuple(views[value] for value in op.inputs)
        views |= {value: number((key, k)) for k, value in enumerate(op.values)}
    return views


def _view_from_readers(graph: Graph, own: Mapping[str, int], number: Callable[[Hashable], int]) -> dict[str, int]:
    """Number each value by its own number and the numbers of its readers."""
    readers = find_readers(graph)
    views: dict[str, int] = {}
    listed = [value for op in graph.ops for value in op.values]
    for value in [*reversed(listed), *(entry.id for entry in graph.inputs)]:
        uses = [(-1 if r.op is None else views[graph.ops[r.op].values[0]], r.operand) for r in readers.get(value, ())]
        views[value] = number((own[value], tuple(sorted(uses))))
    return views


def _pair_class(
    matches: dict[str, str],
    base: Graph,
    new: Graph,
    *,
    mine: Mapping[str, int],
    other: Mapping[str, int],
    alone: bool,
) -> None:
    """Match the remaining ops of equal keys, those of equal names first, then in order.

    With `alone`, only ops whose key is unique in both graphs are matched.
    """
    taken, left = set(matches.values()), defaultdict[int, list[str]](list)
    for op in base.ops:
        if op.id not in taken:
            left[mine[op.id]].append(op.id)
    waiting = [op.id for op in new.ops if op.id not in matches]
    if alone:
        counts = Counter(other[name] for name in waiting)
        waiting = [name for name in waiting if counts[other[name]] == 1 == len(left[other[name]])]
    for op_id in [*(name for name in waiting if name in left[other[name]]), *waiting]:
        if op_id not in matches and (names := left[other[op_id]]):
            matches[op_id] = op_id if op_id in names else names[0]
            names.remove(matches[op_id])


def _propagate_pair(
    matches: dict[str, str], base: Graph, new: Graph, mine: Mapping[str, int], other: Mapping[str, int]
) -> None:
    """Match the producers of the operands of matched ops, where their labels are equal."""
    makers = [{value: op.id for op in graph.ops for value in op.values} for graph in (base, new)]
    known, taken = {op.id: op for op in base.ops}, set(matches.values())
    for op in reversed(new.ops):
        was_read = known[matches[op.id]].inputs if op.id in matches else ()
        for was, value in zip(was_read, op.inputs, strict=False):
            one, this = makers[0].get(was), makers[1].get(value)
            if one and this and this not in matches and one not in taken and mine[one] == other[this]:
                matches[this] = one
                taken.add(one)


def _match_values(base: Graph, new: Graph, ops: Mapping[str, str]) -> dict[str, str]:
    """Match the results of matched ops, then the graph inputs that they read, then those of equal names."""
    known = {op.id: op for op in base.ops}
    matches: dict[str, str] = {}
    for op in new.ops:
        if op.id in ops:
            matches |= dict(zip(op.values, known[ops[op.id]].values, strict=False))
    read = (zip(op.inputs, known[ops[op.id]].inputs, strict=False) for op in new.ops if op.id in ops)
    named = ((entry.id, entry.id) for entry in new.inputs)
    free = {entry.id for entry in base.inputs} - set(matches.values())
    for value, other in chain(chain.from_iterable(read), named):
        if value not in matches and other in free:
            matches[value] = other
            free.remove(other)
    return matches
