"""Classes of equal sizes in a program, and small sizes for them (see `planner.run.shrink`)."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from planner.ir.basis_moves import blocks_nest
from planner.ir.graph import Graph, Op, value_id
from planner.ir.indexing import LoopKind, Rule
from planner.ir.notation import Dim
from planner.ir.program import OpCall, Program, Reshard
from planner.ops import OPS, aligned_loops, indexed_loops

MIN_SIZE = 4
MAX_TURNS = 60
SizeVariable = tuple[str, Hashable]
"""(value, dim) or (op, loop)."""
Definition = tuple[bool, tuple[SizeVariable, ...]]
"""Whether it is a sum (otherwise a product), and the classes it consists of."""


@dataclass
class SizeClasses:
    """Union-find over (value, dim) and (op, loop), with what restricts the sizes of each class.

    Restrictions are definitions, the group sizes that split a class, and blocks that must nest. Where `windows` is
    False, what windows read and what is held with halos keeps its size.
    """

    windows: bool
    size: dict[SizeVariable, int] = field(default_factory=dict)
    parent: dict[SizeVariable, SizeVariable] = field(default_factory=dict)
    definitions: dict[SizeVariable, set[Definition]] = field(default_factory=lambda: defaultdict(set))
    needs: dict[SizeVariable, set[int]] = field(default_factory=lambda: defaultdict(set))
    nested: dict[SizeVariable, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    fixed: set[SizeVariable] = field(default_factory=set)

    @classmethod
    def of(cls, program: Program, windows: bool) -> SizeClasses:
        classes = cls(windows)
        origin = _origins(program)
        classes._add_program(program, origin)
        classes._close_definitions()
        classes._propagate_splits(program, origin)
        return classes

    def find(self, place: SizeVariable) -> SizeVariable:
        while self.parent[place] != place:
            self.parent[place] = place = self.parent[self.parent[place]]
        return place

    def choose_sizes(self, attempt: int) -> dict[SizeVariable, int]:
        """Return a size for every place; a later attempt chooses larger ones.

        A defined class grows by its parts, one part after the other.
        """
        roots = sorted({self.find(place) for place in self.size}, key=str)
        larger, small = Counter[SizeVariable](), dict[SizeVariable, int]()
        for turn in range(MAX_TURNS):
            small = {}
            for root in roots:
                self._evaluate(root, small, attempt, larger=larger)
            leaves_to_grow = [
                leaves for root in roots if not self._is_suitable(root, small[root]) and (leaves := self._leaves(root))
            ]
            if not leaves_to_grow:
                break
            # One leaf per class and turn: growing all factors of a product at once overshoots.
            larger.update({leaves[turn % len(leaves)] for leaves in leaves_to_grow})
        return {place: small[self.find(place)] for place in self.size}

    def _evaluate(
        self, root: SizeVariable, small: dict[SizeVariable, int], attempt: int, *, larger: Counter[SizeVariable]
    ) -> int:
        if root not in small:
            small[root] = self.size[root]
            if definition := self._definition(root):
                joined, parts = definition
                sizes = [self._evaluate(self.find(part), small, attempt, larger=larger) for part in parts]
                small[root] = sum(sizes) if joined else math.prod(sizes)
            elif root not in self.fixed:
                small[root] = self._smallest(root, attempt * (2 if self.needs[root] else MIN_SIZE) + larger[root])
        return small[root]

    def _definition(self, root: SizeVariable) -> Definition | None:
        return min(self.definitions.get(root, ()), key=str, default=None) if root not in self.fixed else None

    def _leaves(self, root: SizeVariable) -> list[SizeVariable]:
        """Return the classes with free sizes that a class consists of."""
        if definition := self._definition(root):
            return [leaf for part in definition[1] for leaf in self._leaves(self.find(part))]
        return [] if root in self.fixed else [root]

    def _smallest(self, root: SizeVariable, first: int) -> int:
        # A multiple of every count that divides the original divides evenly where that does.
        step = math.lcm(*(n for n in self.needs[root] if self.size[root] % n == 0))
        fitting = (step * n for n in range(first, self.size[root] // step) if self._is_suitable(root, step * n))
        return next(fitting, self.size[root])

    def _is_suitable(self, root: SizeVariable, size: int) -> bool:
        """Return whether a size divides evenly exactly where the original does, and blocks nest where they did."""
        whole = self.size[root]
        even = all((size % n == 0) == (whole % n == 0) and size >= min(n, whole) for n in self.needs[root])
        return even and all(blocks_nest(size, *counts) for counts in self.nested[root])

    def _add_program(self, program: Program, origin: Mapping[str, str]) -> None:
        graph = program.graph
        for value, kind in graph.types.items():
            for position, size in enumerate(kind.shape):
                self._add((value, position), size)
        for op in graph.ops:
            self._add_op(op)
            self._equate_clone(op)
            self.fixed |= {(op.id, loop) for loop in (*_reblocked_loops(op.rule), *_looked_up_loops(op, graph))}
        for name, held in program.values.items():
            if held.sharding.sharded_dims_offsets or not self.windows:
                self.fixed |= {
                    (origin[name], dim) for dim in held.sharding.split_dims if held.sharding.halo_or_offsets(dim)
                }

    def _add_op(self, op: Op) -> None:
        for loop in op.rule.loops:
            if loop.kind is not LoopKind.LINEAR:
                self._add((op.id, loop.name), loop.size)
        self._align_loops(op)
        terms = zip((*op.rule.operands, *op.rule.results), (*op.inputs, *op.values), strict=True)
        for number, (term, value) in enumerate(terms):
            for position, dim in enumerate(term):
                if dim.coefficients:
                    self._read((value, position), dim, op.id, operand=number)
                else:
                    self._define((value, position), dim.joined, [(op.id, loop) for loop in dim.loops])

    def _align_loops(self, op: Op) -> None:
        """Unite loops over positions of one sequence: with fewer keys than queries some queries may see no key."""
        for one, other in pairwise((op.id, loop) for loop in aligned_loops(op)):
            if self.size[one] == self.size[other]:
                self._unite(one, other)

    def _equate_clone(self, op: Op) -> None:
        """Give a recomputed op the sizes of its original."""
        if op.recompute_of is not None:
            for loop in op.rule.loops:
                if loop.kind is not LoopKind.LINEAR:
                    self._unite((op.recompute_of, loop.name), (op.id, loop.name))
            for k, value in enumerate(op.values):
                for dim in range(len(op.results[k].shape)):
                    self._unite((value_id(op.recompute_of, k), dim), (value, dim))

    def _read(self, place: SizeVariable, dim: Dim, op: str, *, operand: int) -> None:
        """Define the dim of a window as stride * first loop + rest. The rest and the other loops keep their sizes."""
        first, *taps = ((op, loop) for loop in dim.loops)
        stride = dim.coefficients[0]
        rest = self.size[place] - stride * self.size[first]
        if rest < 0 or not self.windows:
            self.fixed |= {place, first, *taps}
            return
        reached, steps, left = ((op, (word, operand, place[1])) for word in ("reached", "steps", "left"))
        for name, size in ((reached, stride * self.size[first]), (steps, stride), (left, rest)):
            self._add(name, size)
        self.fixed |= {*taps, steps, left}
        self._define(reached, False, [first, steps])
        self._define(place, True, [reached, left])

    def _add(self, place: SizeVariable, size: int) -> None:
        self.size[place] = size
        self.parent[place] = place

    def _define(self, place: SizeVariable, joined: bool, parts: list[SizeVariable]) -> None:
        neutral = 0 if joined else 1
        parts = [part for part in parts if self.size[part] != neutral]
        if len(parts) == 1:
            self._unite(place, parts[0])
        elif parts:
            self.definitions[self.find(place)].add((joined, tuple(parts)))

    def _unite(self, one: SizeVariable, other: SizeVariable) -> None:
        one, other = self.find(one), self.find(other)
        if one != other:
            self.parent[other] = one
            if moved := self.definitions.pop(other, set()):
                self.definitions[one] |= moved
            if other in self.fixed:
                self.fixed.add(one)

    def _close_definitions(self) -> None:
        """Unite classes that are defined alike; where definitions disagree, everything below keeps its size."""
        self.fixed |= {place for place in self.size if self.size[place] == 1}
        changed = True
        while changed:
            changed = False
            for root in list(self.definitions):
                if root != self.find(root):
                    continue
                definitions = {(joined, tuple(map(self.find, parts))) for joined, parts in self.definitions[root]}
                self.definitions[root] = definitions
                first, *others = sorted(definitions, key=str)
                for other in others:
                    changed |= self._reconcile(root, first, other)
        fixed, self.fixed = self.fixed, set()
        for place in fixed:
            self._fix_size(place)

    def _reconcile(self, root: SizeVariable, one: Definition, other: Definition) -> bool:
        same_sizes = one[0] == other[0] and [self.size[p] for p in one[1]] == [self.size[p] for p in other[1]]
        if same_sizes:
            for left, right in zip(one[1], other[1], strict=True):
                self._unite(left, right)
            return True
        changed = not self.fixed.issuperset({root, *one[1], *other[1]})
        for place in (root, *one[1], *other[1]):
            self._fix_size(place)
        return changed

    def _fix_size(self, place: SizeVariable) -> None:
        root = self.find(place)
        if root not in self.fixed:
            self.fixed |= {place, root}
            for _, parts in self.definitions.get(root, set()):
                for part in parts:
                    self._fix_size(part)

    def _propagate_splits(self, program: Program, origin: Mapping[str, str]) -> None:
        """Note every group size that splits a class, and pass it on to what defines the class."""
        for done in program.instructions:
            if isinstance(done, Reshard):
                self._add_nested_blocks(program, done, origin[done.operand])
            else:
                self._split_loops(program, done)
        for name, value in program.values.items():
            for dim, axes in enumerate(value.sharding.split_axes):
                self._require_split((origin[name], dim), program.mesh.group_size(axes))

    def _add_nested_blocks(self, program: Program, done: Reshard, value: str) -> None:
        """Note where a move takes a block apart or joins blocks: over how many devices, of how many each."""
        if done.collective.is_exchange:
            return
        ends = (program.values[name].sharding.split_axes for name in (done.operand, done.result))
        for dim, (before, after) in enumerate(zip(*ends, strict=True)):
            outer = program.mesh.group_size(min(before, after, key=len))
            if before != after and outer > 1:
                self.nested[self.find((value, dim))].add((outer, program.mesh.group_size(done.collective.axes)))

    def _split_loops(self, program: Program, done: OpCall) -> None:
        for loop, axes in zip(done.op.rule.loops, done.option, strict=True):
            if loop.kind is not LoopKind.LINEAR:
                self._require_split((done.op.id, loop.name), program.mesh.group_size(axes))

    def _require_split(self, place: SizeVariable, parts: int) -> None:
        root = self.find(place)
        if parts == 1 or parts in self.needs[root]:
            return
        self.needs[root].add(parts)
        if self.size[root] % parts == 0:
            for joined, factors in self.definitions.get(root, set()):
                self._pass_on(joined, factors, parts)

    def _pass_on(self, joined: bool, factors: Iterable[SizeVariable], parts: int) -> None:
        for factor in factors:
            # Devices that split a product split its major factors first; what a factor cannot take is left to the next.
            share = math.gcd(self.size[factor], parts)
            self._require_split(factor, share)
            parts = parts if joined else parts // share


def _origins(program: Program) -> dict[str, str]:
    """Return the value of the graph that every value of the program is a copy of."""
    origin = {name: name for name in program.graph.types}
    for done in program.instructions:
        if isinstance(done, Reshard):
            origin[done.result] = origin[done.operand]
    return origin


def _reblocked_loops(rule: Rule) -> set[str]:
    """Return the loops of dims that are cut anew (8x6 -> 4x12), where only sizes relate operands to results."""
    read = {loop for term in rule.operands for dim in term for loop in dim.loops}
    made = {loop for term in rule.results for dim in term for loop in dim.loops}
    whole = {loop.name for loop in rule.loops if loop.kind in ("blocked", "opaque") and loop.size > 1}
    return (read ^ made) & whole if (made - read) & whole else set()


def _looked_up_loops(op: Op, graph: Graph) -> list[str]:
    """Return the loops that an operand's elements are positions in, where these are computed and not drawn to fit."""
    inputs = {entry.id for entry in graph.inputs}
    return [
        loop for operand, loop in indexed_loops(op).items() if _view_source(graph, op.inputs[operand]) not in inputs
    ]


def _view_source(graph: Graph, value: str) -> str:
    """Return the value that a value is a view of, through any number of views."""
    makers = {made: op for op in graph.ops for made in op.values}
    while value in makers and makers[value].op in OPS and OPS[makers[value].op].is_view:
        value = makers[value].inputs[0]
    return value
