"""Lower bounds on the communication of matrix products, and what products communicate in a program.

A product contracts operands of sizes m x k and k x n over a loop that both have (several loops of a kind count as one).
Let each of P devices hold an equal part of one copy of both operands and of the result, and do an equal part of the
multiplications. Then some device sends or receives at least

    D - (mk + kn + mn) / P   elements, with the sizes sorted a >= b >= c:

    D = (ab + ac) / P + bc            P <= a / b                 one loop is split
        2 sqrt(a b c^2 / P) + ab / P  a / b <= P <= a b / c^2    two are
        3 (a b c / P)^(2/3)           else                       all three

(Al Daas, Ballard, Grigori, Kumar, Rouse, "Tight memory-independent parallel matrix multiplication communication lower
bounds", SPAA 2022), and at least mnk / (2 sqrt(2 M) P) - M where it holds no more than M (Irony, Toledo, Tiskin,
"Communication lower bounds for distributed-memory matrix multiplication", 2004). Both assume one copy of everything: a
program that keeps an operand on several devices may stay below, at the cost of memory.

The communication of a product in a program is that of the busiest device: for its operands, all moves since they were
computed, including moves shared with other readers, and for its result, all moves until its partial sums are reduced.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from planner.ir.graph import Op
from planner.ir.indexing import LoopKind
from planner.ir.program import OpCall, Reshard
from planner.judge.analysis import Analysis


@dataclass(frozen=True, slots=True)
class ProductCommunication:
    """Bytes that a device receives for one product, and their lower bound with one copy of everything."""

    op: str
    received_bytes: int
    bound_bytes: float

    @property
    def ratio(self) -> float | None:
        """Received bytes divided by the bound, or None where the bound is 0."""
        return self.received_bytes / self.bound_bytes if self.bound_bytes else None


def min_elements(m: int, n: int, k: int, devices: int) -> float:
    """Return the least number of elements that some device sends or receives."""
    a, b, c = sorted((m, n, k), reverse=True)
    # The three cases of the theorem: one, two or all three dims are worth splitting.
    if devices <= a / b:
        accessed = (a * b + a * c) / devices + b * c
    elif devices <= a * b / c**2:
        accessed = 2 * math.sqrt(a * b * c**2 / devices) + a * b / devices
    else:
        accessed = 3 * (a * b * c / devices) ** (2 / 3)
    # What a device holds of the operands and the result at the start need not be sent.
    return max(0.0, accessed - (a * b + a * c + b * c) / devices)


def min_elements_within(m: int, n: int, k: int, devices: int, held: int) -> float:
    """Return the same bound for devices that hold no more than `held` elements."""
    return max(0.0, m * n * k / (2 * math.sqrt(2 * held) * devices) - held)


@dataclass(frozen=True, slots=True)
class ProductOperands:
    """The numbers of the operands that a product contracts, and its sizes m, n, k."""

    left: int
    right: int
    sizes: tuple[int, int, int]


def find_product(op: Op) -> ProductOperands | None:
    """Return the operands of a product without batch loops, or None for other ops. Further operands are ignored."""
    terms = [{loop for dim in term for loop in dim.loops} for term in op.rule.operands]
    kept = {loop for term in op.rule.results for dim in term for loop in dim.loops}
    reduced = {loop.name for loop in op.rule.loops if loop.kind is LoopKind.REDUCTION}
    for i, j in combinations(range(len(terms)), 2):
        m, n, k = terms[i] - terms[j], terms[j] - terms[i], terms[i] & terms[j]
        if m and n and k and k <= reduced - kept and m | n == kept:
            return ProductOperands(i, j, (_loop_product(op, m), _loop_product(op, n), _loop_product(op, k)))
    return None


def _loop_product(op: Op, loops: set[str]) -> int:
    return math.prod(op.rule.sizes[loop] for loop in loops)


def measure_products(analysis: Analysis, limit_bytes: int) -> list[ProductCommunication]:
    """Measure each product, in the order of the program."""
    program, devices = analysis.program, analysis.program.mesh.devices
    most = analysis.received.max(axis=1, initial=0).tolist()
    received = {done.results[0]: size for done, size in zip(program.instructions, most, strict=True)}
    before = {done.result: done.operand for done in program.instructions if isinstance(done, Reshard)}
    after: dict[str, str] = {}
    for result, operand in before.items():
        after.setdefault(operand, result)
    products = []
    for run in program.instructions:
        if isinstance(run, OpCall) and (parts := find_product(run.op)):
            item = run.op.results[0].itemsize
            held = max(1, limit_bytes // item)
            least = max(min_elements(*parts.sizes, devices), min_elements_within(*parts.sizes, devices, held))
            moved = sum(
                _received_on_chain(run.operands[operand], before, received) for operand in (parts.left, parts.right)
            )
            moved += _received_by_result(run.results[0], after, received, analysis=analysis)
            products.append(ProductCommunication(run.op.id, moved, least * item))
    return products


def _received_on_chain(name: str, before: Mapping[str, str], received: Mapping[str, int]) -> int:
    total = 0
    while name in before:
        total += received[name]
        name = before[name]
    return total


def _received_by_result(name: str, after: Mapping[str, str], received: Mapping[str, int], *, analysis: Analysis) -> int:
    """Sum the bytes of the moves of a result while it is a partial sum."""
    total = 0
    while analysis.program.values[name].sharding.partial and name in after:
        name = after[name]
        total += received[name]
    return total
