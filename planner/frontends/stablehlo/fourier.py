"""The row for `stablehlo.fft`: transforms of the last dims, as the op `fft` of pairs.

Where the operand is real, the result keeps the first half of the last dim. Where the result is real, the operand is
such a half; its other half are the conjugates, so that the result is twice the real part of what the half gives. The
elements that are their own conjugates count once. The op `fft` does not divide; inverse transforms are divided here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.stablehlo.complex_parts import ComplexCall, ComplexParts, Value, is_zero
from planner.frontends.stablehlo.symbolic_values import KnownNumbers, TensorSymbol, numpy_dtype


def transform(call: ComplexCall) -> Value:
    """Transform the last dims, as many as `fft_length` has sizes."""
    kind = str(call.op.attributes["fft_type"]).rstrip(">").rpartition(" ")[2]
    sizes = tuple(call.op.attributes["fft_length"])
    operand = call.pair(0)
    rank = len(operand.type.shape)
    dims = range(rank - len(sizes), rank)
    match kind:
        case "FFT":
            return _pair(_transform(call, _values(call, operand), dims, inverse=False))
        case "IFFT":
            return _divide(call, _transform(call, _values(call, operand), dims, inverse=True), sizes)
        case "RFFT":
            half = sizes[-1] // 2 + 1
            made = _transform(call, _values(call, operand), dims, inverse=False)
            return _pair([call.builder.part(TensorSymbol.of(each), rank - 1, 0, half) for each in made])
        case "IRFFT":
            whole = _complete_halves(call, _values(call, operand), sizes[-1])
            return _divide(call, _transform(call, whole, dims, inverse=True)[:1], sizes).real
        case _:
            raise call.refuse(f"a transform {kind}")


def _values(call: ComplexCall, z: ComplexParts) -> list[DocumentValue]:
    """Return the real part, and the imaginary part unless it is 0."""
    return [call.builder.whole(part) for part in ((z.real,) if is_zero(z.imag) else z)]


def _transform(
    call: ComplexCall, parts: Sequence[DocumentValue], dims: Sequence[int], *, inverse: bool
) -> list[DocumentValue]:
    attrs = {"dims": list(dims), "inverse": inverse}
    return call.builder.emit_all("fft", parts, [parts[0].type] * 2, attrs=attrs)


def _pair(parts: Sequence[DocumentValue]) -> ComplexParts:
    return ComplexParts(*map(TensorSymbol.of, parts))


def _divide(call: ComplexCall, parts: Sequence[DocumentValue], sizes: Sequence[int]) -> ComplexParts:
    """Divide by the number of elements."""
    scale = KnownNumbers(np.asarray(1 / math.prod(sizes), numpy_dtype(call.result.dtype)), call.result)
    divided = [call.multiply(TensorSymbol.of(each), scale) for each in parts]
    return ComplexParts(divided[0], divided[-1])


def _complete_halves(call: ComplexCall, parts: Sequence[DocumentValue], size: int) -> list[DocumentValue]:
    """Double the elements of the half of the last dim that stand for a conjugate too, and pad it to `size`."""
    emit, shape, dtype = call.builder.emit, parts[0].shape, parts[0].dtype
    twice, half = (size - 1) // 2, size // 2 + 1
    if twice:
        doubled = call.builder.full(2, (twice,), dtype)
        weights = emit("pad", [doubled], (half,), dtype=dtype, low=[1], high=[half - 1 - twice], value=1)
        parts = [emit("multiply", [part, weights], shape, dtype=dtype) for part in parts]
    if half == size:
        return list(parts)
    low, high = [0] * len(shape), [0] * (len(shape) - 1) + [size - half]
    return [emit("pad", [part], (*shape[:-1], size), dtype=dtype, low=low, high=high, value=0) for part in parts]
