"""Operations of other dialects -> ops of the op table."""

from __future__ import annotations

_ELEMENTWISE = {
    "identity": "tosa.identity",
    "negate": "arith.negf tosa.negate mhlo.negate linalg.negf",
    "abs": "math.absf math.absi tosa.abs mhlo.abs linalg.abs",
    "square": "linalg.square",
    "sqrt": "math.sqrt mhlo.sqrt linalg.sqrt",
    "rsqrt": "math.rsqrt tosa.rsqrt mhlo.rsqrt linalg.rsqrt",
    "reciprocal": "tosa.reciprocal linalg.reciprocal",
    "exp": "math.exp tosa.exp mhlo.exponential linalg.exp",
    "log": "math.log tosa.log mhlo.log linalg.log",
    "sin": "math.sin tosa.sin mhlo.sine",
    "cos": "math.cos tosa.cos mhlo.cosine",
    "tanh": "math.tanh tosa.tanh mhlo.tanh linalg.tanh",
    "erf": "math.erf tosa.erf linalg.erf",
    "sigmoid": "tosa.sigmoid mhlo.logistic",
    "logical_not": "tosa.logical_not",
    "cast": "tosa.cast mhlo.convert arith.extf arith.truncf arith.sitofp arith.fptosi arith.extsi arith.trunci",
    "where": "tosa.select arith.select mhlo.select linalg.select",
    "add": "arith.addf arith.addi tosa.add mhlo.add linalg.add",
    "subtract": "arith.subf arith.subi tosa.sub mhlo.subtract linalg.sub",
    "multiply": "arith.mulf arith.muli tosa.mul mhlo.multiply linalg.mul",
    "divide": "arith.divf mhlo.divide linalg.div",
    "pow": "math.powf tosa.pow mhlo.power linalg.powf",
    "maximum": "arith.maximumf arith.maxsi tosa.maximum mhlo.maximum linalg.max",
    "minimum": "arith.minimumf arith.minsi tosa.minimum mhlo.minimum linalg.min",
    "logical_and": "tosa.logical_and",
    "logical_or": "tosa.logical_or",
    "equal": "tosa.equal",
    "greater": "tosa.greater",
    "greater_equal": "tosa.greater_equal",
}
ELEMENTWISE = {name: op for op, names in _ELEMENTWISE.items() for name in names.split()}
ARITY = {"tosa.negate": 1, "tosa.mul": 2, "tosa.matmul": 2}
"""The number of tensor operands; those that follow are zero points and shifts, which must be 0."""
CONTRACTIONS = ("linalg.matmul", "linalg.batch_matmul", "tosa.matmul")
REDUCTIONS = {"add": "sum", "multiply": "product", "maximum": "max", "minimum": "min"}
"""Combiner -> reduction."""
TOSA_REDUCTIONS = {
    "tosa.reduce_sum": "sum",
    "tosa.reduce_max": "max",
    "tosa.reduce_min": "min",
    "tosa.reduce_prod": "product",
    "tosa.reduce_product": "product",
}


def find_common_op(name: str) -> str:
    """Return the mhlo name of a StableHLO operation; any other name unchanged."""
    return name.replace("stablehlo.", "mhlo.", 1) if name.startswith("stablehlo.") else name
