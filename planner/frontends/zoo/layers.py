"""Layers of the families: norms, projections, heads, gated feed-forward networks."""

from __future__ import annotations

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.zoo.gates import GATES
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.frontends.zoo.models import Model


def linear(builder: ModelBuilder, name: str, x: DocumentValue, *, width: int, has_bias: bool = False) -> DocumentValue:
    """Multiply x by the transpose of a weight [width, last dim of x], and add a bias where there is one."""
    weight = builder.input(f"{name}.weight", [width, x.shape[-1]])
    bias = [builder.input(f"{name}.bias", [width])] if has_bias else []
    return builder.emit("linear", [x, weight, *bias], [*x.shape[:-1], width])


def affine(builder: ModelBuilder, name: str, x: DocumentValue, *, width: int) -> DocumentValue:
    """Multiply x by a weight [last dim of x, width] and add a bias."""
    weight, bias = builder.input(f"{name}.weight", [x.shape[-1], width]), builder.input(f"{name}.bias", [width])
    return builder.emit("addmm", [bias, x, weight], [*x.shape[:-1], width])


def layer_norm(builder: ModelBuilder, name: str, x: DocumentValue, *, model: Model) -> DocumentValue:
    weights = [builder.input(f"{name}.{part}", x.shape[-1:]) for part in ("weight", "bias")]
    return builder.emit("layer_norm", [x, *weights], eps=model.eps)


def rms_norm(builder: ModelBuilder, name: str, x: DocumentValue, *, model: Model) -> DocumentValue:
    return builder.emit("rms_norm", [x, builder.input(f"{name}.weight", x.shape[-1:])], eps=model.eps)


def gated_mlp(builder: ModelBuilder, name: str, x: DocumentValue, *, model: Model, hidden: int) -> DocumentValue:
    """Apply the feed-forward network of Llama: down(activation(gate x, up x))."""
    gate = linear(builder, f"{name}.gate_proj", x, width=hidden)
    up = linear(builder, f"{name}.up_proj", x, width=hidden)
    active = GATES[model.style.gate](builder, (gate, up))
    return linear(builder, f"{name}.down_proj", active, width=model.width)
