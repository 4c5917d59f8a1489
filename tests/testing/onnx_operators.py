"""ONNX operators with operands and attributes, by family."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

F = np.float32
OPSET = 20


@dataclass(frozen=True)
class Case:
    """An operator with arrays as operands: initializers where in `given` (None: omitted), else graph inputs."""

    op: str
    operands: tuple[Any, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    given: tuple[int, ...] = ()
    results: int = 1
    opset: int = OPSET

    def __str__(self) -> str:
        shown = " ".join(f"{key}={value}" for key, value in self.attrs.items() if not hasattr(value, "dims"))
        shapes = " ".join("-" if each is None else str(list(each.shape)) for each in self.operands)
        return f"{self.op} {shapes} {shown} v{self.opset}".replace("  ", " ")


def x(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(F)


def above(*shape: int) -> Any:
    return (np.abs(x(*shape, seed=9)) + 0.5).astype(F)


def ids(top: int, *shape: int, low: int = 0) -> Any:
    return np.random.default_rng(1).integers(low, top, size=shape)


def i(*numbers: int) -> Any:
    return np.array(numbers, dtype=np.int64)


def f(number: float) -> Any:
    return np.array(number, dtype=F)


def truth(*shape: int) -> Any:
    return x(*shape, seed=3) > 0


def unary() -> list[Case]:
    smooth = ["Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Neg", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Softplus"]
    smooth += ["Tanh", "Identity", "IsNaN", "IsInf"]
    opened = ["HardSwish", "LeakyRelu", "Elu", "Selu", "HardSigmoid", "Mish", "Softsign", "ThresholdedRelu", "Celu"]
    return [
        *(Case(op, (x(4, 6),)) for op in smooth),
        *(Case(op, (above(4, 6),)) for op in ("Log", "Reciprocal", "Sqrt")),
        *(Case(op, (x(4, 6),), opset=22 if op in ("HardSwish", "Mish") else OPSET) for op in opened),
        Case("Not", (truth(4, 6),)),
        Case("Gelu", (x(4, 6),)),
        Case("Gelu", (x(4, 6),), {"approximate": "tanh"}),
        Case("Swish", (x(4, 6),), opset=24),
        Case("PRelu", (x(4, 6), above(6)), given=(1,)),
        Case("Dropout", (x(4, 6),)),
        Case("Cast", (x(4, 6),), {"to": 7}),
        Case("Cast", (truth(4, 6),), {"to": 1}),
        Case("CastLike", (x(4, 6), ids(3, 2)), given=(1,)),
    ]


def binary() -> list[Case]:
    a, b, n, m = x(4, 6), above(4, 6), ids(9, 4, 6, low=1), ids(5, 6, low=1)
    compared = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    return [
        *(Case(op, (a, b)) for op in ("Add", "Sub", "Mul", "Div")),
        *(Case(op, (a, above(6))) for op in ("Add", "Sub", "Mul", "Div")),
        *(Case(op, (a, f(1.5)), given=(1,)) for op in ("Add", "Sub", "Mul", "Div")),
        *(Case(op, (f(1.5), b), given=(0,)) for op in ("Add", "Sub", "Mul", "Div", "Pow")),
        Case("Mul", (x(4, 6), np.full((1, 1, 1), 2, F)), given=(1,)),
        Case("Pow", (b, i(2).reshape(())), given=(1,)),
        Case("Pow", (b, a)),
        Case("Div", (n, m)),
        Case("Mod", (n, m)),
        Case("Mod", (a, b), {"fmod": 1}),
        *(Case(op, (n, ids(9, 4, 6, low=2))) for op in compared),
        *(Case(op, (truth(4, 6), truth(6))) for op in ("And", "Or", "Xor")),
        Case("BitwiseAnd", (n, m)),
        *(Case(op, (a, b, x(6))) for op in ("Max", "Min", "Sum", "Mean")),
        Case("Max", (a,)),
        Case("Clip", (a, f(-0.5), f(0.5)), given=(1, 2)),
        Case("Clip", (a, None, f(0.5)), given=(2,)),
        Case("Clip", (a, f(-0.5), f(0.5))),
        Case("Clip", (a,), {"min": -0.5, "max": 0.25}, opset=6),
        Case("Where", (truth(4, 6), a, f(-np.inf)), given=(2,)),
        Case("Where", (truth(6), a, b)),
    ]


def products() -> list[Case]:
    return [
        Case("MatMul", (x(4, 6), x(6, 8))),
        Case("MatMul", (x(2, 4, 6), x(6, 8))),
        Case("MatMul", (x(6), x(2, 6, 8))),
        Case("MatMul", (x(4, 6), x(6))),
        Case("MatMul", (x(6), x(6))),
        Case("Gemm", (x(4, 6), x(6, 8))),
        Case("Gemm", (x(4, 6), x(6, 8), x(8))),
        Case("Gemm", (x(4, 6), x(8, 6), x(8)), {"transB": 1}),
        Case("Gemm", (x(4, 6), x(8, 6), x(4, 1)), {"transB": 1}),
        Case("Gemm", (x(6, 4), x(6, 8), x(1, 8)), {"transA": 1, "alpha": 0.5, "beta": 2.0}),
        Case("Einsum", (x(2, 4, 6), x(2, 8, 6)), {"equation": "bid, bjd -> bij"}),
        Case("Softmax", (x(4, 6),)),
        Case("Softmax", (x(4, 6, 2),), {"axis": 1}),
        Case("Softmax", (x(4, 6),), {"axis": 1}, opset=11),
        Case("LogSoftmax", (x(4, 6),)),
        Case("LayerNormalization", (x(4, 6, 8), x(8), x(8))),
        Case("LayerNormalization", (x(4, 6, 8), x(6, 8)), {"axis": 1, "epsilon": 0.1}),
        Case("LayerNormalization", (x(4, 6, 8), x(1), x(8))),
        Case("RMSNormalization", (x(4, 6, 8), x(8)), opset=23),
        Case("Attention", (x(2, 4, 6, 8), x(2, 4, 6, 8), x(2, 4, 6, 8)), {"is_causal": 1}, opset=23),
        Case("Attention", (x(2, 4, 6, 8), x(2, 2, 6, 8), x(2, 2, 6, 4), x(6, 6)), {"scale": 0.3}, opset=23),
        Case(
            "Attention",
            (x(2, 6, 32), x(2, 6, 16), x(2, 6, 16), x(2, 4, 6, 6)),
            {"q_num_heads": 4, "kv_num_heads": 2},
            opset=23,
        ),
        *(Case(f"Reduce{kind}", (x(4, 6, 2), i(-2)), given=(1,)) for kind in ("Sum", "Mean", "Max", "Min", "Prod")),
        *(Case(f"Reduce{kind}", (x(4, 6, 2), i(0, 2)), {"keepdims": 0}, (1,)) for kind in ("Sum", "Mean", "Max")),
        *(Case(f"Reduce{kind}", (above(4, 6), i(1)), given=(1,)) for kind in ("L1", "L2", "LogSum", "SumSquare")),
        Case("ReduceLogSumExp", (x(4, 6), i(1)), given=(1,)),
        Case("ReduceSum", (x(4, 6),), {"axes": [1]}, opset=11),
        Case("ReduceSum", (x(4, 6),), {"noop_with_empty_axes": 1}),
        Case("ReduceMax", (x(4, 6),)),
        Case("ArgMax", (x(4, 6),), {"axis": 1}),
        Case("ArgMin", (x(4, 6),), {"axis": 0, "keepdims": 0}),
        Case("CumSum", (x(4, 6), i(1).reshape(())), given=(1,)),
        Case("CumSum", (x(4, 6), i(-2).reshape(())), {"exclusive": 1, "reverse": 1}, (1,)),
    ]


def views() -> list[Case]:
    a = x(4, 6, 8)
    return [
        Case("Reshape", (a, i(4, -1)), given=(1,)),
        Case("Reshape", (a, i(0, 3, 2, 8)), given=(1,)),
        Case("Flatten", (a,), {"axis": 2}),
        Case("Squeeze", (x(4, 1, 6), i(1)), given=(1,)),
        Case("Squeeze", (x(4, 1, 6),), {"axes": [1]}, opset=11),
        Case("Unsqueeze", (x(4, 6), i(0, -1)), given=(1,)),
        Case("Transpose", (a,)),
        Case("Transpose", (a,), {"perm": [1, 0, 2]}),
        Case("Expand", (x(1, 6), i(4, 2, 1)), given=(1,)),
        Case("Concat", (x(4, 6), x(2, 6)), {"axis": 0}),
        Case("Concat", (x(4, 6), x(4, 6, seed=1)), {"axis": -1}),
        Case("Split", (a,), {"axis": 1, "num_outputs": 2}, results=2),
        Case("Split", (a, i(2, 5, 1)), {"axis": -1}, (1,), 3),
        Case("Slice", (a, i(1), i(4)), given=(1, 2)),
        Case("Slice", (a, i(1, -3), i(9, -1), i(0, -1)), given=(1, 2, 3)),
        Case("Slice", (a, i(-1), i(-(1 << 62)), i(1), i(-1)), given=(1, 2, 3, 4)),
        Case("Slice", (a, i(5, 1), i(0, 7), i(1, 2), i(-2, 3)), given=(1, 2, 3, 4)),
        Case("Slice", (a,), {"starts": [1], "ends": [3], "axes": [1]}, opset=9),
        Case("Tile", (x(4, 6), i(2, 3)), given=(1,)),
        Case("Pad", (x(4, 6), i(1, 0, 2, 3), f(0.5)), given=(1, 2)),
        Case("Pad", (x(4, 6), i(1, 3), None, i(-1)), given=(1, 3)),
        Case("Trilu", (x(4, 6),)),
        Case("Trilu", (x(2, 6, 6), i(-1).reshape(())), {"upper": 0}, (1,)),
        Case("DepthToSpace", (x(2, 8, 3, 4),), {"blocksize": 2}),
        Case("DepthToSpace", (x(2, 8, 3, 4),), {"blocksize": 2, "mode": "CRD"}),
        Case("SpaceToDepth", (x(2, 3, 4, 6),), {"blocksize": 2}),
        Case("EyeLike", (x(4, 6),), {"k": 1}),
        Case("Range", (i(2).reshape(()), i(11).reshape(()), i(3).reshape(())), given=(0, 1, 2)),
        Case("ConstantOfShape", (i(4, 6),), given=(0,)),
        Case("Resize", (x(1, 2, 3, 4), None, None, i(1, 2, 6, 12)), {"mode": "nearest"}, (3,)),
        Case("Shape", (x(4, 6),)),
    ]


def lookups() -> list[Case]:
    table = x(8, 6)
    return [
        Case("Gather", (table, ids(8, 2, 4))),
        Case("Gather", (table, ids(6, 4, low=-6)), {"axis": 1}),
        Case("Gather", (table, i(-2).reshape(())), {"axis": 1}, (1,)),
        Case("Gather", (table, i(3)), given=(1,)),
        Case("Gather", (x(8), ids(8, 2, 4))),
        Case("GatherElements", (table, ids(8, 4, 6))),
        Case("GatherElements", (table, ids(6, 8, 3, low=-6)), {"axis": 1}),
        Case("GatherND", (x(4, 4, 6), ids(4, 2, 3, 2))),
        Case("GatherND", (x(4, 4, 6), ids(4, 4, 2, 1)), {"batch_dims": 1}),
        Case("GatherND", (x(4, 4), ids(4, 3, 2))),
        Case("ScatterElements", (table, ids(8, 1, 6), x(1, 6))),
        Case("ScatterElements", (table, ids(8, 4, 6), x(4, 6)), {"reduction": "add"}),
        *(Case("ScatterElements", (table, ids(8, 4, 6), x(4, 6)), {"reduction": kind}) for kind in ("max", "min")),
        Case("ScatterND", (table, i(4, 1, 7).reshape(3, 1), x(3, 6))),
        Case("ScatterND", (table, i(0, 1, 2, 3).reshape(2, 2), x(2)), {"reduction": "add"}),
        Case("OneHot", (ids(5, 2, 4, low=-5), i(5).reshape(()), np.array([0, 1], F)), given=(1, 2)),
        Case("OneHot", (ids(5, 2, 4), i(5).reshape(()), np.array([-1, 3], F)), {"axis": 1}, (1, 2)),
        Case("TopK", (x(4, 6), i(2)), {}, (1,), 2),
        Case("TopK", (x(4, 6), i(3)), {"axis": 0, "largest": 0}, (1,), 2),
    ]


def images() -> list[Case]:
    image, two = x(2, 4, 8, 8), {"kernel_shape": [2, 2], "strides": [2, 2]}
    three = {"kernel_shape": [3, 3], "strides": [2, 2]}
    return [
        Case("Conv", (image, x(6, 4, 3, 3), x(6)), {"pads": [1, 1, 1, 1]}),
        Case("Conv", (image, x(6, 4, 3, 3)), {"pads": [1, 0, 0, 1], "strides": [2, 2]}),
        Case("Conv", (image, x(6, 4, 3, 3)), {"pads": [1, 1, 0, 0], "strides": [2, 2]}),
        Case("Conv", (image, x(4, 1, 3, 3)), {"group": 4, "dilations": [2, 2]}),
        Case("Conv", (image, x(6, 4, 3, 3)), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        Case("Conv", (image, x(6, 4, 2, 2)), {"auto_pad": "SAME_LOWER"}),
        Case("Conv", (x(2, 4, 9), x(6, 4, 3)), {"auto_pad": "VALID"}),
        Case("ConvTranspose", (image, x(4, 3, 2, 2), x(3)), {"strides": [2, 2]}),
        Case(
            "ConvTranspose", (image, x(4, 3, 3, 3)), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}
        ),
        Case("MaxPool", (image,), two),
        Case("MaxPool", (image,), {**three, "pads": [1, 1, 1, 1]}),
        Case("MaxPool", (image,), {**three, "ceil_mode": 1}),
        Case("AveragePool", (image,), two),
        Case("AveragePool", (image,), {**three, "pads": [1, 1, 1, 1]}),
        Case("AveragePool", (image,), {**three, "pads": [1, 1, 1, 1], "count_include_pad": 1}),
        Case("GlobalAveragePool", (image,)),
        Case("GlobalMaxPool", (image,)),
        Case("BatchNormalization", (image, x(4), x(4), x(4), above(4)), {"epsilon": 0.1}),
        Case("InstanceNormalization", (image, x(4), x(4))),
        Case("GroupNormalization", (image, x(4), x(4)), {"num_groups": 2}, opset=21),
    ]
