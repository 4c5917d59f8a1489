"""Runs an op row under an option and compares with the unsharded result."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, product
from operator import itemgetter, mul

import numpy as np

from planner.ir.binding import bind_rule
from planner.ir.graph import TensorType
from planner.ir.indexing import LoopKind, Option, Rule
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.ops import Array, OpContext, OpDef, OpSignature, Span
from tests.testing.layout_oracle import agree, block, box, place, shard_array, unshard_array
from tests.testing.op_case import Case

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


RANGES = {"erf_inv": (-0.9, 0.9), "asin": (-0.9, 0.9), "acos": (-0.9, 0.9), "atanh": (-0.9, 0.9), "acosh": (1.1, 2.0)}
"""Domains of ops that are not defined for all of -2 to 2."""
RANGES |= dict.fromkeys(POSITIVE, (0.5, 2.0))
NUMPY = {"f64": np.float64, "f32": np.float32, "i64": np.int64, "u32": np.uint32, "bool": np.bool_}


@dataclass
class Trial:
    """An op row on a case, run whole and in parts."""

    row: OpDef
    case: Case
    operands: list[Array] = field(init=False)
    rule: Rule = field(init=False)
    whole: tuple[Array, ...] = field(init=False)

    def __post_init__(self) -> None:
        case = self.case
        text = self.row.notation(OpSignature(case.operands, case.results, case.attrs))
        self.rule = bind_rule(text, [k.shape for k in case.operands], [k.shape for k in case.results])
        self.random = np.random.default_rng(zlib.crc32(str(case).encode()))
        self.operands = [self._operand(i, kind) for i, kind in enumerate(case.operands)]
        self.whole = self._run(((),) * len(self.rule.loops), Mesh.parse("1"), 0, self.operands)
        self.layouts: dict[tuple[int, Sharding], list[Array]] = {}

    def _operand(self, position: int, kind: TensorType) -> Array:
        if (loop := self.row.indexed_loops.get(position)) in self.rule.sizes:
            return self.random.integers(*self._reach(self.rule.sizes[loop]), kind.shape)
        if kind.dtype.startswith("f"):
            drawn = self.random.uniform(*RANGES.get(self.row.name, (-2.0, 2.0)), kind.shape)
            return drawn.astype(NUMPY[kind.dtype])
        return self.random.integers(
            0 if kind.dtype == "bool" else 1, 2 if kind.dtype == "bool" else 9, kind.shape
        ).astype(NUMPY[kind.dtype])

    def _reach(self, size: int) -> tuple[int, int]:
        """Return the range of positions to draw: out of bounds too where that is defined."""
        return {"wrap": (-size, size), "clamp": (-2, size + 2), "drop": (-2, size + 2)}.get(
            self.case.attrs.get("beyond", ""), (0, size)
        )

    def _context(self, option: Option, mesh: Mesh, device: int) -> OpContext:
        spans = {
            loop.name: Span(held.start, held.stop, loop.size)
            for loop, axes in zip(self.rule.loops, option, strict=True)
            if loop.kind is not LoopKind.LINEAR
            for held in [block(loop.size, mesh.group_size(axes), place(mesh, device, axes))]
        }
        shapes = tuple(
            tuple(
                held.stop - held.start
                for size, axes in zip(kind.shape, self.rule.result_sharding(i, option).split_axes, strict=True)
                for held in [block(size, mesh.group_size(axes), place(mesh, device, axes))]
            )
            for i, kind in enumerate(self.case.results)
        )
        dtypes = tuple(np.dtype(NUMPY[kind.dtype]) for kind in self.case.results)
        return OpContext(np, self.case.attrs, spans, shapes, dtypes)

    def _run(self, option: Option, mesh: Mesh, device: int, operands: list[Array]) -> tuple[Array, ...]:
        local = self._context(option, mesh, device)
        read = [self._windows(i, option, mesh, device, local.spans, array) for i, array in enumerate(operands)]
        made = self.row.compute(local, *read)
        results = tuple(np.asarray(each) for each in (made if isinstance(made, tuple) else (made,)))
        assert tuple(each.shape for each in results) == local.shapes, f"{option}: local shapes"
        return results

    def _run_ring(
        self, option: Option, mesh: Mesh, group: list[int], held: list[list[Array]]
    ) -> list[tuple[Array, ...]]:
        """Return the results of the devices of a ring. Nothing is sent: device i reads the block of i - r at step r."""
        assert self.row.ring is not None
        assert self.rule.ring is not None
        ins, outs = self.rule.travelling
        contexts, n = [self._context(option, mesh, device) for device in group], len(group)
        own = [[array[device] for array in held] for device in group]
        states: list[tuple[Array, ...]] = [()] * n
        sums: list[tuple[Array, ...]] = [()] * n
        for each in self.row.ring.rounds:
            states = [each.begin(*given) for given in zip(contexts, own, states, strict=True)]
            is_last = each is self.row.ring.rounds[-1]
            sums = [tuple(np.zeros(local.shapes[k], local.dtypes[k]) for k in outs if is_last) for local in contexts]
            for step, i in product(range(n), range(n)):
                block = (i - step) % n
                loop = self.rule.loops[self.rule.ring.travels].name
                local = replace(contexts[i], spans={**contexts[i].spans, loop: contexts[block].spans[loop]})
                read = [own[block if k in ins else i][k] for k in range(len(held))]
                states[i], sums[block] = each.step(local, read, states[i], sums[block])
        return [self.row.ring.finish(*given) for given in zip(contexts, own, states, sums, strict=True)]

    def _windows(
        self, operand: int, option: Option, mesh: Mesh, device: int, spans: Mapping[str, Span], array: Array
    ) -> Array:
        """Return a device's part of an operand as the array function sees it: for windows, all that they reach."""
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
        """Assert that the parts assemble to the whole result."""
        held = [self._laid_out(i, self.rule.read_sharding(i, option, mesh), mesh) for i in range(len(self.operands))]
        if axes := self.rule.ring_axes(option):
            groups = mesh.groups(axes).tolist()
            rings = [zip(group, self._run_ring(option, mesh, group, held), strict=True) for group in groups]
            made = [results for _, results in sorted(chain(*rings), key=itemgetter(0))]
        else:
            made = [self._run(option, mesh, d, [h[d] for h in held]) for d in range(mesh.devices)]
        for i, whole in enumerate(self.whole):
            sharding = self.rule.result_sharding(i, option)
            got = unshard_array([results[i] for results in made], sharding, whole.shape, mesh)
            assert agree(got, whole), f"{self.case} on {mesh.notation}, option {option}: result {i}, {sharding}"

    def _laid_out(self, operand: int, sharding: Sharding, mesh: Mesh) -> list[Array]:
        key = (operand, sharding)
        if key not in self.layouts:
            self.layouts[key] = shard_array(self.operands[operand], sharding, mesh, self.random)
        return self.layouts[key]
