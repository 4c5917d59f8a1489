"""Measures the time of ops on the local device: each by itself, over a grid of sizes.

An op runs as the executor runs it (`planner.run.local_op`), whole, on a mesh of one device; the median of several runs
counts. On a GPU runs are queued and awaited together. COPIES sets of operands take turns, and as many results are
kept: as in a program, what is small is still in a cache and what is large is not.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from statistics import median
from types import MappingProxyType
from typing import Any

from planner.ir.graph import Op, TensorType
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall
from planner.ops import bind_op
from planner.run.backend import DECLARED, synchronize
from planner.run.local_op import run_op

Clock = Callable[[], float]
Shapes = tuple[tuple[int, ...], ...]
SINGLE_DEVICE = Mesh.parse("1")
RUNS, QUEUED, MIN_S, MAX_S = 7, 20, 0.002, 0.4
COPIES = 4
ROW = 1024
_FLAT = tuple(1 << power for power in range(6, 23, 2))
_POINTWISE = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
_UNARY = ("negate", "abs", "square", "sqrt", "rsqrt", "exp", "log", "tanh", "sigmoid", "relu", "silu", "gelu", "sin")


@dataclass(frozen=True, slots=True)
class Probe:
    """An op over a grid of sizes.

    `shapes(size)` are the shapes of its operands and, last, of its result. `by` is the figure that its time grows with.
    """

    op: str
    by: str
    shapes: Callable[[int], Shapes]
    sizes: Sequence[int]
    attrs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def ops(self, dtype: str) -> Iterator[tuple[Op, tuple[TensorType, ...]]]:
        """Yield the op in every size, with the types of its operands."""
        for size in self.sizes:
            *operands, result = (TensorType(shape, dtype) for shape in self.shapes(size))
            types, results = tuple(operands), (result,)
            rule = bind_op(self.op, types, results, attrs=self.attrs, notation=None)
            names = tuple(f"i{k}" for k in range(len(types)))
            yield Op(self.op, self.op, names, results, rule, MappingProxyType(dict(self.attrs))), types


def _flat_shapes(count: int) -> Callable[[int], Shapes]:
    return lambda size: ((size,),) * count


def _row_shapes(result: tuple[int, ...], *more: tuple[int, ...]) -> Callable[[int], Shapes]:
    """Return shapes of rows of ROW elements, further operands, and what is left of a row."""
    return lambda size: ((size, ROW), *more, (size, *result))


_CUBES = (8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768)
_ROWS = (1, 4, 16, 64, 256, 1024, 2048)
_BATCHES = (1, 2, 4, 8, 16, 32)
PROBES = (
    Probe("matmul", "flops", lambda n: ((n, n), (n, n), (n, n)), _CUBES),
    Probe("matmul", "bytes", lambda n: ((1, n), (n, n), (1, n)), (16, 64, 256, 512, 1024, 2048)),
    Probe("linear", "flops", lambda n: ((4, n // 4, n), (n, n), (n,), (4, n // 4, n)), _CUBES),
    Probe("linear", "bytes", lambda n: ((1, n), (n, n), (n,), (1, n)), (16, 64, 256, 512, 1024, 2048)),
    Probe("addmm", "flops", lambda n: ((n,), (n, n), (n, n), (n, n)), _CUBES),
    Probe("addmm", "bytes", lambda n: ((n,), (1, n), (n, n), (1, n)), (16, 64, 256, 512, 1024, 2048)),
    *(Probe(op, "bytes", _flat_shapes(3), _FLAT) for op in _POINTWISE),
    *(Probe(op, "bytes", _flat_shapes(2), _FLAT) for op in _UNARY),
    Probe("gelu", "bytes", _flat_shapes(2), _FLAT, {"approximate": "tanh"}),
    Probe("pow", "bytes", _flat_shapes(2), _FLAT, {"scalar": 3.0}),
    *(Probe(op, "bytes", _row_shapes(()), _ROWS, {"dims": [1]}) for op in ("sum", "max", "mean", "variance")),
    Probe("softmax", "bytes", _row_shapes((ROW,)), _ROWS, {"dim": 1}),
    Probe("log_softmax", "bytes", _row_shapes((ROW,)), _ROWS, {"dim": 1}),
    Probe("layer_norm", "bytes", _row_shapes((ROW,), (ROW,), (ROW,)), _ROWS),
    Probe("rms_norm", "bytes", _row_shapes((ROW,), (ROW,)), _ROWS),
    Probe("scaled_dot_product_attention", "flops", lambda b: ((b, 4, 128, 64),) * 4, _BATCHES),
)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One op in one size, and its seconds."""

    op: Op
    operands: tuple[TensorType, ...]
    by: str
    seconds: float


def measure_ops(
    xp: Any, dtype: str, probes: Sequence[Probe] = PROBES, *, clock: Clock = time.perf_counter
) -> Iterator[Measurement]:
    """Yield measurements of every probe in every size, until one run of it takes more than MAX_S."""
    for probe in probes:
        for op, operands in probe.ops(dtype):
            seconds = measure_op_s(op, operands, xp, clock=clock)
            yield Measurement(op, operands, probe.by, seconds)
            if seconds > MAX_S:
                break


def measure_op_s(op: Op, operands: Sequence[TensorType], xp: Any, *, clock: Clock = time.perf_counter) -> float:
    """Return the seconds of an op on one device that holds all of it."""
    random = xp.random.default_rng(0)
    held = cycle([[_draw_array(random, kind) for kind in operands] for _ in range(COPIES)])
    results = deque[Any](maxlen=COPIES)
    done = OpCall(op, ((),) * len(op.rule.loops), op.inputs, op.values)
    return measure_median_s(
        lambda: results.append(run_op(done, SINGLE_DEVICE, 0, operands=next(held), xp=xp, precision=DECLARED)),
        xp,
        clock,
    )


def _draw_array(random: Any, kind: TensorType) -> Any:
    return (0.5 + random.random(kind.shape)).astype(kind.dtype.replace("f", "float"))


def measure_median_s(work: Callable[[], object], xp: Any, clock: Clock = time.perf_counter) -> float:
    """Return the median seconds of `work`.

    Short work runs many times per measurement; the first run, which warms up, does not count.
    """
    _time_runs(work, 1, xp, clock=clock)
    once = _time_runs(work, 1, xp, clock=clock)
    times = max(1, min(QUEUED, int(MIN_S / max(once, 1e-7))))
    return median([_time_runs(work, times, xp, clock=clock) for _ in range(RUNS)]) if once < MAX_S else once


def _time_runs(work: Callable[[], object], times: int, xp: Any, *, clock: Clock) -> float:
    synchronize(xp)
    start = clock()
    for _ in range(times):
        work()
    synchronize(xp)
    return (clock() - start) / times
