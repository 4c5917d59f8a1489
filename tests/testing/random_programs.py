"""Random programs: random options of random ops, with operands resharded as the options require."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from planner.ir.basis_moves import is_exact
from planner.ir.collectives import Collective, Kind
from planner.ir.graph import TensorType
from planner.ir.indexing import Option, Rule, can_split
from planner.ir.program import Program, ShardedValue
from planner.ir.sharding import Axes, Sharding
from planner.ops import bind_op
from planner.reshard.documented_path import fuse_collectives, order_collectives
from planner.rewrite.optimize.rewriter import widen_option
from tests.testing.programs import Lines

Shape = tuple[int, ...]
MESHES = ["2", "4", "2x2", "3x2", "2x2x2"]


def random_program(seed: int) -> Program:
    """Return a program of random ops under random options; operands are resharded from any version of a value."""
    random = np.random.default_rng(seed)
    lines = _Random(str(random.choice(MESHES)), random)
    for _ in range(3):
        lines.new_argument(tuple(int(n) for n in random.choice([8, 12, 6], 2)))
    for _ in range(int(random.integers(3, 8))):
        lines.new_op() if random.integers(0, 5) else lines.new_terms()
    made = [value for value in lines.versions if lines.sketch.types[value].shape and value[0] == "n"]
    chosen = [str(value) for value in random.choice(made, min(2, len(made)), replace=False)]
    return lines.program(*(lines.read(value, lines.layout(value)) for value in dict.fromkeys((*chosen, made[-1]))))


class _Random(Lines):
    def __init__(self, mesh: str, random: np.random.Generator) -> None:
        super().__init__(mesh)
        self.random = random
        self.versions: dict[str, list[str]] = {}

    def new_argument(self, shape: Shape) -> None:
        name = self.argument(shape, *self._split(shape))
        self.versions[name] = [name]

    def new_terms(self) -> None:
        """Add two values with the same partial axes, which one op reads reduced or scattered."""
        pairs = [("sum", "add"), ("max", "maximum"), ("min", "minimum"), ("product", "multiply")]
        kind, after = pairs[int(self.random.integers(0, 4))]
        x = str(self.random.choice([v for v in self.versions if len(self.sketch.types[v].shape) == 2]))
        rows, columns = self.sketch.types[x].shape
        axis = (int(self.random.integers(0, len(self.mesh.axes))),)
        split = axis if self.mesh.group_size(axis) <= rows else ()
        terms = []
        for _ in range(2):
            source = self.read(x, Sharding((split, ())))
            terms.append(self.run(kind, [source], (columns,), {"d0": split}, dims=[0]))
            self.versions[terms[-1]] = [terms[-1]]
        scattered = split if self.random.integers(0, 2) and self.mesh.group_size(split) <= columns else ()
        operands = [self.read(term, Sharding((scattered,))) for term in terms]
        made = self.run(after, operands, (columns,), {"_0": scattered})
        self.versions[made] = [made]

    def new_op(self) -> None:
        op, sources, shape, attrs = self._op()
        operands = tuple(self.sketch.types[value] for value in sources)
        rule = bind_op(op, operands, (TensorType(shape, "f32"),), attrs=attrs, notation=None)
        option = self._option(rule, sources)
        names = [self.read(value, rule.operand_sharding(i, option)) for i, value in enumerate(sources)]
        split = {loop.name: axes for loop, axes in zip(rule.loops, option, strict=True)}
        made = self.run(op, names, shape, split, **attrs)
        self.versions[made] = [made]

    def read(self, value: str, wanted: Sharding) -> str:
        """Return a version of the value in the wanted sharding, resharded from a random version where possible."""
        name = str(self.random.choice([v for v in self.versions[value] if becomes(self.values[v].sharding, wanted)]))
        for move in self._chain(self.values[name], wanted):
            name = self.moved(name, move)
            self.versions[value].append(name)
        return name

    def _chain(self, source: ShardedValue, wanted: Sharding) -> list[Collective]:
        """Return one exchange, or the documents' collectives, sometimes fused or, where exact, one axis at a time."""
        if source.sharding != wanted and not self.random.integers(0, 12):
            return [Collective.exchange(source.sharding, wanted)]
        chain = order_collectives(source.sharding, wanted, source.type.shape, mesh=self.mesh)
        if self.random.integers(0, 2):
            chain = fuse_collectives(chain)
        single = [one for move in chain for one in one_axis_each(move)]
        at = source.sharding
        for move in single:
            if not is_exact(move, at, move.target(at), shape=source.type.shape, mesh=self.mesh):
                return chain
            at = move.target(at)
        return single if self.random.integers(0, 2) else chain

    def layout(self, value: str) -> Sharding:
        return Sharding(self._split(self.sketch.types[value].shape))

    def _split(self, shape: Shape) -> tuple[Axes, ...]:
        lists: list[Axes] = [() for _ in shape]
        for axis in self.random.permutation(len(self.mesh.axes)):
            dim = int(self.random.integers(-1, len(shape)))
            longer = (*lists[dim], int(axis)) if dim >= 0 else ()
            if dim >= 0 and self.mesh.group_size(longer) <= shape[dim]:
                lists[dim] = longer
        return tuple(lists)

    def _op(self) -> tuple[str, list[str], Shape, dict[str, Any]]:
        pick, types = self.random.choice, self.sketch.types
        x = str(pick(list(self.versions)))
        shape = types[x].shape
        alike = [value for value in self.versions if types[value].shape == shape]
        after = [
            value
            for value in self.versions
            if len(types[value].shape) == len(shape) == 2 and types[value].shape[0] == shape[-1]
        ]
        match int(self.random.integers(0, 11)):
            case 0:
                return str(pick(["negate", "relu", "square"])), [x], shape, {}
            case 1:
                return "transpose", [x], shape[::-1], {"permutation": list(range(len(shape)))[::-1]}
            case 2 if len(shape) == 2 and shape[1] % 2 == 0:
                return "reshape", [x], (shape[0], 2, shape[1] // 2), {}
            case 2 if len(shape) == 3:
                return "reshape", [x], (shape[0], shape[1] * shape[2]), {}
            case 3 | 4 if len(shape) == 2:
                dim = int(self.random.integers(0, 2))
                kept = {"dims": [dim], "keepdim": True}
                return (
                    str(pick(["sum", "max", "min", "product"])),
                    [x],
                    (1, shape[1]) if dim == 0 else (shape[0], 1),
                    kept,
                )
            case 5 | 6 | 7 if after:
                other = str(pick(after))
                return "matmul", [x, other], (shape[0], types[other].shape[1]), {}
            case 8:
                return "full", [], shape, {"value": 0.5}
            case _:
                kinds = ["add", "add", "subtract", "multiply", "maximum", "minimum"]
                return str(pick(kinds)), [x, str(pick(alike))], shape, {}

    def _option(self, rule: Rule, sources: list[str]) -> Option:
        """Return a random option: each axis on a loop that it can split or on none; partial only where operands are."""
        option: Option = ((),) * len(rule.loops)
        for axis in self.random.permutation(len(self.mesh.axes)):
            number = int(self.random.integers(-1, len(rule.loops)))
            wider = widen_option(option, number, (int(axis),)) if number >= 0 else option
            fits = all(
                can_split(loop, self.mesh.group_size(axes)) for loop, axes in zip(rule.loops, wider, strict=True)
            )
            if fits and rule.is_allowed(wider, self.mesh) and self._had(rule, wider, sources):
                option = wider
        return option

    def _had(self, rule: Rule, option: Option, sources: list[str]) -> bool:
        return all(
            any(becomes(self.values[v].sharding, rule.operand_sharding(i, option)) for v in self.versions[value])
            for i, value in enumerate(sources)
        )


def one_axis_each(move: Collective) -> list[Collective]:
    """Split a collective into one per axis; a gather takes its axes from the tail."""
    if move.kind is Kind.ALL_TO_ALL:
        return [move]
    axes = move.axes[::-1] if move.kind is Kind.ALL_GATHER else move.axes
    return [replace(move, axes=(axis,)) for axis in axes]


def becomes(source: Sharding, target: Sharding) -> bool:
    """Return whether collectives lead from one sharding to the other: what is not partial cannot become partial."""
    alike = not target.partial or source.reduction is target.reduction
    return alike and set(target.partial) <= set(source.partial)
