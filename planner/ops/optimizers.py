"""Optimizer steps. They are pointwise: each device updates the part of a parameter that it holds.

    m' = beta1 m + (1 - beta1) g        v' = beta2 v + (1 - beta2) g^2
    w' = (1 - lr decay) w - lr (m' / (1 - beta1^t)) / (sqrt(v' / (1 - beta2^t)) + eps)

at step t, counted from 1. D. P. Kingma, J. Ba, "Adam", 2014; weight decay as in I. Loshchilov, F. Hutter, "Decoupled
weight decay regularization", 2017. The gradient may have a narrower dtype than the weight and its moments.
"""

from __future__ import annotations

from planner.ir.dtypes import is_float
from planner.ops import attribute_types as types
from planner.ops.attributes import Attribute
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature

LR = Attribute("lr", types.NUMBER, 1e-3)
BETA1 = Attribute("beta1", types.NUMBER, 0.9)
BETA2 = Attribute("beta2", types.NUMBER, 0.999)
EPS = Attribute("eps", types.NUMBER, 1e-8)
WEIGHT_DECAY = Attribute("weight_decay", types.NUMBER, 0.0)


def _adam(
    local: OpContext, weight: Array, grad: Array, first: Array, second: Array, step: Array
) -> tuple[Array, Array, Array]:
    beta1, beta2 = local.read(BETA1), local.read(BETA2)
    rate = local.read(LR)
    grad = grad.astype(weight.dtype, copy=False)
    first = beta1 * first + (1 - beta1) * grad
    second = beta2 * second + (1 - beta2) * grad * grad
    root = local.xp.sqrt(second / (1 - beta2**step)) + local.read(EPS)
    kept = weight * (1 - rate * local.read(WEIGHT_DECAY))
    made = (kept - rate * (first / (1 - beta1**step)) / root, first, second)
    return tuple(array.astype(weight.dtype, copy=False) for array in made)


def _adam_dtypes(signature: OpSignature) -> str | None:
    weight, grad, *moments, step = (kind.dtype for kind in signature.operands)
    one = {weight, *moments, *(kind.dtype for kind in signature.results)}
    good = len(one) == 1 and all(map(is_float, (weight, grad, step)))
    return None if good else "weight, moments and results of one float dtype; a float gradient and step"


OP_DEFS = (
    OpDef(
        "adam",
        "..., ..., ..., ..., [] -> ..., ..., ...",
        _adam,
        15,
        _adam_dtypes,
        attrs=(LR, BETA1, BETA2, EPS, WEIGHT_DECAY),
    ),
)
