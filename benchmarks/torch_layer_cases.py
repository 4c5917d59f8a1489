"""Modules and calls of PyTorch whose numbers `torch_layers` compares, beside the functions that the tests have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from tests.testing.torch_differentiated import CASES as CALLS
from tests.testing.torch_training import MODULES, SHAPE

F = functional
ROWS, CUBE, LINE, IMAGE, VOLUME = (4, 6), (4, 6, 8), (2, 4, 12), (2, 4, 8, 8), (2, 4, 6, 6, 6)
HEADS, KEYS = (2, 4, 6, 8), (2, 2, 6, 8)
LABELS, SIGNS = torch.tensor([0, 5, 2, 2]), torch.tensor([1.0, -1, 1, -1])
FLAGS, PLACES = torch.arange(24).reshape(4, 6) % 3 > 0, torch.tensor([[0, 3], [1, 1], [2, 0], [5, 4]])
FEW = torch.tensor([3, 0, 1])
PADDED = torch.arange(24).reshape(4, 6) % 6 > 3

Case = tuple[Callable[..., Any], tuple[Any, ...]]
"""A module, or a function that makes one or is one of tensors; shapes of inputs with a gradient, and other tensors."""


class Rounds(torch.autograd.Function):  # type: ignore[misc]  # untyped
    """Round; the gradient is that of the operand."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.round()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad.clone()


def fill_slices(x: Any) -> Any:
    y = x.clone()
    y[1:, ::3], y[0, -2:] = x[:-1, 1::3] * 2, 0.5
    return y


def attend(**options: Any) -> Callable[[], Any]:
    def make() -> Any:
        return Attention(**options)

    return make


class Attention(nn.Module):  # type: ignore[misc]  # untyped
    """Multi-head attention over the rows of its first input, or of its first to those of its second."""

    def __init__(self, masked: str = "", **options: Any) -> None:
        super().__init__()
        self.masked, self.attention = masked, nn.MultiheadAttention(8, 2, batch_first=True, **options)

    def forward(self, x: Any, *others: Any) -> Any:
        y = others[0] if others and not self.masked else x
        length = x.shape[1]
        mask = torch.full((length, length), float("-inf"), dtype=x.dtype).triu(1) if self.masked == "causal" else None
        padding = others[0] if self.masked == "padding" else None
        return self.attention(x, y, y, key_padding_mask=padding, attn_mask=mask, need_weights=not self.masked)[0]


def layer(kind: Any, **options: Any) -> Callable[[], Any]:
    return lambda: kind(8, 2, 16, dropout=0.0, batch_first=True, **options)


LOSSES: dict[str, Case] = {
    **{
        f"{loss.__name__}": (loss, (ROWS, ROWS))
        for loss in (nn.L1Loss, nn.MSELoss, nn.SmoothL1Loss, nn.HuberLoss, nn.PairwiseDistance, nn.CosineSimilarity)
    },
    "BCELoss": (lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), (ROWS, ROWS)),
    "BCEWithLogitsLoss": (lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), (ROWS, ROWS)),
    "NLLLoss": (lambda x, t: F.nll_loss(x.log_softmax(-1), t), (ROWS, LABELS)),
    "probabilities as labels": (lambda x, y: F.cross_entropy(x, y.softmax(-1)), (ROWS, ROWS)),
    "GaussianNLLLoss": (lambda x, y, v: F.gaussian_nll_loss(x, y, v.exp()), (ROWS, ROWS, ROWS)),
    "SoftMarginLoss": (lambda x, t: F.soft_margin_loss(x, t[:, None].expand_as(x)), (ROWS, SIGNS)),
    "MultiLabelSoftMarginLoss": (lambda x, t: F.multilabel_soft_margin_loss(x, t.to(x)), (ROWS, FLAGS)),
    "MultiLabelMarginLoss": (lambda x, t: F.multilabel_margin_loss(x, t), (ROWS, torch.arange(24).reshape(4, 6) % 5)),
    "MultiMarginLoss": (lambda x, t: F.multi_margin_loss(x, t), (ROWS, LABELS)),
    "HingeEmbeddingLoss": (lambda x, t: F.hinge_embedding_loss(x, t[:, None]), (ROWS, SIGNS)),
    "MarginRankingLoss": (lambda x, y, t: F.margin_ranking_loss(x[:, 0], y[:, 0], t, 0.5), (ROWS, ROWS, SIGNS)),
    "CTCLoss": (
        lambda x, t: F.ctc_loss(x.log_softmax(-1)[:, None], t[None], FEW[:1] + 1, FEW[:1] - 1),
        (ROWS, LABELS[1:3]),
    ),
}
NORMS: dict[str, Case] = {
    "BatchNorm1d": (lambda: nn.BatchNorm1d(6), (CUBE,)),
    "BatchNorm1d, evaluated": (lambda: nn.BatchNorm1d(6).eval(), (CUBE,)),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(4, momentum=0.3), (VOLUME,)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (IMAGE,)),
    "LayerNorm": (lambda: nn.LayerNorm((6, 8)), (CUBE,)),
    "LayerNorm without bias": (lambda: nn.LayerNorm(8, bias=False), (CUBE,)),
    "RMSNorm": (lambda: nn.RMSNorm(8), (CUBE,)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True), (IMAGE,)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), (IMAGE,)),
    "weight_norm": (lambda: parametrizations.weight_norm(nn.Linear(8, 3)), (CUBE,)),
    "spectral_norm": (lambda: parametrizations.spectral_norm(nn.Linear(8, 3)), (CUBE,)),
    "orthogonal": (lambda: parametrizations.orthogonal(nn.Linear(8, 3)), (CUBE,)),
    "normalize": (F.normalize, (CUBE,)),
}
POOLS: dict[str, Case] = {
    "MaxPool1d": (lambda: nn.MaxPool1d(3, 2, 1), (LINE,)),
    "MaxPool2d, dilated": (lambda: nn.MaxPool2d(2, 1, dilation=2), (IMAGE,)),
    "MaxPool3d": (lambda: nn.MaxPool3d(2), (VOLUME,)),
    "AvgPool1d": (lambda: nn.AvgPool1d(3, 2, 1), (LINE,)),
    "AvgPool3d": (lambda: nn.AvgPool3d(2), (VOLUME,)),
    "LPPool2d": (lambda: nn.LPPool2d(3, 2), (IMAGE,)),
    "AdaptiveMaxPool1d": (lambda: nn.AdaptiveMaxPool1d(5), (LINE,)),
    "AdaptiveAvgPool3d": (lambda: nn.AdaptiveAvgPool3d((2, 3, 1)), (VOLUME,)),
    "MaxUnpool2d": (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), (IMAGE,)),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), (IMAGE,)),
    "PixelUnshuffle": (lambda: nn.PixelUnshuffle(2), (IMAGE,)),
    "ChannelShuffle": (lambda: nn.ChannelShuffle(2), (IMAGE,)),
    "Upsample, nearest": (lambda: nn.Upsample(scale_factor=2), (IMAGE,)),
    "Upsample, trilinear": (lambda: nn.Upsample(scale_factor=1.5, mode="trilinear"), (VOLUME,)),
    "Unfold": (lambda: nn.Unfold(3, padding=1, stride=2), (IMAGE,)),
    "Fold": (lambda: nn.Fold((8, 8), 2, stride=2), ((2, 16, 16),)),
}
CONVOLUTIONS: dict[str, Case] = {
    "Conv1d, dilated": (lambda: nn.Conv1d(4, 6, 3, dilation=2), (LINE,)),
    "Conv2d, grouped": (lambda: nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2), (IMAGE,)),
    "Conv2d, depthwise": (lambda: nn.Conv2d(4, 4, 3, padding="same", groups=4), (IMAGE,)),
    "Conv2d, reflected": (lambda: nn.Conv2d(4, 3, 3, padding=1, padding_mode="reflect"), (IMAGE,)),
    "Conv3d": (lambda: nn.Conv3d(4, 2, 3, padding=1), (VOLUME,)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 3, 3, stride=2, output_padding=1), (LINE,)),
    "ConvTranspose2d, grouped": (lambda: nn.ConvTranspose2d(4, 4, 3, padding=1, groups=2), (IMAGE,)),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(4, 2, 2, stride=2), (VOLUME,)),
}
RECURRENT: dict[str, Case] = {
    "RNN": (lambda: nn.RNN(8, 5, batch_first=True), (CUBE,)),
    "RNN of relu, both ways": (lambda: nn.RNN(8, 5, nonlinearity="relu", bidirectional=True), (CUBE,)),
    "LSTM, both ways": (lambda: nn.LSTM(8, 5, bidirectional=True), (CUBE,)),
    "LSTM with projections": (lambda: nn.LSTM(8, 5, proj_size=3), (CUBE,)),
    "GRU of two layers": (lambda: nn.GRU(8, 5, num_layers=2), (CUBE,)),
    "LSTMCell": (lambda: nn.LSTMCell(6, 5), (ROWS,)),
    "GRUCell": (lambda: nn.GRUCell(6, 5), (ROWS,)),
}
ATTENTION: dict[str, Case] = {
    "MultiheadAttention": (attend(), (CUBE,)),
    "MultiheadAttention to others": (attend(kdim=5, vdim=5), (CUBE, (4, 7, 5))),
    "MultiheadAttention, causal": (attend(masked="causal"), (CUBE,)),
    "MultiheadAttention, padded": (attend(masked="padding"), (CUBE, PADDED)),
    "MultiheadAttention with biases": (attend(add_bias_kv=True, add_zero_attn=True), (CUBE,)),
    "TransformerEncoderLayer": (layer(nn.TransformerEncoderLayer), (CUBE,)),
    "TransformerEncoderLayer, norm first": (layer(nn.TransformerEncoderLayer, norm_first=True), (CUBE,)),
    "TransformerDecoderLayer": (layer(nn.TransformerDecoderLayer), (CUBE, (4, 5, 8))),
    "grouped queries": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        (HEADS, KEYS, KEYS),
    ),
    "masked attention": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m[:, :6].repeat(2, 1)[:6], scale=0.5),
        (HEADS, HEADS, HEADS, FLAGS),
    ),
    "attention with a bias": (
        lambda q, k, v, b: F.scaled_dot_product_attention(q, k, v, b),
        (HEADS, HEADS, HEADS, (4, 6, 6)),
    ),
}
LOOKUPS: dict[str, Case] = {
    "Embedding with padding": (lambda w, t: F.embedding(t, w, padding_idx=2), (ROWS, PLACES % 4)),
    "EmbeddingBag of maxima": (lambda w, t: F.embedding_bag(t, w, mode="max"), (ROWS, PLACES % 4)),
    "index_add": (lambda x, y, i: x.index_add(0, i, y, alpha=2), (ROWS, (3, 6), FEW)),
    "index_copy": (lambda x, y, i: x.index_copy(0, i, y), (ROWS, (3, 6), FEW)),
    "index_fill": (lambda x, i: x.index_fill(0, i, 2), (ROWS, FEW)),
    "masked_fill": (lambda x, m: x.masked_fill(m, -1e9).softmax(-1), (ROWS, FLAGS)),
    "take_along_dim": (lambda x: x.take_along_dim(x.argsort(-1), -1), (ROWS,)),
    "slices with steps": (lambda x: torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2), (CUBE,)),
    "written slices": (fill_slices, (ROWS,)),
    "repeat_interleave": (lambda x: x.repeat_interleave(3, 1) + x.tile(1, 3, 1), (CUBE,)),
    "tensor_split": (lambda x: (*x.tensor_split(3, -1), *x.split([1, 5], 1)), (CUBE,)),
    "meshgrid": (lambda x, y: torch.meshgrid(x[0], y[1], indexing="xy"), (ROWS, ROWS)),
    "products of Kronecker": (lambda x, y: torch.kron(x, y[:2, :3]), (ROWS, ROWS)),
    "block_diag": (lambda x, y: torch.block_diag(x, y[:2]), (ROWS, ROWS)),
    "bucketize": (lambda x: x * torch.bucketize(x, torch.linspace(-1, 1, 5, dtype=x.dtype)), (ROWS,)),
    "nanmedian": (lambda x: x.nanmedian(1)[0], (ROWS,)),
    "mode": (lambda x, t: x[:, :2] * t.mode(-1)[0][:, None], (ROWS, PLACES)),
    "bincount": (lambda x, t: x * t.flatten().bincount(minlength=6), (ROWS, PLACES)),
    "masked_select": (lambda x, m: x.masked_select(m), (ROWS, FLAGS)),
    "nonzero": (lambda x: x.sum() * torch.nonzero(x > 0).sum(), (ROWS,)),
    "unique": (lambda x, t: x.sum() * t.unique().sum(), (ROWS, PLACES)),
}
ALGEBRA: dict[str, Case] = {
    "matmul of batches": (lambda x, y: x[:, None] @ y, (CUBE, (3, 8, 5))),
    "matmul of vectors": (lambda x, y: (x @ y[0], x[0] @ y.T, x[0] @ y[0]), (ROWS, ROWS)),
    "baddbmm": (lambda x, y, z: torch.baddbmm(z, x, y, beta=0.5, alpha=2), (CUBE, (4, 8, 5), (4, 6, 5))),
    "einsum of three": (lambda x, y, z: torch.einsum("bij,jk,bk->ib", x, y, z), (CUBE, (8, 5), (4, 5))),
    "tensordot": (lambda x, y: torch.tensordot(x, y, ([0, 2], [0, 2])), (CUBE, (4, 5, 8))),
    "cross": (lambda x, y: torch.linalg.cross(x[:, :3], y[:, 3:]), (ROWS, ROWS)),
    "norms": (lambda x: (x.norm(dim=1), torch.linalg.matrix_norm(x, "fro"), x.norm(p=1), x.abs().amax(0)), (CUBE,)),
    "inverse": (lambda x: torch.linalg.inv(x @ x.mT + torch.eye(4, dtype=x.dtype)), (ROWS,)),
    "determinant": (lambda x: torch.linalg.slogdet(x @ x.mT + torch.eye(4, dtype=x.dtype))[1], (ROWS,)),
    "singular values": (torch.linalg.svdvals, (ROWS,)),
    "matrix exponential": (lambda x: torch.matrix_exp(x[:, :4]), (ROWS,)),
}
ELEMENTS: dict[str, Case] = {
    **{
        kind.__name__: (kind, (CUBE,))
        for kind in (nn.GLU, nn.Hardshrink, nn.Softshrink, nn.Tanhshrink, nn.SELU, nn.Mish, nn.Softmin, nn.LeakyReLU)
    },
    "PReLU": (lambda: nn.PReLU(6), (CUBE,)),
    "RReLU, evaluated": (lambda: nn.RReLU().eval(), (CUBE,)),
    "Dropout, evaluated": (lambda: nn.Dropout(0.5).eval(), (CUBE,)),
    "GELU of tanh": (lambda: nn.GELU(approximate="tanh"), (CUBE,)),
    "clamp": (lambda x: (x.clamp(-0.5, 0.5), x.clamp(max=x.mean()), x.clip(min=0.1)), (CUBE,)),
    "addcmul and addcdiv": (lambda x, y: x.addcmul(x, y, value=2).addcdiv(x, y.exp(), value=0.5), (ROWS, ROWS)),
    "lerp": (lambda x, y: (torch.lerp(x, y, 0.3), torch.lerp(x, y, y)), (ROWS, ROWS)),
    "nan_to_num": (lambda x: torch.nan_to_num(x / (x > 0)), (ROWS,)),
    "gamma functions": (lambda x: torch.lgamma(x.exp()) + torch.digamma(x.exp()), (ROWS,)),
    "Bessel functions": (lambda x: torch.special.i0(x) + torch.special.i1(x), (ROWS,)),
    "entropy": (lambda x: torch.special.entr(x.sigmoid()), (ROWS,)),
    "cumulative sums and differences": (lambda x: (x.cumsum(0).diff(dim=1), torch.trapezoid(x, dim=1)), (ROWS,)),
    "variances": (lambda x: (x.var(0), x.std(1, correction=0)), (ROWS,)),
    "covariances": (lambda x: (torch.cov(x), torch.corrcoef(x)), (ROWS,)),
    "a gradient of the model's own": (lambda x: Rounds.apply(x * 3) * x, (ROWS,)),
    "a checkpoint": (lambda x: checkpoint(lambda y: y.tanh().exp(), x, use_reentrant=False), (ROWS,)),
    "vmap": (lambda x, y: torch.vmap(torch.dot)(x, y), (ROWS, ROWS)),
}
FAMILIES: dict[str, dict[str, Case]] = {
    "losses": LOSSES,
    "norms": NORMS,
    "pools, resizes": POOLS,
    "convolutions": CONVOLUTIONS,
    "recurrent": RECURRENT,
    "attention": ATTENTION,
    "lookups, slices": LOOKUPS,
    "linear algebra": ALGEBRA,
    "element by element": ELEMENTS,
    "modules with state": {name: (make, (SHAPE,)) for name, make in MODULES.items()},
    "calls of the tests": CALLS,
}
