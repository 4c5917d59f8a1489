"""Every row of the op table gives, under every option and on every device, the unsharded result.

Operands are laid out as the option reads them (partial ones as random terms), every logical device runs its
part, and the devices' results are put together as the option's result shardings say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from planner.choose.options import enumerate_options
from planner.ir.indexing import LoopKind, Option, Rule
from planner.ir.mesh import Mesh
from planner.ops import OPS, Array, OpContext, OpDef
from tests.testing.op_case import Case, of
from tests.testing.op_cases import CASES
from tests.testing.op_trials import Trial
from tests.testing.ring_cases import RING_CASES
from tests.testing.seeds import of_the_day

MESHES = [Mesh.parse("4"), Mesh.parse("2x4"), Mesh.parse("2x2x2")]
EIGHTH = partial(of_the_day, share=8)
MANY = 60  # options beyond which only one order of the axes of each assignment is run


def tried(rule: Rule, mesh: Mesh) -> Iterator[Option]:
    """Every option; where there are many, every assignment of axes to loops in one order, not always the same."""
    every = list(enumerate_options(rule, mesh))
    if len(every) <= MANY:
        yield from every
        return
    by_assignment: dict[tuple[frozenset[int], ...], list[Option]] = {}
    for option in every:
        by_assignment.setdefault(tuple(map(frozenset, option)), []).append(option)
    for number, orders in enumerate(by_assignment.values()):
        yield orders[number % len(orders)]


def passing(rule: Rule, mesh: Mesh, tried: Iterable[Option]) -> Iterator[Option]:
    """The options tried, with their idle axes on each loop that passes terms of maxima and their like."""
    others = [i for i, loop in enumerate(rule.loops) if loop.kind is LoopKind.LINEAR and loop.reduction != "sum"]
    for option in tried:
        used = {axis for axes in option for axis in axes}
        idle = tuple(axis for axis, size in enumerate(mesh.shape) if size > 1 and axis not in used)
        for number in others if idle else []:
            wider = (*option[:number], idle, *option[number + 1 :])
            if rule.is_allowed(wider, mesh):
                yield wider


def check_row(row: OpDef, case: Case, pick: Callable[[Sequence[Option]], list[Option]] = list) -> int:
    """Runs a row on a case over all meshes, under those options that are picked; the number of options run."""
    run = 0
    for mesh in MESHES:
        trial = Trial(row, case)
        planned = pick(list(tried(trial.rule, mesh)))
        for option in (*planned, *passing(trial.rule, mesh, planned)):
            trial.check(option, mesh)
            run += 1
    return run


@pytest.mark.parametrize("op", OPS)
def test_a_row_gives_the_same_result_in_parts_and_whole(op: str) -> None:
    cases = [case for case in CASES if case.op == op]
    assert cases
    for case in cases:
        assert check_row(OPS[op], case, EIGHTH) >= len(MESHES), f"{case}: nothing was run"


def test_blocks_that_travel_give_the_same_result() -> None:
    """A round of steps gives what the op computes whole; nothing travels where blocks would be uneven."""
    rings: dict[bool, int] = {True: 0, False: 0}
    for case in RING_CASES:
        for mesh in MESHES:
            trial = Trial(OPS[case.op], case)
            around = [option for option in enumerate_options(trial.rule, mesh) if trial.rule.ring_axes(option)]
            rings[bool(around)] += 1
            for option in EIGHTH(around):
                assert trial.rule.is_allowed(option, mesh)
                assert trial.rule.uses_axes_once(option)
                trial.check(option, mesh)
    assert rings == {True: 24, False: 30}


@pytest.mark.parametrize("op", [name for name, row in OPS.items() if row.ring])
def test_a_rule_has_as_many_rounds_as_its_row(op: str) -> None:
    rules = [Trial(OPS[op], case).rule for case in RING_CASES if case.op == op]
    assert {rule.ring.rounds for rule in rules if rule.ring} == {len(OPS[op].ring.rounds)}  # type: ignore[union-attr]


def test_every_row_has_a_case() -> None:
    assert set(OPS) == {case.op for case in CASES}


def _bias_everywhere(local: OpContext, x: Array, weight: Array, bias: Array) -> Array:
    return np.matmul(x, weight.T) + bias


def _local_mean(local: OpContext, x: Array) -> Array:
    attrs: dict[str, Any] = dict(local.attrs)
    return x.mean(axis=tuple(attrs["dims"]), keepdims=bool(attrs.get("keepdim")))


def _whole_vocabulary(local: OpContext, grad: Array, logits: Array, lse: Array, ids: Array) -> Array:
    return (np.exp(logits - lse) - (np.arange(logits.shape[-1]) == ids)) * grad


def _adds_everywhere(local: OpContext, x: Array, ids: Array, updates: Array) -> Array:
    made = x.copy()
    inside = (ids >= local.spans["v0"].start) & (ids < local.spans["v0"].stop)
    np.add.at(made, ids[inside] - local.spans["v0"].start, updates[inside])
    return made


def _local_classes(local: OpContext, ids: Array) -> Array:
    return (np.arange(local.shapes[0][-1]) == ids[..., None]).astype(local.dtypes[0])


def _local_triangle(local: OpContext, x: Array) -> Array:
    return np.tril(x)


def _changed(op: str, **fields: Any) -> OpDef:
    return replace(OPS[op], **fields)


WRONG: dict[str, tuple[OpDef, str, dict[str, Any]]] = {
    "softmax over a dim that may be split": (_changed("softmax", rule="a b -> a b"), "a b -> a b", {"dim": 1}),
    "a maximum whose parts are added": (_changed("max", rule="a b -> a"), "a b -> a", {"dims": [1]}),
    "gelu of a partial sum": (_changed("gelu", rule="... -> ...; linear 0"), "a b -> a b", {}),
    "a bias that every device adds": (_changed("linear", compute=_bias_everywhere), "a b, c b, c -> a c", {}),
    "a bias that is linear on its own": (
        _changed("linear", rule="... k, n k, n -> ... n; linear 0, 1, 2"),
        "a b, c b, c -> a c",
        {},
    ),
    "a mean of means": (_changed("mean", compute=_local_mean), "a b -> a", {"dims": [1]}),
    "a reshape split in the wrong loop": (
        _changed("reshape", rule="(x y) -> y x", compute=OPS["reshape"].compute),
        "64 -> 8 8",
        {},
    ),
    "a minimum of partial maxima": (
        _changed("minimum", rule="..., ... -> ...; commutes max 0+1"),
        "a b, a b -> a b",
        {},
    ),
    "a sum of two partial products": (
        _changed("add", rule="..., ... -> ...; commutes product 0+1"),
        "a b, a b -> a b",
        {},
    ),
    "a square of partial maxima": (_changed("square", rule="... -> ...; commutes max 0"), "a b -> a b", {}),
    "gradients of keys that every device sums over its own": (
        _changed(
            "scaled_dot_product_attention_backward",
            rule="a s e, a t e, a t v, a s v -> a s e, a t e, a t v; blocked e; linear 3",
        ),
        "d a 2, d b 2, d b c, d a c -> d a 2, d b 2, d b c",
        {},
    ),
    "a cross entropy of a part of the vocabulary": (
        _changed("cross_entropy_backward", compute=_whole_vocabulary),
        "a 1, a b, a 1, i: a 1 -> a b",
        {},
    ),
    "what is written over in parts": (
        _changed("scatter", rule="a v, a k, a k -> a v; linear 0+2"),
        "a b, i: a c, a c -> a b",
        {"dim": 1},
    ),
    "a sum to which every device adds what is there": (
        _changed("index_put", compute=_adds_everywhere),
        "a b, i: d, d b -> a b",
        {"dims": [0], "accumulate": True},
    ),
    "positions counted from the shard's first": (_changed("one_hot", compute=_local_classes), "i: c -> c b", {}),
    "a slice turned around in parts": (_changed("flip", rule="a b -> a b; linear 0"), "a b -> a b", {"dims": [1]}),
    "a triangle of every part": (_changed("tril", compute=_local_triangle), "a b -> a b", {}),
    "a product of two partial sums": (
        _changed("multiply", rule="..., ... -> ...; linear 0+1"),
        "a b, b -> a b",
        {},
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_row_is_caught(what: str) -> None:
    row, signature, attrs = WRONG[what]
    with pytest.raises(AssertionError):
        [check_row(row, case) for case in of(row.name, signature, **attrs)]
