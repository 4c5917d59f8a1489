"""A network's step as the problem that a compiler's sharding pass would write: a node per op, an edge per operand.

Ops are recorded on a tape. The gradient of an einsum by an operand is the einsum of the result's gradient and the other
operands; this covers products, pointwise ops, reductions and broadcasts. As in the public files:

* a node uses memory from its op to its last reader; parameters always do, fused ops never
* an op may come with constants, which only a tuple reads, at no cost
* an op that takes over an operand's layout is tied to it by infinite costs
* the limit is 1.1 times the peak of the assignment of least usages, or the peak of one that keeps all ties, whichever
  is more
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from solvers import IMPOSSIBLE, Edge, Node, Problem, usage_profile
from tests.testing.synthetic_instances.shardings import (
    Rule,
    Sizes,
    change_costs,
    layouts,
    nothing,
    own_costs,
    ties,
    usages,
)

Integers = NDArray[np.int64]
ROOM = 1.1


@dataclass(frozen=True, slots=True)
class Op:
    """An op. follows: the operand whose layout it takes over; kept: it lives for ever; fused: it uses no memory."""

    rule: Rule
    operands: tuple[int, ...] = ()
    follows: int | None = None
    kept: bool = False
    fused: bool = False


@dataclass
class Step:
    """Ops in the order in which they run. tied: with infinite costs; constants: on average, beside an op; traded:
    share of them that cost the more the less they use."""

    sizes: Sizes
    seed: int
    tied: bool = True
    constants: float = 0.5
    traded: float = 0.2
    ops: list[Op] = field(default_factory=list)
    parameters: list[int] = field(default_factory=list)

    @cached_property
    def random(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    def add(self, rule: Rule, *operands: int, follows: int | None = None) -> int:
        """Add an op, and sometimes constants with it; return its number."""
        for _ in range(int(self.random.poisson(self.constants))):
            length = int(self.random.integers(1, len(rule.result) + 1)) if rule.result else 0
            self.ops.append(Op(Rule((), rule.result[:length])))
        fused = follows is not None and self.random.random() < 0.15
        self.ops.append(Op(rule, operands, follows if self.tied else None, fused=fused))
        return len(self.ops) - 1

    def parameter(self, letters: str, trained: bool = True) -> int:
        """Add a tensor that lives for ever."""
        self.ops.append(Op(Rule((), letters), kept=True))
        self.parameters += [len(self.ops) - 1] * trained
        return len(self.ops) - 1

    def letters(self, value: int) -> str:
        return self.ops[value].rule.result

    def einsum(self, result: str, *operands: int) -> int:
        """Add an einsum over the operands' own letters."""
        return self.add(Rule(tuple(self.letters(o) for o in operands), result), *operands)

    def pointwise(self, *operands: int, ops: int = 1) -> int:
        """Add a pointwise op, followed by unary ones: `ops` in all."""
        letters = self.letters(operands[0])
        value = self.add(Rule(tuple(self.letters(o) for o in operands), letters), *operands, follows=0)
        for _ in range(ops - 1):
            value = self.add(Rule((letters,), letters), value, follows=0)
        return value

    def add_bias(self, value: int, letters: str) -> int:
        """Add a parameter over the value's last dims to it."""
        return self.pointwise(value, self.parameter(letters))

    def norm(self, value: int, ops: int = 2) -> int:
        """Add a norm over the last dim: a mean, ops on it, and the product with it and a parameter."""
        letters = self.letters(value)
        mean = self.einsum(letters[:-1], self.pointwise(value))
        mean = self.pointwise(mean, ops=ops)
        return self.pointwise(self.pointwise(value, mean), self.parameter(letters[-1]))

    def renamed(self, value: int, letters: str) -> int:
        """Add an op that renames the value's dims."""
        return self.add(Rule((letters,), letters), value, follows=0)

    def train(self, loss: int) -> None:
        """Add the backward pass of everything on the tape, and Adam."""
        gradients = {loss: self.add(Rule((self.letters(loss),), self.letters(loss)), loss)}
        for value in range(loss, -1, -1):
            if value in gradients:
                self._backward(value, gradients)
        for parameter in self.parameters:
            if parameter in gradients:
                moments = [self.parameter(self.letters(parameter), False) for _ in range(2)]
                changed = [self.pointwise(moment, gradients[parameter], ops=2) for moment in moments]
                self.pointwise(parameter, *changed, ops=2)

    def _backward(self, value: int, gradients: dict[int, int]) -> None:
        op = self.ops[value]
        for place, (operand, letters) in enumerate(zip(op.operands, op.rule.operands, strict=True)):
            others = [o for at, o in enumerate(op.operands) if at != place]
            rule = Rule((op.rule.result, *(s for at, s in enumerate(op.rule.operands) if at != place)), letters)
            same = set(rule.result) == set(rule.operands[0])
            found = self.add(rule, gradients[value], *others, follows=0 if same else None)
            known = gradients.get(operand)
            gradients[operand] = found if known is None else self.pointwise(known, found)

    def problem(self) -> Problem:
        """Return the problem with its limit."""
        last = self._last_reads()
        nodes = [self._node(i, op, last[i]) for i, op in enumerate(self.ops)]
        edges = [edge for i, op in enumerate(self.ops) for edge in self._edges(i, op)]
        hub = self.random.integers(1, 4)
        nodes.append(Node("tuple", np.zeros(hub, np.int64), np.zeros(hub, np.int64), (0, len(self.ops))))
        unread = [i for i, op in enumerate(self.ops) if not op.operands and last[i] <= i + 1 and not op.kept]
        classes = np.arange(hub, dtype=np.int32)
        edges += [
            Edge(i, len(self.ops), _classes(nodes[i]), classes, nothing(nodes[i].cost.size, int(hub))) for i in unread
        ]
        loose = Problem(nodes, edges)
        least = np.array([int(node.usage.argmin()) for node in nodes])
        room = int(ROOM * usage_profile(loose, least).max()) + 1
        return Problem(nodes, edges, max(room, int(usage_profile(loose, self.frugal(nodes, edges)).max())))

    def frugal(self, nodes: list[Node], edges: list[Edge]) -> Integers:
        """Return an assignment that respects all ties: node by node the least usage that earlier strategies permit."""
        into: list[list[Edge]] = [[] for _ in nodes]
        for edge in edges:
            into[max(edge.source, edge.target)].append(edge)
        choice = np.zeros(len(nodes), np.int64)
        for i, node in enumerate(nodes):
            possible = node.cost < IMPOSSIBLE
            for edge in into[i]:
                row = edge.matrix[choice[edge.source]] if edge.target == i else edge.matrix[:, choice[edge.target]]
                possible &= row < IMPOSSIBLE
            choice[i] = np.where(possible, node.usage, node.usage.max() + 1).argmin()
        return choice

    def _last_reads(self) -> list[int]:
        last = [i + 1 for i in range(len(self.ops))]
        for i, op in enumerate(self.ops):
            for operand in op.operands:
                last[operand] = max(last[operand], i + 1)
        return last

    def _node(self, i: int, op: Op, last: int) -> Node:
        rule, sizes = op.rule, self.sizes
        interval = (0, len(self.ops)) if op.kept else (i, i if op.fused else last)
        cost, usage = own_costs(rule, sizes, self.tied), usages(rule, sizes, self.tied)
        if not op.operands and not op.kept and self.random.random() < self.traded:
            price = 10 ** self.random.uniform(-6, -2)
            cost = np.minimum(cost + (price * (usage.max() - usage)).astype(np.int64), IMPOSSIBLE)
        return Node(f"n{i}", cost, usage, interval)

    def _edges(self, i: int, op: Op) -> list[Edge]:
        edges = []
        for place, (operand, letters) in enumerate(zip(op.operands, op.rule.operands, strict=True)):
            rule = self.ops[operand].rule
            held = layouts(rule, rule.result, self.sizes, self.tied)
            wanted = layouts(op.rule, letters, self.sizes, self.tied)
            whole = self.sizes.bytes(rule.result)
            matrix = ties(held, wanted) if place == op.follows else change_costs(held, wanted, whole, self.sizes)
            source, target = np.arange(len(held), dtype=np.int32), np.arange(len(wanted), dtype=np.int32)
            edges.append(Edge(operand, i, source, target, matrix))
        return edges


def _classes(node: Node) -> NDArray[np.int32]:
    return np.arange(node.cost.size, dtype=np.int32)
