"""The table of optimizers. To add one, add a row: nothing else knows their names.

A row lists the states of a parameter with their shapes, all in the wide dtype, and writes the update. Hyperparameters
have the defaults of torch.optim, or of the paper where torch does not have the optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from planner.frontends.zoo import matrix_updates, parameter_updates
from planner.frontends.zoo.parameter_updates import NewValues, Numbers, Update
from planner.ir.sharding import Shape

StateShapes = Callable[[Shape], Mapping[str, Shape]]


@dataclass(frozen=True, slots=True)
class Optimizer:
    """A row of the table.

    about        what it is, in a few words
    numbers      hyperparameters with their defaults
    states       shape of a parameter -> shapes of its states by name
    write        emits the update of one parameter
    has_step     whether the update reads the number of the step
    has_master   whether a narrow parameter has a master copy in the wide dtype unless asked otherwise
    rank         the only rank of parameters that it updates; None: any
    others       the optimizer of parameters of other ranks
    """

    about: str
    numbers: Numbers
    states: StateShapes
    write: Callable[[Update], NewValues]
    has_step: bool = False
    has_master: bool = True
    rank: int | None = None
    others: str = ""


def _like_parameter(*names: str) -> StateShapes:
    return lambda shape: dict.fromkeys(names, shape)


def _factored(shape: Shape) -> Mapping[str, Shape]:
    """Return a variance per row and per column, or per element of a vector."""
    if len(shape) < 2:
        return {"variance": shape}
    return {"row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, shape[-1])}


RATE = 1e-3
SGD = {"lr": RATE, "weight_decay": 0.0}
MOMENTUM = {**SGD, "momentum": 0.9}
ADAM = {"lr": RATE, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
VELOCITY, MOMENTS = _like_parameter("momentum_buffer"), _like_parameter("exp_avg", "exp_avg_sq")

OPTIMIZERS: Mapping[str, Optimizer] = MappingProxyType(
    {
        "sgd": Optimizer("gradient descent", SGD, _like_parameter(), parameter_updates.sgd, has_master=False),
        "sgd-momentum": Optimizer(
            "with momentum", MOMENTUM, VELOCITY, parameter_updates.sgd_momentum, has_master=False
        ),
        "sgd-nesterov": Optimizer(
            "with Nesterov's momentum", MOMENTUM, VELOCITY, parameter_updates.sgd_nesterov, has_master=False
        ),
        "adam": Optimizer("Adam", ADAM, MOMENTS, parameter_updates.adam, has_step=True),
        "adamw": Optimizer(
            "Adam with decoupled weight decay",
            {**ADAM, "weight_decay": 0.01},
            MOMENTS,
            parameter_updates.adam,
            has_step=True,
        ),
        "adafactor": Optimizer(
            "a second moment per row and column",
            {"lr": 0.01, "beta2_decay": -0.8, "eps": 1e-3, "clip": 1.0, "weight_decay": 0.0},
            _factored,
            matrix_updates.adafactor,
            has_step=True,
        ),
        "lion": Optimizer(
            "the sign of a momentum",
            {"lr": 1e-4, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0},
            _like_parameter("exp_avg"),
            parameter_updates.lion,
        ),
        "muon": Optimizer(
            "an orthogonal momentum of matrices; AdamW updates vectors and tensors of higher rank",
            {"lr": RATE, "momentum": 0.95, "weight_decay": 0.1, "ns_steps": 5},
            VELOCITY,
            matrix_updates.muon,
            rank=2,
            others="adamw",
        ),
    }
)
