"""Handlers of products, reductions, transposes and linalg.generic.

An accumulation that starts from a tensor (linalg's `outs`) other than the neutral element is combined with that tensor
by a separate op. The body of a linalg.generic must be one operation or the multiplication and addition of a
contraction, and the results of its maps loops, sums of loops as in a convolution, or 0. If no op of the op table has
its loops, it carries its own rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from planner.errors import InvalidGraph, ShardplanError, UnsupportedOp
from planner.frontends.mlir.annotation_checks import NamedValue
from planner.frontends.mlir.attributes import AffineMap, DenseAttribute, LoopSum
from planner.frontends.mlir.op_names import ARITY, ELEMENTWISE, REDUCTIONS, TOSA_REDUCTIONS
from planner.frontends.mlir.operations import Operation
from planner.frontends.mlir.translation import InitTensor, MlirTranslation
from planner.frontends.mlir.types import MlirTensorType
from planner.ir.graph import TensorType
from planner.ops import bind_op

DimTerms = Sequence[LoopSum]
"""The loops that index every dim, with their coefficients; none for a dim of size 1."""
VECTOR_PRODUCTS: Mapping[str, tuple[Sequence[int], Sequence[tuple[list[int], list[int]]]]] = MappingProxyType(
    {
        "linalg.dot": ((1, 1), [([], [0]), ([], [0])]),
        "linalg.matvec": ((2, 1), [([], [1]), ([], [0])]),
        "linalg.vecmat": ((1, 2), [([], [0]), ([], [0])]),
        "linalg.batch_matvec": ((3, 2), [([0], [2]), ([0], [1])]),
        "linalg.batch_vecmat": ((2, 3), [([0], [1]), ([0], [1])]),
    }
)
"""Ranks of the operands; of each, the dims of the batch and the dims that are contracted."""
COMBINER_OPS = {reduction: op for op, reduction in REDUCTIONS.items()}


def translate_contraction(t: MlirTranslation, operation: Operation) -> None:
    """linalg.matmul, linalg.batch_matmul, tosa.matmul."""
    count = ARITY.get(operation.name, len(operation.operands))
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands[:count]]
    for zero in operation.operands[count:]:
        t.init_tensors.add(t.find_tensor(zero, operation.at).value)
    accumulate(t, operation, "matmul", inputs=inputs, attrs={}, kind="sum")


def translate_reduction(t: MlirTranslation, operation: Operation) -> None:
    """linalg.reduce with one operation as its combiner."""
    kind = REDUCTIONS.get(ELEMENTWISE.get(operation.body[0].name, "") if operation.body else "")
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    both = not operation.parameters or _reads_only(_read_body(t, operation)[0], operation.parameters)
    if kind is None or len(inputs) != 1 or not both:
        raise t.scan.error("reduction", at=operation.at, wanted=f"one of {list(COMBINER_OPS)}", error=UnsupportedOp)
    accumulate(t, operation, kind, inputs=inputs, attrs={"dims": operation.attrs.get("dimensions", [])}, kind=kind)


def translate_tosa_reduction(t: MlirTranslation, operation: Operation) -> None:
    """tosa.reduce_sum and the other tosa reductions, which keep the reduced dim."""
    attrs = {"dims": [operation.attrs.get("axis")], "keepdim": True}
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    t.add(operation, TOSA_REDUCTIONS[operation.name], inputs, attrs, t.tensors(operation))


def translate_transpose(t: MlirTranslation, operation: Operation) -> None:
    """linalg.transpose and mhlo.transpose."""
    order = operation.attrs.get("permutation")
    order = list(order.value) if isinstance(order, DenseAttribute) and isinstance(order.value, tuple) else order
    _mark_starts(t, operation)
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    t.add(operation, "transpose", inputs, {"permutation": order}, t.tensors(operation))


def translate_broadcast(t: MlirTranslation, operation: Operation) -> None:
    """linalg.broadcast: `dimensions` lists the new dims of the result."""
    _mark_starts(t, operation)
    (kind,) = t.tensors(operation)
    new = operation.attrs.get("dimensions", [])
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    if new == list(range(len(new))):
        t.add(operation, "expand", inputs, {}, (kind,))
        return
    kept = tuple(dim for dim in range(len(kind.type.shape)) if dim not in new)
    rule = _notation([_plain(kept)], _plain(range(len(kind.type.shape))), ["0"])
    t.add(operation, "broadcast", inputs, {}, (kind,), rule)


def translate_dot(t: MlirTranslation, operation: Operation) -> None:
    """mhlo.dot: the last dim of the left operand with the first of the right, both of rank 1 or 2."""
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    ranks = [len(tensor.shape) for tensor in inputs]
    if len(ranks) != 2 or not set(ranks) <= {1, 2}:
        raise t.scan.error(
            "ranks", at=operation.at, got=ranks, wanted="two operands of rank 1 or 2", error=InvalidGraph
        )
    operands, result = _dot_terms([([], [ranks[0] - 1]), ([], [0])], ranks)
    _add_product(t, operation, inputs, operands=operands, result=result)


def translate_vector_product(t: MlirTranslation, operation: Operation) -> None:
    """linalg.dot, linalg.matvec and the other products with a vector."""
    ranks, sides = VECTOR_PRODUCTS[operation.name]
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    got = [len(tensor.shape) for tensor in inputs]
    if got != list(ranks):
        wanted = f"ranks {ranks[0]} and {ranks[1]}"
        raise t.scan.error("operands of a product", at=operation.at, got=got, wanted=wanted, error=InvalidGraph)
    operands, result = _dot_terms(sides, ranks)
    _add_product(t, operation, inputs, operands=operands, result=result)


def translate_dot_general(t: MlirTranslation, operation: Operation) -> None:
    """dot_general; the result's dims are batch, then the free dims of the left operand, then those of the right."""
    numbers = operation.attrs.get("dot_dimension_numbers")
    if not isinstance(numbers, Mapping):
        raise t.scan.error("dot_general", at=operation.at, wanted="dot_dimension_numbers = #mhlo.dot<...>")
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    if len(inputs) != 2:
        raise t.scan.error("number of operands", at=operation.at, got=len(inputs), wanted="2", error=InvalidGraph)
    sides = [
        (list(numbers.get(f"{side}_batching_dimensions", [])), list(numbers.get(f"{side}_contracting_dimensions", [])))
        for side in ("lhs", "rhs")
    ]
    for (batch, contracted), tensor in zip(sides, inputs, strict=True):
        dims = [*batch, *contracted]
        if len(set(dims)) != len(dims) or not all(dim in range(len(tensor.shape)) for dim in dims):
            wanted = f"different dims of rank {len(tensor.shape)}"
            raise t.scan.error("dimension numbers", at=operation.at, got=dims, wanted=wanted, error=InvalidGraph)
    if any(len(left) != len(right) for left, right in zip(*sides, strict=True)):
        raise t.scan.error("dimension numbers", at=operation.at, got=sides, wanted="equally many on both sides")
    operands, result = _dot_terms(sides, [len(tensor.shape) for tensor in inputs])
    _add_product(t, operation, inputs, operands=operands, result=result)


def _dot_terms(sides: Sequence[tuple[list[int], list[int]]], ranks: Sequence[int]) -> tuple[list[DimTerms], DimTerms]:
    shared = len(sides[0][0]), len(sides[0][1])
    free = sum(shared)
    operands: list[DimTerms] = []
    result = list(range(shared[0]))
    for (batch, contracted), rank in zip(sides, ranks, strict=True):
        loops = {dim: k for k, dim in enumerate(batch)} | {dim: shared[0] + k for k, dim in enumerate(contracted)}
        for dim in range(rank):
            if dim not in loops:
                loops[dim] = free
                result.append(free)
                free += 1
        operands.append(_plain([loops[dim] for dim in range(rank)]))
    return operands, _plain(result)


def _plain(loops: Iterable[int]) -> DimTerms:
    """Return the terms of dims that one loop each indexes."""
    return [{loop: 1} for loop in loops]


def _add_product(
    t: MlirTranslation, operation: Operation, inputs: list[NamedValue], *, operands: list[DimTerms], result: DimTerms
) -> None:
    rule = _notation(operands, result, ["0", "1"])
    op = next(
        (op for op in ("matmul", "linear") if _matches_rule(t, op, inputs, results=t.tensors(operation), rule=rule)),
        None,
    )
    if op is None and all(dim for term in (*operands, result) for dim in term):
        attrs = {"equation": _notation(operands, result, [])}
        accumulate(t, operation, "einsum", inputs=inputs, attrs=attrs, kind="sum")
        return
    accumulate(t, operation, op or "dot_general", inputs=inputs, attrs={}, kind="sum", notation=None if op else rule)


def translate_generic(t: MlirTranslation, operation: Operation) -> None:
    """linalg.generic whose body is one operation, or the two of a contraction."""
    maps = operation.attrs.get("indexing_maps") or []
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    body = _read_body(t, operation)
    names = [ELEMENTWISE.get(each.name) for each in body]
    if len(maps) != len(inputs) + 1 or not all(isinstance(each, AffineMap) for each in maps):
        wanted = "one per operand, of sums of loops and 0"
        raise t.scan.error("indexing maps", at=operation.at, wanted=wanted, error=UnsupportedOp)
    terms: list[DimTerms] = [each.results for each in maps]
    if names == ["multiply", "add"] and len(inputs) == 2 and _is_product(body, operation.parameters):
        _add_product(t, operation, inputs, operands=terms[:-1], result=terms[-1])
        return
    arguments = {name: place for place, name in enumerate(operation.parameters[: len(inputs)])}
    read = [arguments.get(name) for name in body[0].operands] if len(body) == 1 else []
    if len(names) != 1 or names[0] is None or None in read:
        raise t.scan.error(
            "body", at=operation.at, wanted="one elementwise operation, or a product", error=UnsupportedOp
        )
    places = [place for place in read if place is not None]
    inputs, operands = [inputs[place] for place in places], [terms[place] for place in places]
    _mark_starts(t, operation)
    rule = _notation(operands, terms[-1], [])
    results = t.tensors(operation)
    has_row = _matches_rule(t, names[0], inputs, results=results, rule=rule)
    t.add(operation, names[0] if has_row else f"generic {names[0]}", inputs, {}, results, None if has_row else rule)


def _read_body(t: MlirTranslation, operation: Operation) -> list[Operation]:
    """Return the operations of a body before its yield, which must yield the last result.

    Raises InvalidGraph for an undefined value.
    """
    *body, last = operation.body or (Operation("nothing", operation.at),)
    defined = {*operation.parameters, *t.bound}
    for each in (*body, last):
        if missing := [name for name in each.operands if name not in defined]:
            raise t.scan.error(
                "undefined value", at=each.at, got=f"%{missing[0]}", wanted="a value of the body", error=InvalidGraph
            )
        defined.update(each.results)
    if not body or last.name != "linalg.yield" or last.operands != body[-1].results:
        got = f"{last.name} {', '.join(f'%{name}' for name in last.operands)}"
        raise t.scan.error("end of a body", at=last.at, got=got, wanted="a yield of the last result")
    return body


def _reads_only(operation: Operation, names: Sequence[str]) -> bool:
    return sorted(operation.operands) == sorted(names)


def _is_product(body: Sequence[Operation], parameters: Sequence[str]) -> bool:
    """Return whether a body multiplies the two inputs and adds the product to the accumulator."""
    left, right, into = (*parameters, "", "", "")[:3]
    return _reads_only(body[0], (left, right)) and _reads_only(body[1], (into, *body[0].results))


def _matches_rule(
    t: MlirTranslation, op: str, inputs: Sequence[NamedValue], *, results: Sequence[MlirTensorType], rule: str
) -> bool:
    """Return whether the rule of an op equals a rule up to the names of loops."""
    types: tuple[TensorType, ...] = tuple(t.types[tensor.value] for tensor in inputs)
    result_types = tuple(kind.type for kind in results)
    try:
        ours = bind_op(op, types, result_types, attrs={}, notation=None)
        given = bind_op("", types, result_types, attrs={}, notation=rule)
    except ShardplanError:
        return False
    # The rules are equal if the loops correspond one to one: `names` maps each of ours to one of theirs.
    names: dict[str, str] = {}
    for mine, its in zip((*ours.operands, *ours.results), (*given.operands, *given.results), strict=True):
        for dim, other in zip(mine, its, strict=True):
            if len(dim.loops) != len(other.loops) or dim.coefficients != other.coefficients:
                return False
            if any(names.setdefault(a, b) != b for a, b in zip(dim.loops, other.loops, strict=True)):
                return False
    return len(set(names.values())) == len(names)


def _notation(operands: Sequence[DimTerms], result: DimTerms, linear: Sequence[str]) -> str:
    """Return a rule. Loops of the result come first in a window: along them it is split."""
    made = {loop for dim in result for loop in dim}

    def term(dims: DimTerms) -> str:
        return " ".join(map(spell, dims)) or "[]"

    def spell(dim: LoopSum) -> str:
        factors = {f"d{loop}": dim[loop] for loop in sorted(dim, key=lambda loop: loop not in made)}
        if not factors:
            return "1"
        return spell_window(factors) if list(factors.values()) != [1] else next(iter(factors))

    groups = f"; linear {', '.join(linear)}" if linear else ""
    return f"{', '.join(map(term, operands))} -> {term(result)}{groups}"


def spell_window(factors: Mapping[str, int]) -> str:
    """Return the notation of a dim that is read at a sum of loops with coefficients."""
    return f"({'+'.join(loop if factor == 1 else f'{factor}*{loop}' for loop, factor in factors.items())})"


def accumulate(
    t: MlirTranslation,
    operation: Operation,
    op: str,
    *,
    inputs: Sequence[NamedValue],
    attrs: Mapping[str, Any],
    kind: str,
    notation: str | None = None,
) -> None:
    """Add an op, combined with its initial value unless that is neutral."""
    results = t.tensors(operation)
    start = t.bound.get(operation.inits[0]) if operation.inits else InitTensor(neutral=True)
    if isinstance(start, InitTensor):
        if not start.neutral:
            what, wanted = "accumulation into an empty tensor", "a tensor with elements"
            raise t.scan.error(what, at=operation.at, got=f"%{operation.inits[0]}", wanted=wanted, error=InvalidGraph)
        t.add(operation, op, inputs, attrs, results, notation)
        return
    if is_neutral_start(t, operation, kind):
        t.add(operation, op, inputs, attrs, results, notation)
        return
    tensor = t.find_tensor(operation.inits[0], operation.at)
    term = t.add(operation, op, inputs, attrs, [MlirTensorType(results[0].type)], notation, suffix=".term")
    t.add(operation, COMBINER_OPS[kind], (t.result(term), tensor), {}, results)


def is_neutral_start(t: MlirTranslation, operation: Operation, kind: str) -> bool:
    """Return whether an accumulation starts from a neutral constant, which then only the operation reads."""
    tensor = t.find_tensor(operation.inits[0], operation.at)
    full = next((each for each in t.ops if each.id == tensor.value and each.op == "full"), None)
    if full is None or not _is_neutral(full.attrs["value"], kind, t.types[tensor.value].dtype):
        return False
    t.init_tensors.add(tensor.value)
    return True


def _is_neutral(value: object, kind: str, dtype: str) -> bool:
    bits = 63 if dtype == "i64" else 31 if dtype == "i32" else 15 if dtype == "i16" else 7
    least = {-math.inf, -(1 << bits)} if kind == "max" else {math.inf, (1 << bits) - 1}
    return value in {"sum": {0}, "product": {1}}.get(kind, least)


def _mark_starts(t: MlirTranslation, operation: Operation) -> None:
    """Mark the tensors that an operation only writes to: the constants that fill them are dropped if unread."""
    t.init_tensors |= {tensor.value for name in operation.inits if isinstance(tensor := t.bound.get(name), NamedValue)}
