"""Handlers of linalg's named convolutions.

The op table's convolution has the dims batch, channel, space of images and result, and out, in, space of weights.
Operands and results with other orders are transposed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from planner.errors import InvalidGraph, UnsupportedOp
from planner.frontends.mlir.annotation_checks import NamedValue
from planner.frontends.mlir.attributes import DenseAttribute
from planner.frontends.mlir.linalg_ops import accumulate, is_neutral_start
from planner.frontends.mlir.operations import Operation
from planner.frontends.mlir.translation import MlirTranslation
from planner.frontends.mlir.types import MlirTensorType
from planner.ir.graph import TensorType

CONVOLUTIONS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "linalg.conv_1d_ncw_fcw": ("ncw", "fcw"),
        "linalg.conv_1d_nwc_wcf": ("nwc", "wcf"),
        "linalg.conv_2d_nchw_fchw": ("nchw", "fchw"),
        "linalg.conv_2d_nhwc_fhwc": ("nhwc", "fhwc"),
        "linalg.conv_2d_nhwc_hwcf": ("nhwc", "hwcf"),
        "linalg.conv_3d_ncdhw_fcdhw": ("ncdhw", "fcdhw"),
        "linalg.conv_3d_ndhwc_dhwcf": ("ndhwc", "dhwcf"),
    }
)
"""Orders of the dims of images and weights: n batch, c channels in, f channels out, d h w space."""


def translate_convolution(t: MlirTranslation, operation: Operation) -> None:
    """linalg.conv_2d_nhwc_hwcf and the other named convolutions over batches of images with channels."""
    images, weights = CONVOLUTIONS[operation.name]
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    (made,) = t.tensors(operation)
    if len(inputs) != 2 or any(len(kind) != len(images) for kind in (*(x.shape for x in inputs), made.type.shape)):
        got = [list(x.shape) for x in inputs]
        wanted = f"an image and weights of rank {len(images)}"
        raise t.scan.error("operands of a convolution", at=operation.at, got=got, wanted=wanted, error=InvalidGraph)
    attrs = {
        word: _list_sizes(t, operation, key, count=len(images) - 2)
        for word, key in (("stride", "strides"), ("dilation", "dilations"))
    }
    image = _transposed(t, operation, inputs[0], order=_channels_first(images), suffix=".image")
    kernel = _transposed(t, operation, inputs[1], order=_out_in_first(weights), suffix=".weights")
    order = _channels_first(images)
    if order == tuple(range(len(order))):
        accumulate(t, operation, "convolution", inputs=[image, kernel], attrs=attrs, kind="sum")
        return
    if not is_neutral_start(t, operation, "sum"):
        what, wanted = "accumulation of a convolution with channels last", "a start of zeros"
        raise t.scan.error(what, at=operation.at, got=f"%{operation.inits[0]}", wanted=wanted, error=UnsupportedOp)
    shape = tuple(made.type.shape[dim] for dim in order)
    kinds = [MlirTensorType(TensorType(shape, made.type.dtype))]
    term = t.result(t.add(operation, "convolution", [image, kernel], attrs, kinds, suffix=".channels_first"))
    back = [order.index(dim) for dim in range(len(order))]
    t.add(operation, "transpose", [term], {"permutation": back}, (made,))


def _channels_first(images: str) -> tuple[int, ...]:
    """Return the dims of an image in the order batch, channel, space."""
    return tuple(sorted(range(len(images)), key=lambda dim: "ncdhw".index(images[dim])))


def _out_in_first(weights: str) -> tuple[int, ...]:
    return tuple(sorted(range(len(weights)), key=lambda dim: "fcdhw".index(weights[dim])))


def _transposed(
    t: MlirTranslation, operation: Operation, tensor: NamedValue, *, order: Sequence[int], suffix: str
) -> NamedValue:
    if list(order) == list(range(len(order))):
        return tensor
    kind = t.types[tensor.value]
    kinds = [MlirTensorType(TensorType(tuple(kind.shape[dim] for dim in order), kind.dtype))]
    return t.result(t.add(operation, "transpose", [tensor], {"permutation": list(order)}, kinds, suffix=suffix))


def _list_sizes(t: MlirTranslation, operation: Operation, key: str, *, count: int) -> list[int]:
    """Return one number per spatial dim from `dense<1> : tensor<2xi64>`, by default ones."""
    given: Any = operation.attrs.get(key, 1)
    given = given.value if isinstance(given, DenseAttribute) else given
    sizes = [given] * count if isinstance(given, int) else list(given)
    if len(sizes) != count or not all(isinstance(size, int) and size > 0 for size in sizes):
        wanted = f"{count} numbers of 1 or more"
        raise t.scan.error(key, at=operation.at, got=sizes, wanted=wanted, error=InvalidGraph)
    return sizes
