"""Layer and RMS normalization over the last dims, forward and backward.

    y = h w (+ b)    h = c r    r = 1 / sqrt(mean(c^2) + eps)    c = x - mean(x) (layer norm) or x (RMS norm)
    g = dy w         dx = r (g - mean(g) - h mean(g h)) (RMS norm: without mean(g))
    dw = sum dy h    db = sum dy    over all other dims; partial sums where these are split

J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer normalization", 2016; B. Zhang, R. Sennrich, "Root mean square layer
normalization", 2019. The backward ops recompute r: they read x anyway, and so nothing else has to be kept for them.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.errors import InvalidGraph
from planner.ops import attribute_types as types
from planner.ops.attributes import Attribute
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature, float_dtype

NORMALIZED_DIMS = Attribute("normalized_dims", types.whole_number(1), 1)
EPS = Attribute("eps", types.NUMBER, 1e-5)
ATTRS = (NORMALIZED_DIMS, EPS)


def _names(signature: OpSignature) -> str:
    count = signature.read(NORMALIZED_DIMS)
    rank = signature.rank(0)
    if count > rank:
        raise InvalidGraph("attribute 'normalized_dims'", got=count, wanted=f"1 to {rank}")
    return " ".join(f"n{i}" for i in range(count))


def _rule(signature: OpSignature) -> str:
    """Return the rule of x (, weight (, bias)) -> y."""
    names = _names(signature)
    scales = f", {names}" * (len(signature.operands) - 1)
    return f"... {names}{scales} -> ... {names}; blocked {names}"


def _backward_rule(signature: OpSignature) -> str:
    """Return the rule of (dy, x, weight) -> dx, dw (, db) or of (dy, x) -> dx, both linear in dy."""
    names = _names(signature)
    weight, scales = (
        f", {names}" * (len(side) - rest) for side, rest in ((signature.operands, 2), (signature.results, 1))
    )
    if (len(signature.operands), bool(scales)) not in ((2, False), (3, True)):
        got, wanted = len(signature.operands), "dy, x, weight, or dy, x for dx alone"
        raise InvalidGraph("number of operands", got=got, wanted=wanted)
    return f"... {names}, ... {names}{weight} -> ... {names}{scales}; blocked {names}; linear 0"


def _dims(local: OpContext, x: Array) -> tuple[int, ...]:
    return tuple(range(x.ndim - local.read(NORMALIZED_DIMS), x.ndim))


def _normal(local: OpContext, x: Array, centred: bool) -> tuple[Array, Array]:
    """Return h and r."""
    dims = _dims(local, x)
    x = x - x.mean(axis=dims, keepdims=True) if centred else x
    scale = 1 / local.xp.sqrt((x * x).mean(axis=dims, keepdims=True) + local.read(EPS))
    return x * scale, scale


def _forward(centred: bool) -> Callable[..., Array]:
    def compute(local: OpContext, x: Array, weight: Array | None = None, bias: Array | None = None) -> Array:
        normal, _ = _normal(local, x, centred)
        scaled = normal if weight is None else normal * weight
        return scaled if bias is None else scaled + bias

    return compute


def _backward(centred: bool) -> Callable[..., tuple[Array, ...]]:
    def compute(local: OpContext, grad: Array, x: Array, weight: Array | None = None) -> tuple[Array, ...]:
        dims = _dims(local, x)
        others = tuple(range(x.ndim - len(dims)))
        normal, scale = _normal(local, x, centred)
        inner = grad if weight is None else grad * weight
        change = inner - normal * (inner * normal).mean(axis=dims, keepdims=True)
        change = change - inner.mean(axis=dims, keepdims=True) if centred else change
        sums = ((grad * normal).sum(axis=others), grad.sum(axis=others))
        return (scale * change, *sums[: len(local.shapes) - 1])

    return compute


OP_DEFS = (
    OpDef("layer_norm", _rule, _forward(centred=True), 8, float_dtype, attrs=ATTRS),
    OpDef("layer_norm_backward", _backward_rule, _backward(centred=True), 18, float_dtype, attrs=ATTRS),
    OpDef("rms_norm", _rule, _forward(centred=False), 6, float_dtype, attrs=ATTRS),
    OpDef("rms_norm_backward", _backward_rule, _backward(centred=False), 14, float_dtype, attrs=ATTRS),
)
