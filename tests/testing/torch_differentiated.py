"""Functions of tensors that are trained: calls that are imported as smaller calls, with torch's state after a step."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest

from planner.documents.schemas import GraphDocument, validate_document
from planner.frontends.torch import build_module_document
from tests.testing.torch_fourier import CASES as FOURIER
from tests.testing.torch_training import RATE, Step

torch: Any = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
F, A = torch.nn.functional, torch.ops.aten

IMAGE, ROWS, CUBE = (2, 4, 8, 8), (4, 6), (4, 6, 8)
LABELS, PIXELS = torch.tensor([0, 5, 2, 2]), torch.arange(128).reshape(2, 8, 8) % 4
PLACES, PAIRS = torch.tensor([0, 1, 3]), torch.tensor([[0, 3], [1, 1], [2, 0], [5, 4]])
SIGNS, FLAGS = torch.tensor([1, -1, 1, -1]), torch.arange(24).reshape(4, 6) % 3 > 0
WEIGHTS = torch.linspace(0.5, 3, 6, dtype=torch.float64)

Case = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function, and its inputs: shapes of parameters, and tensors that are not trained."""


def split_weights(x: Any) -> Any:
    return x.abs() / x.abs().sum(1, keepdim=True)


LOSSES: dict[str, Case] = {
    "divergence": (lambda x, y: F.kl_div(x.log_softmax(-1), split_weights(y), reduction="batchmean"), (ROWS, ROWS)),
    "divergence of logs": (
        lambda x, y: F.kl_div(x.log_softmax(-1), y.log_softmax(-1), reduction="sum", log_target=True),
        (ROWS, ROWS),
    ),
    "cosine embedding": (lambda x, y, t: F.cosine_embedding_loss(x, y, t), (ROWS, ROWS, SIGNS)),
    "smoothed labels": (lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, ignore_index=2), (ROWS, LABELS)),
    "weighted classes": (lambda x, t, w: F.cross_entropy(x, t, weight=w), (ROWS, LABELS, WEIGHTS)),
    "weighted and smoothed": (lambda x, t, w: F.cross_entropy(x, t, w, label_smoothing=0.2), (ROWS, LABELS, WEIGHTS)),
    "classes of pixels": (lambda x, t: F.cross_entropy(x, t), (IMAGE, PIXELS)),
    "summed losses": (lambda x, t: F.cross_entropy(x, t, reduction="sum"), (ROWS, LABELS)),
    "each loss": (lambda x, t: F.cross_entropy(x, t, reduction="none") ** 2, (ROWS, LABELS)),
    "weighted positives": (
        lambda x, y, w: F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=w),
        (ROWS, ROWS, WEIGHTS),
    ),
    "triplets": (lambda x, y: F.triplet_margin_loss(x, y, y.flip(0)), (ROWS, ROWS)),
    "poisson": (lambda x, y: F.poisson_nll_loss(x, y), (ROWS, ROWS)),
}
ELEMENTS: dict[str, Case] = {
    "logarithms": (lambda x: x.exp().log2() + x.exp().log10() + x.exp2() + F.logsigmoid(x), (CUBE,)),
    "x log y": (lambda x, y: torch.xlogy(x.relu(), y.exp()), (ROWS, ROWS)),
    "angles": (lambda x, y: torch.atan2(x, y) + x.tan() + torch.hypot(x, y), (ROWS, ROWS)),
    "inverse functions": (lambda x: x.tanh().asin() + x.tanh().acos() + x.atan() + x.tanh().erfinv(), (ROWS,)),
    "hyperbolic functions": (lambda x: x.sinh() + x.cosh() + x.asinh() + (x.exp() + 1).acosh(), (ROWS,)),
    "remainders": (lambda x: torch.fmod(x, 0.7) + x % 0.7 + x.trunc() + x.frac(), (ROWS,)),
    "activations": (lambda x: F.elu(x) + F.softplus(x) + F.mish(x) + F.celu(x) + F.selu(x) + F.softsign(x), (CUBE,)),
    "hard activations": (lambda x: F.hardswish(x) + F.relu6(x) + F.hardsigmoid(x) + F.hardtanh(x), (CUBE,)),
    "learned slopes": (lambda x, w: F.prelu(x, w), (CUBE, (6,))),
    "error function": (lambda x: torch.erfc(x) + x.sigmoid().logit(1e-3) + torch.sinc(x), (ROWS,)),
    "bits": (lambda x, t: x * ((t & 3) ^ (t << 1) | (t >> 1)), (ROWS, PAIRS.T.repeat(2, 1)[:, :1])),
}
ORDER: dict[str, Case] = {
    "medians": (lambda x: (x.median(1)[0], x.median(), x.kthvalue(2, 0)[0]), (ROWS,)),
    "quantiles": (lambda x: torch.quantile(x, 0.3, dim=1), (ROWS,)),
    "running extremes": (lambda x: (x.cummax(1)[0], x.cummin(0)[0]), (ROWS,)),
    "running extremes of integers": (
        lambda x, n: (x * n.cummax(1)[0], x * n.cummin(0)[0]),
        (ROWS, (torch.arange(ROWS[0] * ROWS[1]) * 7 % 11 - 5).reshape(ROWS)),
    ),
    "running sums": (lambda x: (x.cumsum(1), x.cumprod(1), x.logcumsumexp(0)), (ROWS,)),
    "smallest": (lambda x: x.topk(3, largest=False)[0], (ROWS,)),
    "search": (lambda x, y: x * torch.searchsorted(y.sort(-1)[0], x), (ROWS, ROWS)),
    "rearranged": (lambda x: x.roll((1, -2), (0, 1)) * x.flip(1) + x.rot90(2), (ROWS,)),
    "moments": (lambda x: (*torch.var_mean(x, 1), x.std(0), x.norm(p=3, dim=1), x.prod(1)), (ROWS,)),
}
LOOKUPS: dict[str, Case] = {
    "diagonals": (lambda x: (x.diagonal(1, 1, 2), torch.diag_embed(x[:, 0], -1), x[0, :, :6].trace()), (CUBE,)),
    "windows": (lambda x: x.unfold(2, 3, 2), (CUBE,)),
    "strides": (lambda x: x.as_strided((4, 6, 3), (48, 8, 2), 1), (CUBE,)),
    "positions apart": (lambda x, i: x[i, :, i], (CUBE, PLACES)),
    "written apart": (lambda x, i: x.exp().index_put((i, torch.tensor(2), i + 1), x[0, 0, :3]), (CUBE, PLACES)),
    "masked writes": (lambda x, m: x.exp().index_put((m,), torch.tensor(0.5, dtype=x.dtype)), (ROWS, FLAGS)),
    "scattered by mask": (lambda x, y, m: x.masked_scatter(m, y), (ROWS, ROWS, FLAGS)),
    "taken": (lambda x, p: x.take(p), (ROWS, PAIRS)),
    "scattered maxima": (
        lambda x, y, p: (y.scatter_reduce(0, p, x, "amax"), y.scatter_reduce(0, p, x, "amin", include_self=False)),
        ((4, 2), (6, 2), PAIRS),
    ),
    "scattered sums": (
        lambda x, y, p: (y.scatter_reduce(0, p, x, "sum"), y.scatter_reduce(0, p, x, "mean", include_self=False)),
        ((4, 2), (6, 2), PAIRS),
    ),
    "triangles": (lambda x: (x[:, *torch.tril_indices(6, 8, -1)], x[:, *torch.triu_indices(6, 8, 2)]), (CUBE,)),
    "bags of words": (lambda w, p: F.embedding_bag(p, w, mode="mean"), (ROWS, PAIRS % 4)),
    "one of each": (lambda x, t: F.one_hot(t, 6) * x, (ROWS, LABELS)),
    "without elements": (lambda x: torch.cat([x[..., :6], x[..., 8:], x[..., 6:]], -1) ** 2, (CUBE,)),
}
PRODUCTS: dict[str, Case] = {
    "bilinear": (lambda x, y, w, b: F.bilinear(x, y, w, b), (ROWS, ROWS, (3, 6, 6), (3,))),
    "summed products": (lambda x, y: torch.addbmm(x, y, y.mT, beta=0.5, alpha=2), ((6, 6), CUBE)),
    **{
        f"distances of norm {p}": (lambda x, y, p=p: torch.cdist(x, y, p), (CUBE, (4, 5, 8)))
        for p in (1.0, 2.0, 3.0, math.inf)
    },
    "many distances": (lambda x, y: torch.cdist(x, y), ((30, 4), (5, 4))),
    "weight norm": (lambda x, v, g: F.linear(x, torch._weight_norm(v, g, 0)), (ROWS, (3, 6), (3, 1))),
}
IMAGES: dict[str, Case] = {
    "pool over the end": (
        lambda x: (F.avg_pool2d(x, 3, 2, ceil_mode=True), F.max_pool2d(x, 3, 2, ceil_mode=True)),
        (IMAGE,),
    ),
    "pool without padding": (
        lambda x: F.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True, count_include_pad=False),
        (IMAGE,),
    ),
    "pool with a divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), (IMAGE,)),
    "adaptive pool": (lambda x: (F.adaptive_avg_pool2d(x, (3, 5)), F.adaptive_max_pool2d(x, 4)), (IMAGE,)),
    **{
        f"{mode} padding": (lambda x, mode=mode: F.pad(x, (1, 3, 2, 0), mode=mode) ** 2, (IMAGE,))
        for mode in ("reflect", "replicate", "circular")
    },
    "samples": (lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False), (IMAGE, (2, 5, 5, 2))),
    "bilinear resize": (lambda x: F.interpolate(x, size=(12, 5), mode="bilinear"), (IMAGE,)),
    **{
        f"smooth {mode} resize": (
            lambda x, mode=mode: F.interpolate(x, size=(3, 11), mode=mode, antialias=True),
            (IMAGE,),
        )
        for mode in ("bilinear", "bicubic")
    },
    "instance norm": (F.instance_norm, (IMAGE,)),
}
CASES = LOSSES | ELEMENTS | ORDER | LOOKUPS | PRODUCTS | IMAGES | FOURIER


class Trained(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A weighted sum of the results of a function of parameters and buffers."""

    def __init__(self, function: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
        super().__init__()
        self.function, self.names = function, [f"x{number}" for number in range(len(inputs))]
        for name, given in zip(self.names, inputs, strict=True):
            if isinstance(given, tuple):
                self.register_parameter(name, torch.nn.Parameter(torch.randn(given, dtype=torch.float64)))
            else:
                self.register_buffer(name, given.clone())

    def forward(self) -> Any:
        results = self.function(*(getattr(self, name) for name in self.names))
        return sum(map(_weigh, results if isinstance(results, tuple) else (results,)))


def _weigh(result: Any) -> Any:
    weights = torch.linspace(0.5, 1.5, result.numel(), dtype=torch.float64, device=result.device)
    return (result * weights.reshape(result.shape)).sum()


def take_step(function: Callable[..., Any], inputs: tuple[Any, ...]) -> Step:
    """Import a training step, and run torch's."""
    torch.manual_seed(0)
    module = Trained(function, inputs)
    there = copy.deepcopy(module)
    document = validate_document(GraphDocument, build_module_document(module, (), {}, train="sgd"), "step")
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    arrays = {entry.id: tensors[entry.name].detach().numpy().copy() for entry in document.inputs}
    loss = there()
    loss.backward()
    state = {
        name: (weight - RATE * weight.grad).detach().numpy()
        for name, weight in there.named_parameters()
        if weight.grad is not None
    }
    return Step(document, arrays, loss.detach().numpy(), state)
