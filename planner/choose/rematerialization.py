"""Find the values of a training step that may be recomputed for the backward pass, and when.

The values that a model passes from block to block are always kept: the values at a *cut*, a step of the forward pass
after which later ops need one value only, such as the residual stream between two blocks (Chen et al., "Training Deep
Nets with Sublinear Memory Cost", 2016, keep these). Values between two cuts are recomputed from the first of them, so
that recomputation never reaches back further than a block. A value at a cut may be recomputed nevertheless where one op
computes it from one other value without a contraction (a norm, a nonlinearity): in a chain of layers no value would be
left otherwise. Values that do not depend on parameters (masks, positions) are kept, and do not count for cuts.

A value between cuts is a candidate where a later phase, or the clone of a candidate, reads it. It is recomputed right
before the first op of a later phase that may need it. Only ops of `planner.ops` with one result are recomputed: they
are functions, so that the second run returns the same.
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


def find_recomputable_ops(graph: Graph, *, contractions: bool = True) -> dict[str, int]:
    """Return the ops that may be recomputed, each with the position of the op before which it is.

    contractions  whether those that contract operands, such as products and attention, are among them

    The time is linear in ops and their operands.
    """
    read = find_readers(graph)
    dependent, kept = find_parameter_dependent(graph), _cut_values(graph)
    late: dict[str, int] = {}
    # Backward, so that the clones of an op's readers are known: they read the op's clone.
    for place, op in reversed(list(enumerate(graph.ops))):
        value = op.values[0]
        users = [] if len(op.values) > 1 or value in graph.outputs else [reader.op for reader in read.get(value, ())]
        if op.phase != "forward" or op.op not in OPS or value not in dependent or value in kept:
            continue
        if not contractions and _is_contraction(op):
            continue
        forward = [user for user in users if user is not None and graph.ops[user].phase == "forward"]
        again = [late[graph.ops[user].id] for user in forward if graph.ops[user].id in late]
        again += [user for user in users if user is not None and graph.ops[user].phase != "forward"]
        # Without a forward reader after it, or with a late reader before the last of these, there is no time at which
        # the value would be gone.
        if forward and again and place < max(forward) < min(again):
            late[op.id] = min(again)
    return {op.id: late[op.id] for op in graph.ops if op.id in late}


def find_parameter_dependent(graph: Graph) -> set[str]:
    """Return the values that depend on a parameter."""
    dependent = {entry.id for entry in graph.inputs if entry.kind == "parameter"}
    for op in graph.ops:
        if not dependent.isdisjoint(op.inputs):
            dependent.update(op.values)
    return dependent


def _cut_values(graph: Graph) -> set[str]:
    """Return the values at cuts, except those that are cheap to compute from one other value."""
    waiting = AwaitedValues(graph)
    kept: set[str] = set()
    for place, op in enumerate(graph.ops):
        if op.phase == "forward" and waiting.awaited_after(place) == set(op.values) and not waiting.is_cheap(op):
            kept.update(op.values)
    return kept


class AwaitedValues:
    """The parameter-dependent values that later forward ops still read."""

    def __init__(self, graph: Graph) -> None:
        parameters = {entry.id for entry in graph.inputs}
        self.dependent = find_parameter_dependent(graph) - parameters
        self.last = {
            value: max((r.op for r in who if r.op is not None and graph.ops[r.op].phase == "forward"), default=-1)
            for value, who in find_readers(graph).items()
        }
        self.graph = graph
        self.now: set[str] = set()

    def awaited_after(self, place: int) -> set[str]:
        """Return the awaited values after the op at a position. Call it for each position in order."""
        op = self.graph.ops[place]
        self.now |= {value for value in op.values if value in self.dependent}
        self.now = {value for value in self.now if self.last.get(value, -1) > place}
        return self.now

    def is_cheap(self, op: Op) -> bool:
        """Return whether an op reads one parameter-dependent value only and has no contraction."""
        return len(self.dependent.intersection(op.inputs)) <= 1 and not _is_contraction(op)


def _is_contraction(op: Op) -> bool:
    """Return whether two operands share a reduction loop."""
    reduced = {loop.name for loop in op.rule.loops if loop.kind is LoopKind.REDUCTION}
    terms = [{loop for dim in term for loop in dim.loops} for term in op.rule.operands]
    return any(sum(loop in term for term in terms) > 1 for loop in reduced)


@dataclass(frozen=True, eq=False)
class GraphWithClones:
    """A graph with a clone of each op that may be recomputed, and the steps of all of them.

    Both values of such an op are shared, even with one reader: from the step that shares a value, its shared copy
    holds it.
    """

    graph: Graph
    clones: Mapping[str, str]
    listed: tuple[Step, ...]

    @classmethod
    def of(cls, graph: Graph, late: Mapping[str, int] | None = None) -> GraphWithClones:
        """Clone the ops that `find_recomputable_ops` returned; with None, the graph stays as it is."""
        cloned = clone_ops(graph, late) if late else graph
        clones = find_cloned_values(cloned) if late else {}
        return cls(cloned, clones, order_steps(cloned, frozenset((*clones, *clones.values()))))

    @cached_property
    def clone_of(self) -> dict[str, str]:
        """The original of each clone. An op with one result has the id of that value."""
        return {copy: value for value, copy in self.clones.items()}

    def prune(self, ran: Collection[str]) -> tuple[Graph, tuple[Step, ...]]:
        """Return the graph and the steps of a plan in which only the clones in `ran` run.

        A value with a single reader is not shared.
        """
        if not self.clones:
            return self.graph, self.listed
        left = drop_clones(self.graph, self.clone_of.keys() - set(ran))
        read = [find_readers(graph) for graph in (self.graph, left)]
        # A value that lost readers by pruning is priced with its shared copy, so it keeps that copy.
        alone = {value for value, who in read[1].items() if len(who) == 1 == len(read[0].get(value, ()))}
        listed = remaining_steps(self.listed, self.graph, left)
        return left, tuple(step for step in listed if not (isinstance(step, Share) and step.value in alone))
