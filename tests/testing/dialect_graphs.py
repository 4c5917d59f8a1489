"""Random annotated graphs: elementwise ops, products, reductions, transposes, and ops that only we have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType
from typing import Any

from planner.ir.graph import OUTPUTS, Annotation, Graph, Input, Op, TensorType, value_id
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from planner.ops import bind_op

MESHES = ["2", "4", "2x2", "2x4", "2x2x2", "1x2", "dp=2,tp=4"]
DTYPES = ["f32", "f32", "f32", "f64", "bf16", "f16", "i64", "i32", "i8", "u8", "f8e5m2"]
SIZES = [1, 2, 4, 8, 8, 16]
UNARY = ["tanh", "exp", "abs", "sqrt", "square", "negate", "sigmoid", "identity", "relu", "gelu", "erf", "cos"]
FLOAT_ONLY = {"tanh", "exp", "sqrt", "sigmoid", "gelu", "erf", "cos", "softmax"}
BINARY = ["add", "subtract", "multiply", "divide", "maximum", "minimum", "pow"]
REDUCE = ["sum", "max", "min", "product"]


@dataclass
class Growing:
    """A graph under construction."""

    random: Random
    ops: list[Op] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    types: dict[str, TensorType] = field(default_factory=dict)

    def input(self, kind: TensorType) -> str:
        name = f"x{len(self.inputs)}"
        kinds = ["input", "parameter", "constant"]
        self.inputs.append(Input(name, self.random.choice(kinds), self.random.choice([name, f"h.0 {name}"]), kind))
        self.types[name] = kind
        return name

    def op(self, op: str, inputs: list[str], *results: TensorType, notation: str | None = None, **attrs: Any) -> str:
        name = self.random.choice([f"n{len(self.ops)}", f"{len(self.ops)}", f"h.{len(self.ops)} {op}"])
        read = tuple(self.types[value] for value in inputs)
        rule = bind_op(op, read, results, attrs=attrs, notation=notation)
        scope = self.random.choice(["", "", "layer.0"])
        phase = self.random.choice(["forward", "forward", "backward"])
        kept = MappingProxyType(attrs)
        self.ops.append(Op(name, op, tuple(inputs), results, rule, kept, scope, phase, notation))
        self.types |= {value_id(name, k): kind for k, kind in enumerate(results)}
        return name


def unary(g: Growing, value: str, kind: TensorType) -> None:
    names = [op for op in UNARY if op not in FLOAT_ONLY or kind.dtype[0] in "fb"]
    g.op(g.random.choice(names), [value], kind)


def binary(g: Growing, value: str, kind: TensorType) -> None:
    shape = list(kind.shape)
    if shape and g.random.random() < 0.3:
        shape[g.random.randrange(len(shape))] = 1
    if g.random.random() < 0.2:
        shape = shape[g.random.randrange(len(shape) + 1) :]
    same = [name for name, other in g.types.items() if other == kind]
    right = g.random.choice(same) if g.random.random() < 0.5 else g.input(TensorType(tuple(shape), kind.dtype))
    g.op(g.random.choice(BINARY), [value, right], kind)


def scalar(g: Growing, value: str, kind: TensorType) -> None:
    g.op("add", [value], kind, scalar=g.random.choice([2, 0.5, 1e-05]))


def product(g: Growing, value: str, kind: TensorType) -> None:
    if len(kind.shape) < 2:
        return
    n = g.random.choice(SIZES)
    batch = kind.shape[:-2] if g.random.random() < 0.5 else ()
    right = g.input(TensorType((*batch, kind.shape[-1], n), kind.dtype))
    g.op("matmul", [value, right], TensorType((*kind.shape[:-1], n), kind.dtype))


def linear(g: Growing, value: str, kind: TensorType) -> None:
    if kind.shape:
        weight = g.input(TensorType((4, kind.shape[-1]), kind.dtype))
        g.op("linear", [value, weight], TensorType((*kind.shape[:-1], 4), kind.dtype))


def reduce(g: Growing, value: str, kind: TensorType) -> None:
    rank = len(kind.shape)
    dims = sorted(g.random.sample(range(rank), g.random.randint(0, rank)))
    keep: dict[str, Any] = g.random.choice([{}, {"keepdim": True}, {"keepdim": False}])
    ones = dict.fromkeys(dims, 1) if keep.get("keepdim") else {}
    shape = tuple(ones.get(d, size) for d, size in enumerate(kind.shape) if d not in dims or ones)
    g.op(g.random.choice(REDUCE), [value], TensorType(shape, kind.dtype), dims=dims, **keep)


def transpose(g: Growing, value: str, kind: TensorType) -> None:
    order = g.random.sample(range(len(kind.shape)), len(kind.shape))
    shape = tuple(kind.shape[dim] for dim in order)
    g.op("transpose", [value], TensorType(shape, kind.dtype), permutation=order)


def full(g: Growing, value: str, kind: TensorType) -> None:
    g.op("full", [], kind, value=g.random.choice([0, 1, 7, 0.25, float("inf"), -1e-05]))


def split(g: Growing, value: str, kind: TensorType) -> None:
    if kind.shape and kind.shape[0] % 2 == 0:
        half = TensorType((kind.shape[0] // 2, *kind.shape[1:]), kind.dtype)
        g.op("split", [value], half, half, dim=0)


def compare(g: Growing, value: str, kind: TensorType) -> None:
    right = g.input(kind)
    predicate = TensorType(kind.shape, "bool")
    found = g.op(g.random.choice(["equal", "less", "greater_equal"]), [value, right], predicate)
    g.op("where", [found, value, right], kind)


def unknown(g: Growing, value: str, kind: TensorType) -> None:
    term = " ".join(f"d{d}" for d in range(len(kind.shape))) or "[]"
    g.op("my.op", [value], kind, notation=f"{term} -> {term}")


STEPS: list[Callable[[Growing, str, TensorType], None]] = [
    unary,
    binary,
    binary,
    scalar,
    product,
    linear,
    reduce,
    transpose,
    full,
    split,
    compare,
    unknown,
]


def random_sharding(random: Random, shape: tuple[int, ...], mesh: Mesh, dialect: str) -> Sharding:
    """Return a random sharding that divides evenly: partial at times in mesh, with halos or offsets in shard."""
    lists: list[list[int]] = [[] for _ in shape]
    partial: list[int] = []
    for axis in random.sample(range(len(mesh.axes)), len(mesh.axes)):
        fits = [d for d, size in enumerate(shape) if size % mesh.group_size([*lists[d], axis]) == 0]
        if random.random() < 0.5 and fits:
            lists[random.choice(fits)].append(axis)
        elif random.random() < 0.3 and dialect == "mesh":
            partial.append(axis)
    split_axes = tuple(map(tuple, lists))
    halo: tuple[int, ...] = ()
    offsets: tuple[tuple[int, ...], ...] = ()
    split = [d for d, axes in enumerate(split_axes) if axes]
    if dialect == "shard" and split and random.random() < 0.4:
        parts = [mesh.group_size(split_axes[d]) for d in split]
        if random.random() < 0.5 or 1 in mesh.shape:  # mlir-opt 22 miscounts offsets over an axis of size 1
            halo = tuple(random.randint(0, 1) for _ in range(2 * len(split)))
        else:
            inner = [
                sorted(random.randint(0, shape[d]) for _ in range(n - 1)) for d, n in zip(split, parts, strict=True)
            ]
            offsets = tuple((0, *cuts, shape[d]) for d, cuts in zip(split, inner, strict=True))
    return Sharding(split_axes, tuple(partial), random.choice(list(Reduction)), halo, offsets)


def by_operand(
    random: Random, g: Growing, mesh: Mesh, dialect: str, taken: set[tuple[str, str | None]]
) -> list[Annotation]:
    """Return annotations that shard one of the several operands as which an op reads a value."""
    return [
        Annotation(value, random_sharding(random, g.types[value].shape, mesh, dialect), True, op.id, operand)
        for op in g.ops
        for operand, value in enumerate(op.inputs)
        if op.inputs.count(value) > 1 and op.inputs.index(value) == operand and (value, op.id) not in taken
    ]


def with_option(random: Random, op: Op, mesh: Mesh) -> Op:
    """Return the op, sometimes with a requested option."""
    axes = random.sample(range(len(mesh.axes)), len(mesh.axes))
    option = tuple((axes.pop(),) if axes and random.random() < 0.5 else () for _ in op.rule.loops)
    return replace(op, option=option) if random.random() < 0.2 else op


def random_graph(seed: int, dialect: str = "mesh", steps: list[Any] | None = None) -> tuple[Graph, Mesh]:
    """Build a graph of about eight ops with every kind of annotation that the dialect can express."""
    random = Random(seed)
    mesh = Mesh.parse(random.choice(MESHES))
    g = Growing(random)
    dtype = random.choice(DTYPES) if steps is None else "f32"
    g.input(TensorType(tuple(random.choice(SIZES) for _ in range(random.randint(0, 3))), dtype))
    for _ in range(random.randint(1, 8)):
        value = random.choice([name for name, kind in g.types.items() if kind.dtype == dtype])
        random.choice(steps or STEPS)(g, value, g.types[value])
    read = {value for op in g.ops for value in op.inputs}
    outputs = [value for op in g.ops for value in op.values if value not in read] or [g.inputs[0].id]
    annotations = []
    uses = [(op.id, value) for op in g.ops for value in dict.fromkeys(op.inputs)]
    for user, value in [(None, value) for value in g.types] + uses + [(OUTPUTS, value) for value in outputs]:
        for required in (True, False):
            if random.random() < (0.3 if required else 0.05):
                sharding = random_sharding(random, g.types[value].shape, mesh, dialect)
                annotations.append(Annotation(value, sharding, required, user))
    annotations += by_operand(random, g, mesh, dialect, {(a.value, a.user) for a in annotations})
    producer = MappingProxyType({"name": "tests", "version": '1 "x"'})
    ops = tuple(with_option(random, op, mesh) for op in g.ops)
    return Graph("main", tuple(g.inputs), ops, tuple(outputs), tuple(annotations), producer), mesh


def described(graph: Graph) -> dict[str, Any]:
    """Return a graph as plain values, for comparison."""
    ops = [
        (op.id, op.op, op.inputs, op.results, dict(op.attrs), op.scope, op.phase, op.notation, op.rule, op.option)
        for op in graph.ops
    ]
    producer = dict(graph.producer)
    return {
        "name": graph.name,
        "inputs": graph.inputs,
        "ops": ops,
        "outputs": graph.outputs,
        "annotations": set(graph.annotations),
        "producer": producer,
    }
