"""The update of a training step: gradients are clipped, parameters and states get their next values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from planner.errors import InvalidRequest
from planner.frontends.graph_builder import DocumentValue
from planner.frontends.zoo.fused_formula import emit_formula, emit_sum_of_squares
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.frontends.zoo.optimizers import OPTIMIZERS, Optimizer
from planner.frontends.zoo.parameter_updates import Numbers, Update

STEP = "step"
CLIP_EPSILON = 1e-6
"""Added to the norm of the gradients, as in torch.nn.utils.clip_grad_norm_."""
MasterMode = Literal["auto", "f32", "none"]


@dataclass(frozen=True, slots=True)
class Training:
    """How a training step updates its parameters.

    optimizer       a name of the table
    numbers         hyperparameters that are not the row's defaults
    clip_grad_norm  the largest norm of all gradients together; None: gradients are not clipped
    master          whether parameters narrower than f32 have a master copy of f32 in the optimizer's state, which is
                    updated and then rounded; auto: as the table says
    """

    optimizer: str
    numbers: Numbers = field(default_factory=dict)
    clip_grad_norm: float | None = None
    master: MasterMode = "auto"

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise InvalidRequest("train", got=self.optimizer, wanted=f"one of {', '.join(OPTIMIZERS)}")
        known = OPTIMIZERS[self.optimizer].numbers
        for name, number in self.numbers.items():
            if name not in known:
                raise InvalidRequest("train", where=self.optimizer, got=name, wanted=f"one of {', '.join(known)}")
            if not math.isfinite(number):
                raise InvalidRequest("train", where=f"{self.optimizer}:{name}", got=number, wanted="a finite number")
        if self.clip_grad_norm is not None and not 0 < self.clip_grad_norm < math.inf:
            raise InvalidRequest("clip_grad_norm", got=self.clip_grad_norm, wanted="a number above 0, such as 1.0")
        if self.master not in get_args(MasterMode):
            raise InvalidRequest("master", got=self.master, wanted=f"one of {', '.join(get_args(MasterMode))}")

    def row_of(self, parameter: DocumentValue) -> tuple[Optimizer, Numbers]:
        """Return the row that updates a parameter, and its hyperparameters."""
        row = OPTIMIZERS[self.optimizer]
        if row.rank in (None, len(parameter.shape)):
            return row, {**row.numbers, **self.numbers}
        return OPTIMIZERS[row.others], OPTIMIZERS[row.others].numbers


def parse_training(
    train: str | None, clip_grad_norm: float | None = None, master: MasterMode = "auto"
) -> Training | None:
    """Return what `train` says, an optimizer such as `adamw` or `adamw:lr=3e-4,weight_decay=0.1`; None for None.

    Raises InvalidRequest for an unknown name or number, and for options of a training step without one.
    """
    if train is None:
        if clip_grad_norm is not None or master != "auto":
            what = "master" if clip_grad_norm is None else "clip_grad_norm"
            raise InvalidRequest("train", where=what, got="none", wanted=f"one of {', '.join(OPTIMIZERS)}")
        return None
    name, _, written = train.partition(":")
    numbers = dict(_parse_number(name, each) for each in filter(None, written.split(",")))
    return Training(name, numbers, clip_grad_norm, master)


def _parse_number(optimizer: str, text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name.strip(), float(number)
    except ValueError:
        raise InvalidRequest("train", where=optimizer, got=text, wanted="name=number, such as lr=3e-4") from None


def append_update(builder: ModelBuilder, grads: Mapping[str, DocumentValue], training: Training) -> None:
    """Append the update of every parameter that has a gradient in `grads` (by id), and set `builder.next`."""
    parameters = [parameter for parameter in builder.parameters if parameter.id in grads]
    with builder.within("", "update"):
        step = None
        if any(training.row_of(parameter)[0].has_step for parameter in parameters):
            step = builder.input(STEP, [], "optimizer_state", dtype=builder.wide)
            builder.next[step.id] = builder.emit("add", [step], scalar=1)
        clipped = _clip(builder, [grads[parameter.id] for parameter in parameters], training.clip_grad_norm)
        for parameter, grad in zip(parameters, clipped, strict=True):
            _update_parameter(builder, parameter, grad, step=step, training=training)


def _update_parameter(
    builder: ModelBuilder,
    parameter: DocumentValue,
    grad: DocumentValue,
    *,
    step: DocumentValue | None,
    training: Training,
) -> None:
    row, numbers = training.row_of(parameter)

    def add_state(name: str, shape: Sequence[int]) -> DocumentValue:
        return builder.input(f"{parameter.id}.{name}", shape, "optimizer_state", dtype=builder.wide)

    states = {name: add_state(name, shape) for name, shape in row.states(parameter.shape).items()}
    keeps = training.master == "f32" or (training.master == "auto" and row.has_master)
    master = add_state("master", parameter.shape) if keeps and parameter.dtype != builder.wide else None
    weight, changed = row.write(Update(builder, master or parameter, grad, states, numbers, step))
    builder.next[parameter.id] = builder.cast(weight, parameter.dtype)
    builder.next |= {states[name].id: value for name, value in changed.items()}
    if master is not None:
        builder.next[master.id] = weight


def _clip(builder: ModelBuilder, grads: list[DocumentValue], norm: float | None) -> list[DocumentValue]:
    """Scale the gradients so that the norm of all together is at most `norm`."""
    if norm is None or not grads:
        return grads
    total, *others = [emit_sum_of_squares(builder, grad) for grad in grads]
    for squares in others:
        total = builder.emit("add", [total, squares])
    scale = emit_formula(
        builder, [total], lambda squares: (norm * (squares.unary("sqrt") + CLIP_EPSILON) ** -1.0).at_most(1.0)
    )
    return [emit_formula(builder, [grad, scale], lambda g, s: g * s, dtype=grad.dtype) for grad in grads]


def next_values(builder: ModelBuilder) -> list[DocumentValue]:
    """Return the outputs that replace inputs in the next run, in the order of the inputs."""
    return [builder.next[name] for name in builder.inputs if name in builder.next]
