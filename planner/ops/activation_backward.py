"""Gradients of pointwise activations, and the rotary embedding, whose gradient is the reversed rotation.

silu  d/dx x s(x) = s + x s (1 - s),  s the sigmoid
gelu  d/dx x P(x) = P + x p,  P the normal distribution, p its density; or the derivative of the tanh approximation
relu, tanh, sigmoid read the activation's result y: dy where y > 0, dy (1 - y^2), dy y (1 - y)
rope  (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin) rotates the halves x1, x2 of the last dim; with `reversed` the
      angles are negative, which is the transpose (J. Su et al., "RoFormer", 2021; halves as in GPT-NeoX)
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from planner.ops.elementwise import APPROXIMATE, REVERSED, erf, sigmoid
from planner.ops.op_def import Array, OpContext, OpDef, float_dtype


def _silu_backward(local: OpContext, grad: Array, x: Array) -> Array:
    gate = sigmoid(local, x)
    return grad * gate * (1 + x * (1 - gate))


def _gelu_backward(local: OpContext, grad: Array, x: Array) -> Array:
    if local.read(APPROXIMATE) == "tanh":
        slope = math.sqrt(2 / math.pi)
        bend = local.xp.tanh(slope * (x + 0.044715 * x * x * x))
        inner = slope * (1 + 3 * 0.044715 * x * x)
        return grad * 0.5 * (1 + bend + x * (1 - bend * bend) * inner)
    below = 0.5 * (1 + erf(local, x / math.sqrt(2)))
    return grad * (below + x * local.xp.exp(-0.5 * x * x) / math.sqrt(2 * math.pi))


def _relu_backward(local: OpContext, grad: Array, y: Array) -> Array:
    return local.xp.where(y > 0, grad, grad.dtype.type(0))


def _rope(local: OpContext, x: Array, cos: Array, sin: Array) -> Array:
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    sin = -sin if local.read(REVERSED) else sin
    return local.xp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _rope_flops(sizes: Mapping[str, int]) -> float:
    """Count six operations per pair. The halves p and q of the last dim are two loops of equal size: q is left out."""
    return 6 * math.prod(size for loop, size in sizes.items() if loop != "q")


OP_DEFS = (
    OpDef("silu_backward", "..., ... -> ...; linear 0", _silu_backward, 11, float_dtype),
    OpDef("gelu_backward", "..., ... -> ...; linear 0", _gelu_backward, 18, float_dtype, attrs=(APPROXIMATE,)),
    OpDef("relu_backward", "..., ... -> ...; linear 0", _relu_backward, 1, float_dtype),
    OpDef("tanh_backward", "..., ... -> ...; linear 0", lambda local, grad, y: grad * (1 - y * y), 3, float_dtype),
    OpDef("sigmoid_backward", "..., ... -> ...; linear 0", lambda local, grad, y: grad * y * (1 - y), 3, float_dtype),
    OpDef("rope", "... s {p|q}, s p, s p -> ... s {p|q}; linear 0", _rope, _rope_flops, float_dtype, attrs=(REVERSED,)),
)
