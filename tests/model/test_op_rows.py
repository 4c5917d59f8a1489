"""Every row of the op table under every option gives, device by device, what it gives unsharded.

Operands are laid out as the option reads them (partial ones as random terms), every logical device runs its
part, and what the devices hold is put together as the option's result shardings say.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from operator import mul
from typing import Any

import numpy as np
import pytest

from benchmarks.oracle import agree, assembled, block, box, laid_out, place
from planner.choose.options import options
from planner.model.binding import bind
from planner.model.graph import TensorType
from planner.model.indexing import LoopKind, Option, Rule
from planner.model.mesh import Mesh
from planner.model.ops import OPS, Array, Local, Row, Signature, Span
from planner.model.sharding import Sharding
from tests.model.op_cases import CASES, Case, of

MESHES = [Mesh.parse("4"), Mesh.parse("2x4"), Mesh.parse("2x2x2")]
MANY = 60  # options beyond which only one order of the axes of each assignment is run
POSITIVE = {
    "sqrt",
    "rsqrt",
    "log",
    "log1p",
    "reciprocal",
    "divide",
    "pow",
    "fmod",
    "floor_divide",
    "remainder",
    "adam",
    "batch_norm",
}
NUMPY = {"f64": np.float64, "i64": np.int64, "bool": np.bool_}


@dataclass
class Trial:
    """A row on a case: the whole run, and the same run in parts."""

    row: Row
    case: Case
    operands: list[Array] = field(init=False)
    rule: Rule = field(init=False)
    whole: tuple[Array, ...] = field(init=False)

    def __post_init__(self) -> None:
        case = self.case
        text = self.row.notation(Signature(case.operands, case.results, case.attrs))
        self.rule = bind(text, [k.shape for k in case.operands], [k.shape for k in case.results])
        self.random = np.random.default_rng(zlib.crc32(str(case).encode()))
        self.operands = [self._operand(i, kind) for i, kind in enumerate(case.operands)]
        self.whole = self._run(((),) * len(self.rule.loops), Mesh.parse("1"), 0, self.operands)
        self.layouts: dict[tuple[int, Sharding], list[Array]] = {}

    def _operand(self, position: int, kind: TensorType) -> Array:
        if (loop := self.row.indexes.get(position)) in self.rule.sizes:
            return self.random.integers(*self._reach(self.rule.sizes[loop]), kind.shape)
        if kind.dtype == "f64":
            low = 0.5 if self.row.name in POSITIVE else -2.0
            return self.random.uniform(low, 2.0, kind.shape)
        return self.random.integers(
            0 if kind.dtype == "bool" else 1, 2 if kind.dtype == "bool" else 9, kind.shape
        ).astype(NUMPY[kind.dtype])

    def _reach(self, size: int) -> tuple[int, int]:
        """Positions to draw: outside too where that has a meaning."""
        return {"wrap": (-size, size), "clamp": (-2, size + 2), "drop": (-2, size + 2)}.get(
            self.case.attrs.get("beyond", ""), (0, size)
        )

    def _run(self, option: Option, mesh: Mesh, device: int, operands: list[Array]) -> tuple[Array, ...]:
        spans = {
            loop.name: Span(held.start, held.stop, loop.size)
            for loop, axes in zip(self.rule.loops, option, strict=True)
            if loop.kind is not LoopKind.LINEAR
            for held in [block(loop.size, mesh.group_size(axes), place(mesh, device, axes))]
        }
        operands = [self._windows(i, option, mesh, device, spans, array) for i, array in enumerate(operands)]
        shapes = tuple(
            tuple(
                held.stop - held.start
                for size, axes in zip(kind.shape, self.rule.result_sharding(i, option).split_axes, strict=True)
                for held in [block(size, mesh.group_size(axes), place(mesh, device, axes))]
            )
            for i, kind in enumerate(self.case.results)
        )
        dtypes = tuple(np.dtype(NUMPY[kind.dtype]) for kind in self.case.results)
        made = self.row.compute(Local(np, self.case.attrs, spans, shapes, dtypes), *operands)
        results = tuple(np.asarray(each) for each in (made if isinstance(made, tuple) else (made,)))
        assert tuple(each.shape for each in results) == shapes, f"{option}: local shapes"
        return results

    def _windows(
        self, operand: int, option: Option, mesh: Mesh, device: int, spans: dict[str, Span], array: Array
    ) -> Array:
        """What a device holds of an operand as its array function sees it: of windows, every place they reach."""
        if operand not in self.rule.windows:
            return array
        shape = self.case.operands[operand].shape
        held = box(self.rule.read_sharding(operand, option, mesh), shape, mesh, device)
        for axis, (dim, size) in enumerate(zip(self.rule.operands[operand], shape, strict=True)):
            if dim.coefficients:
                runs = product(*(range(spans[loop].start, spans[loop].stop) for loop in dim.loops))
                reached = [sum(map(mul, dim.coefficients, at)) - (dim.padding or 0) for at in runs]
                wanted = range(min(reached), max(reached) + 1) if reached else range(0)
                inside = [at for at in wanted if 0 <= at < size]
                beyond = [sum(at < 0 for at in wanted), sum(at >= size for at in wanted)]
                array = array.take([at - held[axis][0] for at in inside], axis)
                pads = [beyond if each == axis else (0, 0) for each in range(len(shape))]
                array = np.pad(array, pads, constant_values=self.row.padding) if any(beyond) else array
        return array

    def check(self, option: Option, mesh: Mesh) -> None:
        """The parts put together are the whole."""
        held = [self._laid_out(i, self.rule.read_sharding(i, option, mesh), mesh) for i in range(len(self.operands))]
        made = [self._run(option, mesh, d, [h[d] for h in held]) for d in range(mesh.devices)]
        for i, whole in enumerate(self.whole):
            sharding = self.rule.result_sharding(i, option)
            got = assembled([results[i] for results in made], sharding, whole.shape, mesh)
            assert agree(got, whole), f"{self.case} on {mesh.notation}, option {option}: result {i}, {sharding}"

    def _laid_out(self, operand: int, sharding: Sharding, mesh: Mesh) -> list[Array]:
        key = (operand, sharding)
        if key not in self.layouts:
            self.layouts[key] = laid_out(self.operands[operand], sharding, mesh, self.random)
        return self.layouts[key]


def tried(rule: Rule, mesh: Mesh) -> Iterator[Option]:
    """Every option; where there are many, every assignment of axes to loops in one order, not always the same."""
    every = list(options(rule, mesh))
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
            if rule.allows(wider, mesh):
                yield wider


def check_row(row: Row, case: Case) -> int:
    """Runs a row on a case over all meshes; the number of options run."""
    run = 0
    for mesh in MESHES:
        trial = Trial(row, case)
        planned = list(tried(trial.rule, mesh))
        for option in (*planned, *passing(trial.rule, mesh, planned)):
            trial.check(option, mesh)
            run += 1
    return run


@pytest.mark.parametrize("op", OPS)
def test_a_row_in_parts_is_the_row_whole(op: str) -> None:
    for case in CASES:
        if case.op == op:
            assert check_row(OPS[op], case) >= len(MESHES), f"{case}: nothing was run"


def test_every_row_has_a_case() -> None:
    assert set(OPS) == {case.op for case in CASES}


def _bias_everywhere(local: Local, x: Array, weight: Array, bias: Array) -> Array:
    return np.matmul(x, weight.T) + bias


def _local_mean(local: Local, x: Array) -> Array:
    attrs: dict[str, Any] = dict(local.attrs)
    return x.mean(axis=tuple(attrs["dims"]), keepdims=bool(attrs.get("keepdim")))


def _whole_vocabulary(local: Local, grad: Array, logits: Array, lse: Array, ids: Array) -> Array:
    return (np.exp(logits - lse) - (np.arange(logits.shape[-1]) == ids)) * grad


def _adds_everywhere(local: Local, x: Array, ids: Array, updates: Array) -> Array:
    made = x.copy()
    inside = (ids >= local.spans["v0"].start) & (ids < local.spans["v0"].stop)
    np.add.at(made, ids[inside] - local.spans["v0"].start, updates[inside])
    return made


def _local_classes(local: Local, ids: Array) -> Array:
    return (np.arange(local.shapes[0][-1]) == ids[..., None]).astype(local.dtypes[0])


def _local_triangle(local: Local, x: Array) -> Array:
    return np.tril(x)


def _changed(op: str, **fields: Any) -> Row:
    return replace(OPS[op], **fields)


WRONG: dict[str, tuple[Row, str, dict[str, Any]]] = {
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
