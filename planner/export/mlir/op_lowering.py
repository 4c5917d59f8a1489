"""Lowers an op to an upstream operation, on whole tensors or on the shards of one device.

Elementwise ops are tosa where operands have one rank, linalg's named ones where they have one type, otherwise a
linalg.generic. Products, reductions, transposes and constants have operations of their own. Any other op, and one
whose result depends on which part of its loops a device runs, is a call of a private function that bears its name and
attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from planner.export.mlir.dialect import element_type, format_attributes, format_number, tensor_type
from planner.export.mlir.module_writer import ModuleWriter
from planner.ir.dtypes import DTYPE_BYTES, is_float
from planner.ir.graph import Op, TensorType
from planner.ir.indexing import LoopKind, Option, Rule
from planner.ir.notation import Term
from planner.ir.program import OpCall
from planner.ops import bind_op

_TOSA = {
    **dict.fromkeys(("identity", "abs", "rsqrt", "reciprocal", "exp", "log", "tanh", "erf", "sin", "cos", "sigmoid")),
    **dict.fromkeys(("cast", "add", "pow", "maximum", "minimum", "equal", "greater", "greater_equal")),
    **dict.fromkeys(("logical_not", "logical_and", "logical_or")),
    "subtract": "sub",
    "where": "select",
}
TOSA = {op: f"tosa.{name or op}" for op, name in _TOSA.items()}
NAMED = {"multiply": "mul", "divide": "div", "square": "square", "sqrt": "sqrt", "negate": "negf"}
BODIES = {
    "add": ("arith.addf", "arith.addi"),
    "subtract": ("arith.subf", "arith.subi"),
    "multiply": ("arith.mulf", "arith.muli"),
    "divide": ("arith.divf", None),
    "pow": ("math.powf", None),
    "maximum": ("arith.maximumf", "arith.maxsi"),
    "minimum": ("arith.minimumf", "arith.minsi"),
}
COMBINERS = {"sum": "add", "product": "multiply", "max": "maximum", "min": "minimum"}
FLOATS = ("f64", "f32", "bf16", "f16")
INTEGERS = ("i64", "i32", "i16", "i8")


@dataclass(frozen=True, slots=True)
class LoweringSite:
    """An op where it is written: names of operands, types of operands and results (of shards, in a program)."""

    page: ModuleWriter
    op: Op
    operands: Sequence[str]
    read: Sequence[TensorType]
    made: Sequence[TensorType]

    @property
    def signature(self) -> str:
        read, made = (", ".join(map(tensor_type, kinds)) for kinds in (self.read, self.made))
        return f"({read}) -> {made}" if len(self.made) == 1 else f"({read}) -> ({made})"

    @property
    def has_elements(self) -> bool:
        """Whether every tensor has elements, as those of tosa must."""
        return all(0 not in kind.shape for kind in (*self.read, *self.made))

    def listed(self) -> str:
        """Format `%a, %b : T, T`."""
        return f"{', '.join(self.operands)} : {', '.join(map(tensor_type, self.read))}"


@dataclass(frozen=True, slots=True)
class LoweredForm:
    """The text before and after an op's attributes, and the attributes that a reader infers from it.

    `entry` is an attribute of the operation itself; `lead` stands before the attributes where there are any.
    """

    head: str
    tail: str
    implied: Mapping[str, object]
    entry: str = ""
    lead: str = ""

    def text(self, kept: Mapping[str, object]) -> str:
        inner = ", ".join(filter(None, (self.entry, format_attributes(kept)[2:-1])))
        return self.head + (f"{self.lead} {{{inner}}}" if inner else "") + self.tail


def write_op(
    site: LoweringSite, more: Mapping[str, object], noted: Mapping[str, object] = MappingProxyType({})
) -> None:
    """Write an op with attributes `noted`; `more` (loops split, in a program) are attributes of a call.

    A part of an op whose sizes differ between devices is a call, as its shapes alone do not tell what is broadcast.
    """
    op, is_sized = site.op, all(kind.is_sized for kind in (*site.read, *site.made))
    has_form = op.op in LOWERINGS and op.notation is None and (is_sized or not more)
    form = LOWERINGS[op.op](site) if has_form else None
    result, kept = site.page.results(op.values)
    kept |= noted
    if op.option is not None:
        kept["shardplan.option"] = _split_loops(op, op.option)
    kept |= {f"shardplan.{key}": value for key, value in (("scope", op.scope),) if value}
    kept |= {"shardplan.phase": op.phase} if op.phase != "forward" else {}
    if form is None:
        described: dict[str, object] = {"shardplan.attrs": dict(op.attrs)} if op.attrs else {}
        described |= {"shardplan.rule": op.notation} if op.notation is not None else {}
        callee = site.page.callee(op.op, site.signature, {**described, **more})
        form = LoweredForm(f"func.call {callee}({', '.join(site.operands)})", f" : {site.signature}", op.attrs)
    if dict(op.attrs) != dict(form.implied):
        kept["shardplan.attrs"] = dict(op.attrs)
    site.page.write(f"{result} = {form.text(kept)}")


def mark_part(op: Op, done: OpCall) -> dict[str, object]:
    """Return what a call says about an op of which a device runs a part: mesh axes of its loops, halos or offsets of
    their blocks, and whole shapes.
    """
    split = _split_loops(op, done.option)
    shapes = [*op.rule.shapes, *(kind.shape for kind in op.results)]
    cuts = {
        loop: {"offsets": list(cut.offsets)} if cut.offsets else {"halo": list(cut.halo)}
        for loop, cut in done.loop_partitions
        if loop in split
    }
    marks: dict[str, object] = {"shardplan.split": split, "shardplan.whole": list(map(list, shapes))} if split else {}
    return marks | ({"shardplan.cuts": cuts} if cuts else {})


def _split_loops(op: Op, option: Option) -> dict[str, object]:
    return {loop.name: list(axes) for loop, axes in zip(op.rule.loops, option, strict=True) if axes}


def _lower_elementwise(site: LoweringSite) -> LoweredForm | None:
    name, kinds = site.op.op, (*site.read, *site.made)
    if "scalar" in site.op.attrs:
        return None
    if name in TOSA and len({len(kind.shape) for kind in kinds}) == 1 and site.has_elements:
        return LoweredForm(f"{TOSA[name]} {', '.join(site.operands)}", f" : {site.signature}", {})
    numeric = kinds[0].dtype in FLOATS or (name == "multiply" and kinds[0].dtype in INTEGERS)
    if name in NAMED and len(set(kinds)) == 1 and numeric:
        kind = tensor_type(kinds[0])
        return LoweredForm(
            f"linalg.{NAMED[name]}", f" ins({site.listed()}) outs({site.operands[0]} : {kind}) -> {kind}", {}
        )
    body = _body_op(name, kinds[0].dtype)
    return None if body is None or len({kind.dtype for kind in kinds}) > 1 else _lower_generic(site, [body], None)


def _body_op(name: str, dtype: str) -> str | None:
    real, whole = BODIES.get(name, (None, None))
    return real if dtype in FLOATS else whole if dtype in INTEGERS else None


def _lower_matmul(site: LoweringSite) -> LoweredForm | None:
    left, right = site.read
    add, multiply = _body_op("add", left.dtype), _body_op("multiply", left.dtype)
    if add is None or multiply is None:
        return None
    ranks = len(left.shape), len(right.shape)
    batched = ranks == (3, 3) and left.shape[0] == right.shape[0]
    if ranks != (2, 2) and not batched:
        return _lower_generic(site, [multiply, add], 0)
    start, kind = site.page.start(site.made[0], 0, site.op.id), tensor_type(site.made[0])
    name = "linalg.batch_matmul" if batched else "linalg.matmul"
    return LoweredForm(name, f" ins({site.listed()}) outs({start} : {kind}) -> {kind}", {})


def _lower_generic(site: LoweringSite, body: Sequence[str], start: float | None) -> LoweredForm | None:
    """Return a linalg.generic over the op's loops; `body` reads all operands, or multiplies and adds."""
    op = site.op
    # On shards, the loops of the shards: a loop of the whole op may have one turn there.
    rule = bind_op(op.op, tuple(site.read), tuple(site.made), attrs=op.attrs, notation=op.notation)
    loops = {loop.name: place for place, loop in enumerate(rule.loops) if loop.kind is not LoopKind.LINEAR}
    maps = _affine_maps(rule, loops)
    if maps is None:
        return None
    inside = {loop for term in rule.results for dim in term for loop in dim.loops}
    kinds = ", ".join(f'"{"parallel" if loop in inside else "reduction"}"' for loop in loops)
    written, scalar = site.page.start(site.made[0], start, site.op.id), element_type(site.made[0].dtype)
    inner = [site.page.fresh("in") for _ in (*site.operands, 0)]
    made = [site.page.fresh("out") for _ in body]
    lines = [f"{made[0]} = {body[0]} {', '.join(inner[:-1])} : {scalar}"]
    lines += [f"{made[1]} = {body[1]} {inner[-1]}, {made[0]} : {scalar}"] if len(body) > 1 else []
    block = ", ".join(f"{name}: {scalar}" for name in inner)
    head = f"linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{kinds}]}}"
    head += f" ins({site.listed()}) outs({written} : {tensor_type(site.made[0])})"
    text = "\n".join(f"    {line}" for line in (f"^bb0({block}):", *lines, f"linalg.yield {made[-1]} : {scalar}"))
    return LoweredForm(head, f" {{\n{text}\n  }} -> {tensor_type(site.made[0])}", {}, lead=" attrs =")


def _affine_maps(rule: Rule, loops: Mapping[str, int]) -> list[str] | None:
    """Return an affine map per operand and result; None where a dim has more than one loop."""

    def one(term: Term) -> str:
        dims = ", ".join(f"d{loops[dim.loops[0]]}" if dim.loops else "0" for dim in term)
        return f"affine_map<({', '.join(f'd{place}' for place in loops.values())}) -> ({dims})>"

    terms = (*rule.operands, *rule.results)
    simple = all(len(dim.loops) < 2 and not dim.joined for term in terms for dim in term)
    return [one(term) for term in terms] if simple else None


def _lower_reduction(site: LoweringSite) -> LoweredForm | None:
    dtype, dims = site.made[0].dtype, site.op.attrs["dims"]
    combiner = _body_op(COMBINERS[site.op.op], dtype)
    rank = len(site.read[0].shape)
    if combiner is None or not isinstance(dims, Sequence) or not dims:
        return None
    sorted_dims = sorted(dim % rank for dim in dims)
    if site.op.attrs.get("keepdim"):
        if len(dims) != 1 or site.op.op == "product" or not site.has_elements:
            return None
        head, implied = f"tosa.reduce_{site.op.op} {site.operands[0]}", {"dims": sorted_dims, "keepdim": True}
        return LoweredForm(head, f" : {site.signature}", implied, f"axis = {sorted_dims[0]} : i32")
    if site.made[0].shape != tuple(size for dim, size in enumerate(site.read[0].shape) if dim not in sorted_dims):
        return None  # a `?` beside a number: linalg requires equal shapes
    start = site.page.start(site.made[0], _neutral_element(site.op.op, dtype), site.op.id)
    head = f"linalg.reduce {{ {combiner} }} ins({site.listed()}) outs({start} : {tensor_type(site.made[0])})"
    return LoweredForm(f"{head} dimensions = {sorted_dims}", "", {"dims": sorted_dims})


def _neutral_element(name: str, dtype: str) -> float:
    top = math.inf if dtype in FLOATS else (1 << (int(dtype[1:]) - 1)) - 1
    bottom = -math.inf if dtype in FLOATS else -top - 1
    return {"sum": 0, "product": 1, "max": bottom, "min": top}[name]


def _lower_transpose(site: LoweringSite) -> LoweredForm | None:
    order = site.op.attrs["permutation"]
    if not isinstance(order, Sequence) or not order:  # mlir-opt 22 crashes on a transpose without dims
        return None
    whole = [dim % len(order) for dim in order]
    if site.made[0].shape != tuple(site.read[0].shape[dim] for dim in whole):
        return None
    start = site.page.start(site.made[0], None, site.op.id)
    head = f"linalg.transpose ins({site.listed()}) outs({start} : {tensor_type(site.made[0])}) permutation = {whole}"
    return LoweredForm(head, "", {"permutation": whole})


def _lower_full(site: LoweringSite) -> LoweredForm | None:
    value, kind = site.op.attrs["value"], site.made[0]
    if not kind.is_sized or not isinstance(value, int | float) or not _has_literal(value, kind.dtype):
        return None
    implied = {"value": bool(value) if kind.dtype == "bool" else value}
    return LoweredForm("arith.constant", f" dense<{format_number(value, kind.dtype)}> : {tensor_type(kind)}", implied)


def _has_literal(value: float, dtype: str) -> bool:
    if dtype in FLOATS or not math.isfinite(value):
        return dtype in FLOATS
    bits = DTYPE_BYTES[dtype] * 8
    least = -(1 << (bits - 1)) if dtype in INTEGERS else 0
    return is_float(dtype) or dtype == "bool" or (value == int(value) and least <= value < least + (1 << bits))


LOWERINGS: Mapping[str, Callable[[LoweringSite], LoweredForm | None]] = {
    **dict.fromkeys((*TOSA, *NAMED, *BODIES), _lower_elementwise),
    **dict.fromkeys(COMBINERS, _lower_reduction),
    "matmul": _lower_matmul,
    "transpose": _lower_transpose,
    "full": _lower_full,
}
