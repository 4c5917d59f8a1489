"""Which values of a training step may be made again for the backward pass, and when.

Kept always is what the model hands from block to block: the values at a *cut*, a moment of the forward pass at which
ops wait for one value alone, as they do for the residual stream between two blocks (Chen et al., "Training Deep Nets
with Sublinear Memory Cost", 2016, keep those). What lies between two cuts is made again of the first of them, so that
making a value again never reaches back further than its block. A value at a cut may be made again all the same where
one op made it of one other value at less than its keep, without a contraction (a norm, a nonlinearity): of a chain of
layers nothing else would be left. Values that no parameter has touched (masks, positions) are the data's own: kept,
and no part of a cut.

A value between cuts is a candidate where a later phase reads it, or the copy of a candidate does. It is made again
right before the first op of a later phase that may need it so. Only rows of `planner.ops` with one result are
made again: they are functions, whose second run equals the first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from planner.ir.execution_order import Share, Step, find_readers, order_steps, remaining_steps
from planner.ir.graph import Graph, Op
from planner.ir.indexing import LoopKind
from planner.ir.rematerialization import clone_ops, drop_clones, find_cloned_values
from planner.ops import OPS


def find_recomputable_ops(graph: Graph) -> dict[str, int]:
    """Op that may be done again -> position of the op before which it is. Linear in ops and their operands."""
    read = find_readers(graph)
    touched, kept = _parameter_dependent(graph), _cut_values(graph)
    late: dict[str, int] = {}
    for place, op in reversed(list(enumerate(graph.ops))):
        value = op.values[0]
        users = [] if len(op.values) > 1 or value in graph.outputs else [reader.op for reader in read.get(value, ())]
        if op.phase != "forward" or op.op not in OPS or value not in touched or value in kept:
            continue
        forward = [user for user in users if user is not None and graph.ops[user].phase == "forward"]
        again = [late[graph.ops[user].id] for user in forward if graph.ops[user].id in late]
        again += [user for user in users if user is not None and graph.ops[user].phase != "forward"]
        if forward and again and place < max(forward) < min(again):
            late[op.id] = min(again)
    return {op.id: late[op.id] for op in graph.ops if op.id in late}


def _parameter_dependent(graph: Graph) -> set[str]:
    """Values made with a parameter."""
    touched = {entry.id for entry in graph.inputs if entry.kind == "parameter"}
    for op in graph.ops:
        if not touched.isdisjoint(op.inputs):
            touched.update(op.values)
    return touched


def _cut_values(graph: Graph) -> set[str]:
    """Values at cuts, but for those made of one other value at little cost."""
    waiting = _AwaitedValues(graph)
    kept: set[str] = set()
    for place, op in enumerate(graph.ops):
        if op.phase == "forward" and waiting.awaited_after(place) == set(op.values) and not waiting.is_cheap(op):
            kept.update(op.values)
    return kept


class _AwaitedValues:
    """The values touched by parameters for which forward ops wait."""

    def __init__(self, graph: Graph) -> None:
        parameters = {entry.id for entry in graph.inputs}
        self.touched = _parameter_dependent(graph) - parameters
        self.last = {
            value: max((r.op for r in who if r.op is not None and graph.ops[r.op].phase == "forward"), default=-1)
            for value, who in find_readers(graph).items()
        }
        self.graph = graph
        self.now: set[str] = set()

    def awaited_after(self, place: int) -> set[str]:
        """Those after the op at a place; to be asked place by place."""
        op = self.graph.ops[place]
        self.now |= {value for value in op.values if value in self.touched}
        self.now = {value for value in self.now if self.last.get(value, -1) > place}
        return self.now

    def is_cheap(self, op: Op) -> bool:
        """Whether it makes its result of one touched value alone, and contracts nothing but a dim of that."""
        return len(self.touched.intersection(op.inputs)) <= 1 and not _is_contraction(op)


def _is_contraction(op: Op) -> bool:
    """Whether two operands share a loop that is reduced."""
    reduced = {loop.name for loop in op.rule.loops if loop.kind is LoopKind.REDUCTION}
    terms = [{loop for dim in term for loop in dim.loops} for term in op.rule.operands]
    return any(sum(loop in term for term in terms) > 1 for loop in reduced)


@dataclass(frozen=True, eq=False)
class GraphWithClones:
    """A graph with a copy of every op that may be done again, and the steps in which both have their place.

    Both values of such an op are shared, however few read them: the step that shares one says who holds it since.
    """

    graph: Graph
    clones: Mapping[str, str]
    listed: tuple[Step, ...]

    @classmethod
    def of(cls, graph: Graph, late: Mapping[str, int] | None = None) -> GraphWithClones:
        """With copies as `candidates` gives them; without, the graph as it is."""
        both = clone_ops(graph, late) if late else graph
        again = find_cloned_values(both) if late else {}
        return cls(both, again, order_steps(both, frozenset((*again, *again.values()))))

    @cached_property
    def clone_of(self) -> dict[str, str]:
        """Copy -> the value that it is made of. An op with one result has its id."""
        return {copy: value for value, copy in self.clones.items()}

    def prune(self, ran: Collection[str]) -> tuple[Graph, tuple[Step, ...]]:
        """The graph and the steps of a plan in which only some ops run. What stays as it is made is not shared."""
        if not self.clones:
            return self.graph, self.listed
        left = drop_clones(self.graph, self.clone_of.keys() - set(ran))
        read = [find_readers(graph) for graph in (self.graph, left)]
        alone = {value for value, who in read[1].items() if len(who) == 1 == len(read[0].get(value, ()))}
        listed = remaining_steps(self.listed, self.graph, left)
        return left, tuple(step for step in listed if not (isinstance(step, Share) and step.value in alone))
