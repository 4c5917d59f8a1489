"""Which op of one graph is which of another, whatever they are called and in whatever order they stand.

The label of an op says what it does: its name, attributes and rule, what it reads and makes. A view adds where it
stands: the views of what it reads, then those of all who read it, then the first again - equal for two ops only if all
that they depend on and all that depends on them is alike. Ops match

    of equal view            renamed, reordered, untouched
    else of equal halves     by what they depend on and by what depends on them: something beside them changed
    else of one equal half   by what they depend on alone, then by what depends on them: changed after or before them
    else read by a match     as the same operand, and of one label: of branches alike, each with its own
    else of equal name       if they are of one label: changed before and after them
    else of equal label      along the longest common stretches of both graphs: and renamed

Those that are the only ones of their view are matched first; of several, those of one name, then in order.
Inputs match as the values that ops read do. Time grows linearly in ops, but for the last step, which is quadratic in
what the others leave.

What does not match was edited, is new or is gone. `match_edited` tells these apart: the same is done once more of what
is left, with labels that say no more of an op than its name, and nothing of shapes.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher

from planner.ir.execution_order import find_readers
from planner.ir.graph import Graph, Input, Op

Label = Callable[[Op, Graph], Hashable]


@dataclass(frozen=True)
class GraphMatching:
    """Names of ops and values in the new graph -> in the base; what is not named is new, or gone."""

    ops: Mapping[str, str]
    values: Mapping[str, str]


def match_graphs(base: Graph, new: Graph) -> GraphMatching:
    """The ops and values of two graphs that are the same."""
    ops = _pair_ops(base, new, {}, label=_op_label, given=lambda entry: (entry.kind, entry.type))
    return GraphMatching(ops, _match_values(base, new, ops))


def match_edited(base: Graph, new: Graph, found: GraphMatching) -> GraphMatching:
    """The same, and ops that were edited beside what they were, with what they read and make."""
    ops = _pair_ops(
        base, new, found.ops, label=lambda op, graph: (op.op, op.recompute_of is None), given=lambda entry: entry.kind
    )
    return GraphMatching(ops, _match_values(base, new, ops))


def _pair_ops(
    base: Graph, new: Graph, known: Mapping[str, str], *, label: Label, given: Callable[[Input], Hashable]
) -> dict[str, str]:
    """The ops that match, and those known to."""
    numbers: dict[Hashable, int] = {}
    labels = [_number_keys(graph, numbers, label) for graph in (base, new)]
    pairs = zip((base, new), labels, strict=True)
    below, above, views = zip(*(_refine_views(graph, numbers, own, given=given) for graph, own in pairs), strict=True)
    halves = tuple(
        {op: numbers.setdefault((low[op], high[op]), len(numbers)) for op in low}
        for low, high in zip(below, above, strict=True)
    )
    found = dict(known)
    for mine, other in (views, halves, below, above):
        _pair_class(found, base, new, mine=mine, other=other, alone=True)
    _propagate_pair(found, base, new, *labels)
    for mine, other in (views, halves, below, above):
        _pair_class(found, base, new, mine=mine, other=other, alone=False)
        _propagate_pair(found, base, new, *labels)
    _pair_leftovers(found, base, new, *labels)
    return found


def _pair_leftovers(
    found: dict[str, str], base: Graph, new: Graph, mine: Mapping[str, int], other: Mapping[str, int]
) -> None:
    """Ops of one label: by name, then along common stretches."""
    taken = set(found.values())
    free = {op.id: mine[op.id] for op in base.ops if op.id not in taken}
    found |= {op.id: op.id for op in new.ops if op.id not in found and free.get(op.id) == other[op.id]}
    taken = set(found.values())
    left = [op.id for op in base.ops if op.id not in taken], [op.id for op in new.ops if op.id not in found]
    kinds = [mine[op] for op in left[0]], [other[op] for op in left[1]]
    for block in SequenceMatcher(None, *kinds, autojunk=False).get_matching_blocks():
        found |= {left[1][block.b + k]: left[0][block.a + k] for k in range(block.size)}


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
    """Of every op the view of what it depends on, of what depends on it, and of all."""

    def number(key: Hashable) -> int:
        return numbers.setdefault(key, len(numbers))

    inputs = {entry.id: number(given(entry)) for entry in graph.inputs}
    below = seen = _view_from_inputs(graph, inputs, labels, number=number)
    above = _view_from_readers(
        graph, {value: labels[op.id] for op in graph.ops for value in op.values} | inputs, number
    )
    for _ in range(2):
        values = _view_from_readers(graph, seen, number)
        seen = _view_from_inputs(graph, values, {op.id: values[op.values[0]] for op in graph.ops}, number=number)
    return tuple({op.id: each[op.values[0]] for op in graph.ops} for each in (below, above, seen))


def _view_from_inputs(
    graph: Graph, inputs: Mapping[str, int], own: Mapping[str, int], *, number: Callable[[Hashable], int]
) -> dict[str, int]:
    """Every value with what its op is and reads."""
    found = {entry.id: inputs[entry.id] for entry in graph.inputs}
    for op in graph.ops:
        key = own[op.id], tuple(found[value] for value in op.inputs)
        found |= {value: number((key, k)) for k, value in enumerate(op.values)}
    return found


def _view_from_readers(graph: Graph, own: Mapping[str, int], number: Callable[[Hashable], int]) -> dict[str, int]:
    """Every value with what it is and who reads it."""
    who = find_readers(graph)
    found: dict[str, int] = {}
    listed = [value for op in graph.ops for value in op.values]
    for value in [*reversed(listed), *(entry.id for entry in graph.inputs)]:
        uses = [(-1 if r.op is None else found[graph.ops[r.op].values[0]], r.operand) for r in who.get(value, ())]
        found[value] = number((own[value], tuple(sorted(uses))))
    return found


def _pair_class(
    found: dict[str, str],
    base: Graph,
    new: Graph,
    *,
    mine: Mapping[str, int],
    other: Mapping[str, int],
    alone: bool,
) -> None:
    """Ops of one key that are not matched yet, those of one name first, then in order; `alone`: only where there is
    one of the key in each graph."""
    taken, left = set(found.values()), defaultdict[int, list[str]](list)
    for op in base.ops:
        if op.id not in taken:
            left[mine[op.id]].append(op.id)
    waiting = [op.id for op in new.ops if op.id not in found]
    if alone:
        counts = Counter(other[name] for name in waiting)
        waiting = [name for name in waiting if counts[other[name]] == 1 == len(left[other[name]])]
    for op_id in [*(name for name in waiting if name in left[other[name]]), *waiting]:
        if op_id not in found and (names := left[other[op_id]]):
            found[op_id] = op_id if op_id in names else names[0]
            names.remove(found[op_id])


def _propagate_pair(
    found: dict[str, str], base: Graph, new: Graph, mine: Mapping[str, int], other: Mapping[str, int]
) -> None:
    """What a matched pair reads is matched, where it is of one label: of branches alike, each with its own."""
    makers = [{value: op.id for op in graph.ops for value in op.values} for graph in (base, new)]
    known, taken = {op.id: op for op in base.ops}, set(found.values())
    for op in reversed(new.ops):
        was_read = known[found[op.id]].inputs if op.id in found else ()
        for was, value in zip(was_read, op.inputs, strict=False):
            one, this = makers[0].get(was), makers[1].get(value)
            if one and this and this not in found and one not in taken and mine[one] == other[this]:
                found[this] = one
                taken.add(one)


def _match_values(base: Graph, new: Graph, ops: Mapping[str, str]) -> dict[str, str]:
    known = {op.id: op for op in base.ops}
    found: dict[str, str] = {}
    for op in new.ops:
        if op.id in ops:
            found |= dict(zip(op.values, known[ops[op.id]].values, strict=False))
    inputs = {entry.id: entry for entry in base.inputs}
    for op in new.ops:
        if op.id in ops:
            _match_inputs(found, inputs, op.inputs, theirs=known[ops[op.id]].inputs)
    taken = set(found.values())
    for entry in new.inputs:
        if entry.id not in found and entry.id in inputs and entry.id not in taken:
            found[entry.id] = entry.id
    return found


def _match_inputs(
    found: dict[str, str], inputs: Mapping[str, object], mine: Iterable[str], *, theirs: Iterable[str]
) -> None:
    """What a matched pair reads from outside is the same."""
    taken = set(found.values())
    for value, other in zip(mine, theirs, strict=False):
        if value not in found and other in inputs and other not in taken:
            found[value] = other
            taken.add(other)
