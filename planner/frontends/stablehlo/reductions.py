"""Rows for reductions and sorting."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxlib.mlir.dialects import stablehlo

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.stablehlo.op_call import RowResult, StablehloOpCall
from planner.frontends.stablehlo.symbolic_values import KnownNumbers, Symbol, find_spacing
from planner.frontends.uncovered_ops import NotCovered
from planner.ir.dtypes import is_float
from planner.ir.graph import TensorType

KINDS = {"add": "sum", "multiply": "product", "maximum": "max", "minimum": "min", "or": "max", "and": "min"}
BESIDE = {"sum": "add", "product": "multiply", "max": "maximum", "min": "minimum"}
"""The op that combines a reduced value with an initial value."""


def reduce_(call: StablehloOpCall) -> RowResult | Sequence[RowResult]:
    if len(call.operands) == 4:
        return _extreme_and_place(call)
    call.demand("several operands", len(call.operands) == 2)
    x, start = call.operands
    kind, dims = KINDS.get(call.reducer()), list(call.ints("dimensions"))
    if kind is None or (call.reducer() in ("and", "or") and x.type.dtype != "bool"):
        raise NotCovered(f"a body of {call.reducer()}")
    if all(x.type.shape[dim] == 1 for dim in dims):
        reduced = call.builder.reshape(call.whole(0), call.result.shape)
    else:
        reduced = call.step(kind, [call.whole(0)], call.result.shape, dtype=call.result.dtype, dims=dims)
    if neutral(start, kind):
        return reduced
    return call.emit(BESIDE[kind], reduced, call.builder.core(start))


def neutral(start: Symbol, kind: str) -> bool:
    """Return whether an initial value is the neutral element of a reduction."""
    if not (isinstance(start, KnownNumbers) and start.splat):
        return False
    number, dtype = start.number, start.type.dtype
    if kind in ("sum", "product"):
        return number == (0 if kind == "sum" else 1)
    if dtype == "bool":
        return number is (kind == "min")
    if is_float(dtype):
        return number == (-math.inf if kind == "max" else math.inf)
    ends = np.iinfo(str(start.core.dtype))
    return number == (ends.min if kind == "max" else ends.max)


def _extreme_and_place(call: StablehloOpCall) -> list[DocumentValue]:
    """argmax or argmin: one reduction of values and their positions."""
    dims = call.ints("dimensions")
    direction = _first_direction(call)
    call.demand("several dims", len(dims) == 1)
    call.demand("places that are not counted along the dim", _counts(call.operands[1], dims[0]))
    call.demand(f"a body that compares {direction}", direction in ("GT", "LT"))
    value, places = call.results
    x, highest = call.whole(0), direction == "GT"
    extreme = call.builder.emit("max" if highest else "min", [x], value.shape, dtype=value.dtype, dims=list(dims))
    place = call.builder.emit("argmax" if highest else "argmin", [x], places.shape, dtype=places.dtype, dim=dims[0])
    return [extreme, place]


def _directions(call: StablehloOpCall) -> list[str]:
    inside = [each.operation for each in call.op.regions[0].blocks[0].operations]
    found = [each.attributes["comparison_direction"] for each in inside if each.name == "stablehlo.compare"]
    return [str(stablehlo.ComparisonDirectionAttr(each).value) for each in found]


def _first_direction(call: StablehloOpCall) -> str:
    return next(iter(_directions(call)), "nothing")


def _counts(symbol: Symbol, dim: int) -> bool:
    """Return whether the elements are 0, 1, ... along a dim."""
    if not isinstance(symbol, KnownNumbers):
        return False
    shape = (1,) * (len(symbol.type.shape) - symbol.core.ndim) + symbol.core.shape
    return symbol.core.size == shape[dim] == symbol.type.shape[dim] and find_spacing(symbol.core) == (0, 1)


def sort(call: StablehloOpCall) -> list[RowResult]:
    """Sort by the first operand; the others are gathered in its order."""
    others = call.operands[1:]
    arguments = list(call.op.regions[0].blocks[0].arguments)
    call.demand("several keys", not any(list(argument.uses) for argument in arguments[2:]))
    dim, direction = call.integer("dimension"), (_directions(call) or ["nothing"])[-1]
    call.demand(f"a comparison {direction}", direction in ("LT", "GT", "LE", "GE"))
    types = [call.results[0], TensorType(call.results[0].shape, "i64")]
    counted = [other for other in others if _counts(other, dim)]
    if counted:
        types[1] = counted[0].type
    made = call.step_all("sort", [call.whole(0)], types, dim=dim, descending=direction[0] == "G")
    values, places = made
    results: list[RowResult] = [values]
    for number, other in enumerate(others, start=1):
        kind = call.results[number]
        if _counts(other, dim) and kind == places.type:
            results.append(places)
        else:
            results.append(call.step("gather", [call.whole(number), places], kind.shape, dtype=kind.dtype, dim=dim))
    return results


def top_k(call: StablehloOpCall) -> list[DocumentValue]:
    return call.emit_all("topk", call.whole(0), dim=len(call.result.shape) - 1)
