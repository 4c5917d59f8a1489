"""The table: StableHLO or CHLO op -> row that emits ops of the op table. One op is one row.

Calls, control flow and shardings are handled by the translation.
"""

from __future__ import annotations

import math

import numpy as np

from planner.frontends.stablehlo import dot_conv, gather_scatter, pointwise, random_bits, reductions, views, windows
from planner.frontends.stablehlo.op_call import StablehloRow
from planner.frontends.stablehlo.pointwise import binary, of_bool, unary

OP_TABLE: dict[str, StablehloRow] = {
    # element by element
    "stablehlo.abs": unary("abs", np.abs),
    "stablehlo.cosine": unary("cos", np.cos),
    "stablehlo.ceil": unary("ceil", np.ceil),
    "stablehlo.exponential": unary("exp", np.exp),
    "stablehlo.exponential_minus_one": unary("expm1", np.expm1),
    "stablehlo.floor": unary("floor", np.floor),
    "stablehlo.is_finite": unary("is_finite", np.isfinite),
    "stablehlo.log": unary("log", np.log),
    "stablehlo.log_plus_one": unary("log1p", np.log1p),
    "stablehlo.logistic": unary("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    "stablehlo.negate": unary("negate", np.negative),
    "stablehlo.round_nearest_even": unary("round", np.rint),
    "stablehlo.rsqrt": unary("rsqrt", lambda x: 1 / np.sqrt(x)),
    "stablehlo.sign": unary("sign", np.sign),
    "stablehlo.sine": unary("sin", np.sin),
    "stablehlo.sqrt": unary("sqrt", np.sqrt),
    "stablehlo.tan": unary("tan", np.tan),
    "stablehlo.cbrt": unary("cbrt", np.cbrt),
    "stablehlo.round_nearest_afz": pointwise.round_half_away,
    "chlo.acos": unary("acos", np.arccos),
    "chlo.acosh": unary("acosh", np.arccosh),
    "chlo.asin": unary("asin", np.arcsin),
    "chlo.asinh": unary("asinh", np.arcsinh),
    "chlo.atan": unary("atan", np.arctan),
    "chlo.atanh": unary("atanh", np.arctanh),
    "chlo.cosh": unary("cosh", np.cosh),
    "chlo.sinh": unary("sinh", np.sinh),
    "chlo.tan": unary("tan", np.tan),
    "stablehlo.tanh": unary("tanh", np.tanh),
    "chlo.erf": unary("erf", np.vectorize(math.erf)),
    "chlo.erf_inv": unary("erf_inv", np.vectorize(pointwise.erf_inv)),
    "chlo.erfc": pointwise.erfc,
    "chlo.square": unary("square", np.square),
    "stablehlo.add": binary("add", np.add),
    "stablehlo.atan2": binary("atan2", np.arctan2),
    "stablehlo.divide": binary("divide", pointwise.quotient),
    "stablehlo.maximum": binary("maximum", np.maximum),
    "stablehlo.minimum": binary("minimum", np.minimum),
    "stablehlo.multiply": binary("multiply", np.multiply),
    "chlo.next_after": pointwise.of_known(np.nextafter),
    "stablehlo.power": binary("pow", np.power),
    "stablehlo.remainder": binary("fmod", np.fmod),
    "stablehlo.subtract": binary("subtract", np.subtract),
    "stablehlo.and": of_bool("logical_and", "bitwise_and", np.bitwise_and),
    "stablehlo.not": of_bool("logical_not", "bitwise_not", np.bitwise_not),
    "stablehlo.or": of_bool("logical_or", "bitwise_or", np.bitwise_or),
    "stablehlo.xor": random_bits.join_words(of_bool("logical_xor", "bitwise_xor", np.bitwise_xor)),
    "stablehlo.shift_left": binary("shift_left", np.left_shift),
    "stablehlo.shift_right_arithmetic": pointwise.shift_right("i"),
    "stablehlo.shift_right_logical": pointwise.shift_right("u"),
    "stablehlo.bitcast_convert": pointwise.bitcast,
    "stablehlo.clamp": pointwise.clamp,
    "stablehlo.compare": pointwise.compare,
    "stablehlo.convert": pointwise.convert,
    "stablehlo.reduce_precision": pointwise.pass_through,
    "stablehlo.select": pointwise.select,
    # matrix products and convolutions
    "stablehlo.convolution": dot_conv.convolution,
    "stablehlo.dot_general": dot_conv.dot_general,
    # views and constants
    "stablehlo.broadcast_in_dim": views.broadcast_in_dim,
    "stablehlo.concatenate": views.concatenate,
    "stablehlo.constant": views.constant,
    "stablehlo.dynamic_slice": views.dynamic_slice,
    "stablehlo.dynamic_update_slice": views.dynamic_update_slice,
    "stablehlo.iota": views.iota,
    "stablehlo.pad": views.pad,
    "stablehlo.reshape": views.reshape,
    "stablehlo.reverse": views.reverse,
    "stablehlo.slice": views.slice_,
    "stablehlo.transpose": views.transpose,
    # indexing
    "stablehlo.gather": gather_scatter.gather,
    "stablehlo.scatter": gather_scatter.scatter,
    # reductions, windows, sorting
    "stablehlo.reduce": reductions.reduce_,
    "stablehlo.reduce_window": windows.reduce_window,
    "stablehlo.select_and_scatter": windows.select_and_scatter,
    "stablehlo.sort": reductions.sort,
    "chlo.top_k": reductions.top_k,
}
