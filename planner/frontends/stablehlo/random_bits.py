"""JAX's random generator as ops of its own: the function `threefry2x32` of the text, and the words that it draws.

JAX writes the generator as some hundred ops on arrays of the mask's shape, which XLA fuses to one kernel that stores
the bits only. A call of it becomes one `threefry`. Where the counters are the positions of a tensor and only the xor of
the two words is read, as for every `jax.random` function of 32 bits, it becomes one `random_bits`, which reads the key
alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.stablehlo.op_call import RowResult, StablehloOpCall, StablehloRow
from planner.frontends.stablehlo.symbol_builder import SymbolBuilder
from planner.frontends.stablehlo.symbolic_values import KnownNumbers, Symbol, TensorSymbol
from planner.ir.graph import TensorType
from planner.ir.sharding import Shape

NAME = "threefry2x32"
KNOWN_INPUT = (0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3)
KNOWN_WORDS = (0xC4923A9C, 0x483DF7A0)
"""Key, counters and words from the tests of the Random123 library."""
Walk = Callable[[Sequence[Symbol]], Sequence[object]]


def is_threefry(name: str, operands: Sequence[TensorType], walk: Walk) -> bool:
    """Return whether a function is the generator: by its name and types, and by the words of a known input.

    `walk` evaluates the function. The words are compared because a function of the user may have the name.
    """
    if not name.startswith(NAME) or [kind.dtype for kind in operands] != ["u32"] * 4:
        return False
    words = walk([KnownNumbers(np.array(n, np.uint32), kind) for n, kind in zip(KNOWN_INPUT, operands, strict=True)])
    return tuple(word.number for word in words if isinstance(word, KnownNumbers) and word.splat) == KNOWN_WORDS


def draw_words(builder: SymbolBuilder, operands: Sequence[Symbol]) -> list[Symbol]:
    """Emit the generator for key and counters."""
    cores = [builder.core(operand) for operand in operands]
    shape = tuple(map(int, np.broadcast_shapes(*(core.shape for core in cores))))
    full = TensorType(tuple(map(int, np.broadcast_shapes(*(operand.type.shape for operand in operands)))), "u32")
    words = builder.emit_all("threefry", cores, [TensorType(shape, "u32")] * 2, attrs={})
    return [TensorSymbol(word, full) for word in words]


def join_words(otherwise: StablehloRow) -> StablehloRow:
    """Return a row for xor: `random_bits` of the two words of positions, else what `otherwise` gives."""

    def row(call: StablehloOpCall) -> RowResult | Sequence[RowResult]:
        key = _find_key(call)
        if key is None:
            return otherwise(call)
        return call.emit("random_bits", *key)

    return row


def _find_key(call: StablehloOpCall) -> tuple[DocumentValue, DocumentValue] | None:
    """Return the key whose two words for the positions of the whole result are the operands; None if they are not."""
    first, second = call.operands
    if not (isinstance(first, TensorSymbol) and isinstance(second, TensorSymbol)):
        return None
    node = call.builder.find_node(first.core)
    if node is None or node["op"] != "threefry" or node is not call.builder.find_node(second.core):
        return None
    if first.core.id == second.core.id or first.core.shape != call.result.shape:
        return None
    first_key, second_key, high, low = map(call.builder.find_value, node["inputs"])
    if math.prod((*first_key.shape, *second_key.shape)) > 1:
        return None
    key = call.reshape(first_key, ()), call.reshape(second_key, ())
    return key if _are_positions(call.builder, high, low, shape=call.result.shape) else None


def _are_positions(builder: SymbolBuilder, high: DocumentValue, low: DocumentValue, *, shape: Shape) -> bool:
    """Return whether two words are the row-major positions in a shape."""
    strides = {len(shape) - dim: math.prod(shape[dim + 1 :]) for dim, size in enumerate(shape) if size > 1}
    if _find_strides(builder, low) != strides:
        return False
    upper = _skip_cast(builder, high)
    node = builder.find_node(upper)
    if node and node["op"] == "shift_right" and node["attrs"] == {"scalar": 32}:
        return _find_strides(builder, builder.find_value(node["inputs"][0])) == strides
    return math.prod(shape) <= 1 << 32 and not any((_find_strides(builder, high) or {1: 1}).values())


def _skip_cast(builder: SymbolBuilder, value: DocumentValue) -> DocumentValue:
    node = builder.find_node(value)
    return builder.find_value(node["inputs"][0]) if node and node["op"] == "cast" else value


def _find_strides(builder: SymbolBuilder, value: DocumentValue) -> dict[int, int] | None:
    """Return the factors of a sum of indices, by dim counted from the end (1 is the last); None for other values."""
    value = _skip_cast(builder, value)
    node = builder.find_node(value)
    match node and (node["op"], node["attrs"]):
        case "arange", {"start": 0, "step": int(step), **rest}:
            return {len(value.shape) - int(str(rest.get("dim", 0))): step}
        case "multiply", {"scalar": factor}:
            inner = _find_strides(builder, builder.find_value(node["inputs"][0])) if node else None
            return inner and {dim: stride * factor for dim, stride in inner.items()}
        case "add", {**attrs} if node and not attrs:
            parts = [_find_strides(builder, builder.find_value(each)) for each in node["inputs"]]
            left, right = (part or {} for part in parts)
            return left | right if left and right and not left.keys() & right.keys() else None
        case _:
            return None
