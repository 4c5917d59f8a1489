"""The discrete Fourier transform of complex numbers, which are held as a real and an imaginary part.

    y[k] = sum over n of x[n] exp(-2 pi i k n / N)      the exponent's sign is + where `inverse`

The sum runs over all `dims`, which are whole; nothing is divided by N. The second operand may be left out where the
numbers are real. The matrix of the transform is symmetric, so that the gradient is the transform of the other sign.
5 N log2 N operations: M. Frigo, S. G. Johnson, "The design and implementation of FFTW3", 2005.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from planner.errors import InvalidGraph
from planner.ops import attribute_types as types
from planner.ops.attributes import DIMS, Attribute
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature, same_dtype

INVERSE = Attribute("inverse", types.FLAG, False)
TRANSFORMED = "n"
"""How the names of loops over transformed dims begin."""


def _rule(signature: OpSignature) -> str:
    """Return the rule of real part (, imaginary part) -> both parts: linear in the operands together."""
    count, dims = len(signature.operands), signature.read(DIMS)
    if count > 2 or not dims:
        raise InvalidGraph("transform", got=f"{count} operands over {len(dims)} dims", wanted="1 or 2, over 1 or more")
    names = [f"{TRANSFORMED if dim in dims else 'd'}{dim}" for dim in range(signature.rank(0))]
    term, whole = " ".join(names), " ".join(names[dim] for dim in sorted(dims))
    linear = "+".join(map(str, range(count)))
    return f"{', '.join([term] * count)} -> {term}, {term}; blocked {whole}; linear {linear}"


def _transform(local: OpContext, *parts: Array) -> tuple[Array, Array]:
    xp, dims = local.xp, local.read(DIMS, parts[0].ndim)
    if 0 in parts[0].shape:  # numpy returns an empty block as it is; other libraries refuse one
        return xp.zeros_like(parts[0]), xp.zeros_like(parts[0])
    z = parts[0] + 1j * parts[1] if len(parts) > 1 else parts[0]
    y = xp.fft.ifftn(z, axes=dims, norm="forward") if local.read(INVERSE) else xp.fft.fftn(z, axes=dims)
    return xp.real(y), xp.imag(y)


def _flops(sizes: Mapping[str, int]) -> float:
    points = math.prod(size for name, size in sizes.items() if name.startswith(TRANSFORMED))
    return 5 * math.prod(sizes.values()) * math.log2(max(points, 2))


def _dtypes(signature: OpSignature) -> str | None:
    wide = signature.operands[0].dtype in ("f32", "f64")
    return None if wide and same_dtype(signature) is None else "operands and results of f32 or f64"


OP_DEFS = (OpDef("fft", _rule, _transform, _flops, _dtypes, attrs=(DIMS, INVERSE)),)
