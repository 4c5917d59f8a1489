"""The part of the table with the calls that autograd emits: ATEN overload -> row."""

from __future__ import annotations

from planner.frontends.torch import backward_ops, batch_norm, image_backward
from planner.frontends.torch.aten_call import AtenRow

GRADIENTS: dict[str, AtenRow] = {
    "aten._fused_rms_norm_backward.default": backward_ops.native_rms_norm,
    "aten._log_softmax_backward_data.default": backward_ops.log_softmax,
    "aten._softmax_backward_data.default": backward_ops.softmax,
    "aten._adaptive_avg_pool2d_backward.default": image_backward.adaptive_average_pool(2),
    "aten._adaptive_avg_pool3d_backward.default": image_backward.adaptive_average_pool(3),
    "aten.avg_pool2d_backward.default": image_backward.average_pool(2),
    "aten.avg_pool3d_backward.default": image_backward.average_pool(3),
    "aten.convolution_backward.default": image_backward.convolution,
    "aten.max_pool2d_with_indices_backward.default": image_backward.max_pool(2),
    "aten.max_pool3d_with_indices_backward.default": image_backward.max_pool(3),
    "aten.embedding_dense_backward.default": backward_ops.embedding,
    "aten.gelu_backward.default": backward_ops.gelu,
    "aten.native_batch_norm_backward.default": batch_norm.backward,
    "aten.native_layer_norm_backward.default": backward_ops.layer_norm,
    "aten.select_backward.default": backward_ops.select,
    "aten.sigmoid_backward.default": backward_ops.pointwise("sigmoid_backward", "grad_output", "output"),
    "aten.silu_backward.default": backward_ops.pointwise("silu_backward", "grad_output", "self"),
    "aten.slice_backward.default": backward_ops.slice_,
    "aten.tanh_backward.default": backward_ops.pointwise("tanh_backward", "grad_output", "output"),
    "aten.threshold_backward.default": backward_ops.threshold,
    "transformers.grouped_mm_fallback_backward.default": backward_ops.grouped,
}
