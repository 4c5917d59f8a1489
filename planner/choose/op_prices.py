"""Seconds of an op's local part on a device: by its curves, else its fitted class of kernels, else the roofline.

The fitted classes (`planner.choose.hardware.op_times`) are those of the profile's `op_times`. Two kinds of ops have
one:

    product    loops of both operands that the result lacks are k; those of one operand alone m and n; those of all
               three are a batch, of which each entry has m rows more where the class has no column for it
    attention  the loops of the result are batch and heads, of which the keys may lack some; s queries attend to t
               keys, one query to a cache where s is 1

Another op, and one of an element type without a fit, takes what `Hardware.op_s` says. Gradients of attention have no
measurements.

A fitted time may fall where a shape grows. So the bound of all plans on n devices takes the least correction of all
local shapes that divisors of n leave, and an n-th of the work:

    seconds >= max(bound(work / n), roofline(work / n) * 2 ** (least correction))
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from planner.choose.hardware import Hardware
from planner.choose.hardware.efficiency import ATTENTION, PRODUCT, work_class
from planner.choose.hardware.op_classes import OP_CLASSES, Column, Columns, Work
from planner.choose.hardware.op_corrections import OpCorrection
from planner.choose.hardware.op_rates import FORMATS, find_rates
from planner.choose.hardware.op_times import OpFit, Rates, correct_s, load_fits
from planner.choose.hardware.op_transfer import STAND_INS
from planner.ir.graph import Op
from planner.ir.indexing import LoopKind
from planner.ir.notation import Dim, Term
from planner.ir.sharding import block_size
from planner.ops.attention import WINDOW

MAX_SHAPES = 5_000
"""Local shapes of an op that its bound looks at one by one; of more, every shape of the fit counts."""
VARIANTS = {kind: word for word, (kind, _) in reversed(FORMATS.items())}
"""The word of a fitted class for the element type of an op."""
PRICED_CLASSES = {
    "gemm": PRODUCT,
    "linear": PRODUCT,
    "bmm": PRODUCT,
    "context_attention": ATTENTION,
    "generation_attention": ATTENTION,
}
"""The classes of kernels that price ops, and the work classes that stand in for them."""


class LocalWork(NamedTuple):
    """What the largest local part of an op does: FLOPs, bytes read and written, and the sizes of its loops."""

    flops: float
    moved: int
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class OpPricing:
    """What prices an op: its fitted class `key`, `class.dtype`, where it has one, or its work class.

    `correction` is that of the class, whether or not it is fitted.
    """

    op: Op
    hardware: Hardware
    kind: str | None
    key: str | None
    correction: OpCorrection | None = None

    @classmethod
    def of(cls, op: Op, hardware: Hardware) -> OpPricing:
        kind, dtype = work_class(op), op.results[0].dtype
        if kind is None or _has_curves(op, hardware):
            return cls(op, hardware, kind, None)
        name, word = _name_class(op, kind, dtype), VARIANTS.get(dtype, "")
        correction = hardware.op_corrections.get(f"{name}.{word}")
        return cls(op, hardware, kind, _find_key(hardware, name, word), correction)

    def seconds(self, works: Sequence[LocalWork]) -> Sequence[float]:
        """Return the seconds of each amount of work."""
        return [self._correct(seconds) for seconds in self._predict(works)]

    def _correct(self, seconds: float) -> float:
        own = self.correction
        return own.offset_s + own.scale * seconds if own else seconds

    def _predict(self, works: Sequence[LocalWork]) -> Sequence[float]:
        if self.key is None:
            name, dtype = op_variant(self.op), self.op.results[0].dtype
            return [self.hardware.op_s(name, dtype, work.flops, moved=work.moved, kind=self.kind) for work in works]
        flops, moved = (np.array(column, np.float64) for column in list(zip(*works, strict=True))[:2])
        shape = self._shape([work.sizes for work in works])
        seconds: list[float] = self._price((flops, moved), self._fit.lattice.at(shape)).tolist()
        return seconds

    def least_s(self, work: LocalWork, devices: int) -> float:
        """Return a lower bound on the seconds of some device, of the unsharded work and any plan on `devices`."""
        part = LocalWork(work.flops / devices, work.moved, work.sizes)
        if self.key is None:
            name, dtype = op_variant(self.op), self.op.results[0].dtype
            return self._correct(
                self.hardware.op_s(name, dtype, part.flops, moved=part.moved / devices, kind=self.kind)
            )
        sizes = _split_sizes(self.op, work.sizes, devices)
        corrections = self._fit.lattice.values if sizes is None else self._fit.lattice.at(self._shape(sizes))
        done = np.array([part.flops]), np.array([part.moved / devices])
        return self._correct(float(self._price(done, corrections.min())[0]))

    def _price(self, work: Work, correction: Column | float) -> Column:
        return correct_s(OP_CLASSES[self._class], self._rates, work, correction=correction)

    @property
    def _class(self) -> str:
        return (self.key or "").split(".")[0]

    @property
    def _fit(self) -> OpFit:
        return load_fits(self.hardware.op_times or "")[self.key or ""]

    @property
    def _rates(self) -> Rates:
        return find_rates(self.hardware, self.key or "")

    @property
    def source(self) -> str:
        """What the price rests on: a fitted class of a device, measured curves, an efficiency, or the roofline."""
        if _has_curves(self.op, self.hardware):
            return "measured curve"
        cited = f"efficiency of {self.kind}" if self.kind in self.hardware.efficiency else "roofline"
        base = cited if self.key is None else f"{self.key} fitted on {self.hardware.op_times}"
        return f"{base}, corrected by own measurements" if self.correction else base

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of measured over predicted time on shapes kept out of the fit of the correction, or of `key`."""
        own = self.correction or self._fit
        return own.low, own.high

    def is_covered(self, sizes: Sequence[int]) -> bool:
        """Return whether the shape with loops of these sizes lies within the measured ones."""
        return self.key is not None and bool(self._fit.lattice.covers(self._shape([tuple(sizes)]))[0])

    def _shape(self, sizes: Sequence[tuple[int, ...]]) -> Sequence[Column]:
        columns = np.array(sizes, np.float64).T
        by_loop = dict(zip(self.op.rule.sizes, columns, strict=True))
        read = _attention_columns if self.kind == ATTENTION else _product_columns
        return OP_CLASSES[self._class].shape(read(self.op, by_loop, np.ones(len(sizes))))


def kernel_s(hardware: Hardware, op: str, dtype: str, *, columns: Columns) -> Column:
    """Return the seconds of kernels of a class in `PRICED_CLASSES`, given by its columns, before any correction."""
    kernel, key = OP_CLASSES[op], _find_key(hardware, op, dtype)
    if key is not None:
        return load_fits(hardware.op_times or "")[key].seconds(kernel, find_rates(hardware, key), columns)
    word, itemsize = FORMATS[dtype]
    work = zip(*kernel.count_work(columns, itemsize), strict=True)
    kind = PRICED_CLASSES[op]
    return np.array([hardware.op_s("", word, float(flops), moved=float(moved), kind=kind) for flops, moved in work])


def _find_key(hardware: Hardware, name: str, word: str) -> str | None:
    """Return the fitted class of a profile for an element type, or for one that stands in for it."""
    fits = load_fits(hardware.op_times or "")
    return next((key for each in (word, STAND_INS.get(word, word)) if (key := f"{name}.{each}") in fits), None)


def op_variant(op: Op) -> str:
    """Return the key of an op's curves: its name with the word-valued attributes, which say how it is computed."""
    words = [value for key, value in sorted(op.attrs.items()) if isinstance(value, str) and value != "none"]
    return ":".join([op.op, *words])


def _has_curves(op: Op, hardware: Hardware) -> bool:
    return f"{op_variant(op)}.{op.results[0].dtype}" in hardware.curves or op_variant(op) in hardware.curves


def _name_class(op: Op, kind: str, dtype: str) -> str:
    """Return the name of the class of kernels that an op belongs to, whether or not it is fitted."""
    if kind == ATTENTION:
        return "context_attention" if _loops_of(op.rule.operands[0][-2:-1]) else "generation_attention"
    if kind == PRODUCT and dtype == "f32":
        one, other, made = _product_terms(op)
        return "bmm" if one & other & made else "linear"
    return "gemm" if kind == PRODUCT else ""


def _product_columns(op: Op, sizes: Columns, ones: Column) -> Columns:
    """Return the columns of `gemm` and of the batched classes."""
    one, other, made = _product_terms(op)
    batch, m, n, k = (
        _product_of(sizes, loops, ones)
        for loops in (one & other & made, one - other, other - one, (one & other) - made)
    )
    return {"m": batch * m, "n": n, "k": k, "B": batch, "M": m, "N": n, "K": k}


def _attention_columns(op: Op, sizes: Columns, ones: Column) -> Columns:
    """Return the columns of attention of a prompt, and of one query to a cache."""
    query, key, *_ = op.rule.operands
    heads, held = (_product_of(sizes, _loops_of(term[:-2]), ones) for term in (op.rule.results[0], key))
    queries, keys, head_dim = (_product_of(sizes, _loops_of([dim]), ones) for dim in (query[-2], key[-2], query[-1]))
    prefix, window = np.maximum(keys - queries, 0), ones * WINDOW.read(op.attrs)
    figures = {"seq": queries, "prefix": prefix, "kv_len": keys, "head_dim": head_dim, "window": window}
    return {"batch": ones, "heads": heads, "kv_heads": held, **figures}


def _product_terms(op: Op) -> tuple[set[str], set[str], set[str]]:
    """Return the loops of the two operands that are contracted, and those of the results."""
    terms = [_loops_of(term) for term in op.rule.operands]
    made = set().union(*map(_loops_of, op.rule.results))
    one, other = next((a, b) for a, b in combinations(terms, 2) if a - b and b - a and (a & b) - made)
    return one, other, made


def _loops_of(term: Term | Sequence[Dim]) -> set[str]:
    return {loop for dim in term for loop in dim.loops}


def _product_of(sizes: Mapping[str, Column], loops: set[str], ones: Column) -> Column:
    return math.prod((sizes[loop] for loop in loops), start=ones)


def _split_sizes(op: Op, sizes: Sequence[int], devices: int) -> list[tuple[int, ...]] | None:
    """Return the sizes of loops that are left on devices, however these are shared out; None where too many."""
    loops = [loop for loop in op.rule.loops if loop.kind is not LoopKind.LINEAR]
    may_split = [loop.kind in (LoopKind.PARALLEL, LoopKind.REDUCTION) and loop.size > 1 for loop in loops]
    shapes: set[tuple[tuple[int, ...], int]] = {((), devices)}
    for size, splits in zip(sizes, may_split, strict=True):
        shapes = {
            ((*shape, block_size(size, count)), rest // count)
            for shape, rest in shapes
            for count in (_divisors(rest) if splits else (1,))
        }
        if len(shapes) > MAX_SHAPES:
            return None
    return list({shape for shape, _ in shapes})


def _divisors(number: int) -> Iterator[int]:
    return (each for low in range(1, math.isqrt(number) + 1) if number % low == 0 for each in {low, number // low})
