"""Handlers of linalg's named convolutions, each an einsum with windows.

The name of an operation states the dims of image and weights in their order: n batch, g group, c channel in, f channel
out (of a group), d h w space, and in depthwise convolutions, whose channels are groups of one, m multiplier. The dims
of the result are those of the image, with f for c, or with m last.
"""

from __future__ import annotations

from typing import Any

from planner.errors import InvalidGraph
from planner.frontends.mlir.accumulation import accumulate
from planner.frontends.mlir.attributes import DenseAttribute
from planner.frontends.mlir.loop_terms import spell_window
from planner.frontends.mlir.operations import Operation
from planner.frontends.mlir.translation import MlirTranslation

_SPACE = "dhw"
_DENSE = "1d_ncw_fcw 1d_nwc_wcf 2d_nchw_fchw 2d_nhwc_fhwc 2d_nhwc_hwcf 3d_ncdhw_fcdhw 3d_ndhwc_dhwcf"
_GROUPED = "2d_ngchw_fgchw 2d_ngchw_gfchw 2d_nhwgc_gfhwc"
_DEPTHWISE = (
    "1d_ncw_cw 1d_nwc_wc 1d_nwc_wcm 2d_nchw_chw 2d_nhwc_hwc 2d_nhwc_hwcm 3d_ncdhw_cdhw 3d_ndhwc_dhwc 3d_ndhwc_dhwcm"
)
CONVOLUTIONS = (
    *(f"linalg.conv_{name}" for name in ("1d", "2d", "3d", *_DENSE.split(), *_GROUPED.split())),
    *(f"linalg.depthwise_conv_{name}" for name in _DEPTHWISE.split()),
)


def translate_convolution(t: MlirTranslation, operation: Operation) -> None:
    """linalg.conv_2d_nhwc_hwcf and the other named convolutions."""
    image, weights, result = _read_dims(operation.name)
    space = [dim for dim in image if dim in _SPACE]
    stride, dilation = (
        dict(zip(space, _list_sizes(t, operation, key, count=len(space)), strict=True))
        for key in ("strides", "dilations")
    )
    windows = {dim: spell_window({dim: stride[dim], f"k{dim}": dilation[dim]}) for dim in space}
    terms = [" ".join(windows.get(dim, dim) for dim in image), " ".join(f"k{d}" if d in space else d for d in weights)]
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    ranks, wanted = [len(tensor.shape) for tensor in inputs], [len(image), len(weights)]
    if ranks != wanted:
        raise t.scan.error("ranks of a convolution", at=operation.at, got=ranks, wanted=str(wanted), error=InvalidGraph)
    attrs = {"equation": f"{', '.join(terms)} -> {' '.join(result)}"}
    accumulate(t, operation, "einsum", inputs=inputs, attrs=attrs, kind="sum")


def _read_dims(name: str) -> tuple[str, str, str]:
    """Return the dims of image, weights and result."""
    rank, *dims = name.rpartition("conv_")[2].split("_")
    image, weights = dims or [_SPACE[-int(rank[0]) :]] * 2
    if "depthwise" in name:
        return image, weights, image + weights[len(image) - 1 :]
    return image, weights, image.replace("c", "f")


def _list_sizes(t: MlirTranslation, operation: Operation, key: str, *, count: int) -> list[int]:
    """Return one number per spatial dim from `dense<1> : tensor<2xi64>`, by default ones."""
    given: Any = operation.attrs.get(key, 1)
    given = given.value if isinstance(given, DenseAttribute) else given
    sizes = [given] * count if isinstance(given, int) else list(given)
    if len(sizes) != count or not all(isinstance(size, int) and size > 0 for size in sizes):
        wanted = f"{count} numbers of 1 or more"
        raise t.scan.error(key, at=operation.at, got=sizes, wanted=wanted, error=InvalidGraph)
    return sizes
