"""Handlers of products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from planner.errors import InvalidGraph
from planner.frontends.mlir.accumulation import accumulate
from planner.frontends.mlir.annotation_checks import NamedValue
from planner.frontends.mlir.loop_terms import DimTerms, matches_rule, plain_terms, spell_rule
from planner.frontends.mlir.op_names import ARITY
from planner.frontends.mlir.operations import Operation
from planner.frontends.mlir.translation import MlirTranslation

VECTOR_PRODUCTS: Mapping[str, tuple[Sequence[int], Sequence[tuple[list[int], list[int]]]]] = MappingProxyType(
    {
        "linalg.dot": ((1, 1), [([], [0]), ([], [0])]),
        "linalg.matvec": ((2, 1), [([], [1]), ([], [0])]),
        "linalg.vecmat": ((1, 2), [([], [0]), ([], [0])]),
        "linalg.batch_matvec": ((3, 2), [([0], [2]), ([0], [1])]),
        "linalg.batch_vecmat": ((2, 3), [([0], [1]), ([0], [1])]),
    }
)
"""Ranks of the operands; of each, the dims of the batch and the dims that are contracted."""


def translate_contraction(t: MlirTranslation, operation: Operation) -> None:
    """linalg.matmul, linalg.batch_matmul, tosa.matmul."""
    count = ARITY.get(operation.name, len(operation.operands))
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands[:count]]
    for zero in operation.operands[count:]:
        t.init_tensors.add(t.find_tensor(zero, operation.at).value)
    accumulate(t, operation, "matmul", inputs=inputs, attrs={}, kind="sum")


def translate_dot(t: MlirTranslation, operation: Operation) -> None:
    """mhlo.dot: the last dim of the left operand with the first of the right, both of rank 1 or 2."""
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    ranks = [len(tensor.shape) for tensor in inputs]
    if len(ranks) != 2 or not set(ranks) <= {1, 2}:
        raise t.scan.error(
            "ranks", at=operation.at, got=ranks, wanted="two operands of rank 1 or 2", error=InvalidGraph
        )
    operands, result = _dot_terms([([], [ranks[0] - 1]), ([], [0])], ranks)
    add_product(t, operation, inputs, operands=operands, result=result)


def translate_vector_product(t: MlirTranslation, operation: Operation) -> None:
    """linalg.dot, linalg.matvec and the other products with a vector."""
    ranks, sides = VECTOR_PRODUCTS[operation.name]
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    got = [len(tensor.shape) for tensor in inputs]
    if got != list(ranks):
        wanted = f"ranks {ranks[0]} and {ranks[1]}"
        raise t.scan.error("operands of a product", at=operation.at, got=got, wanted=wanted, error=InvalidGraph)
    operands, result = _dot_terms(sides, ranks)
    add_product(t, operation, inputs, operands=operands, result=result)


def translate_dot_general(t: MlirTranslation, operation: Operation) -> None:
    """dot_general; the result's dims are batch, then the free dims of the left operand, then those of the right."""
    numbers = operation.attrs.get("dot_dimension_numbers")
    if not isinstance(numbers, Mapping):
        raise t.scan.error("dot_general", at=operation.at, wanted="dot_dimension_numbers = #mhlo.dot<...>")
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    if len(inputs) != 2:
        raise t.scan.error("number of operands", at=operation.at, got=len(inputs), wanted="2", error=InvalidGraph)
    sides = [
        (list(numbers.get(f"{side}_batching_dimensions", [])), list(numbers.get(f"{side}_contracting_dimensions", [])))
        for side in ("lhs", "rhs")
    ]
    for (batch, contracted), tensor in zip(sides, inputs, strict=True):
        dims = [*batch, *contracted]
        if len(set(dims)) != len(dims) or not all(dim in range(len(tensor.shape)) for dim in dims):
            wanted = f"different dims of rank {len(tensor.shape)}"
            raise t.scan.error("dimension numbers", at=operation.at, got=dims, wanted=wanted, error=InvalidGraph)
    if any(len(left) != len(right) for left, right in zip(*sides, strict=True)):
        raise t.scan.error("dimension numbers", at=operation.at, got=sides, wanted="equally many on both sides")
    operands, result = _dot_terms(sides, [len(tensor.shape) for tensor in inputs])
    add_product(t, operation, inputs, operands=operands, result=result)


def _dot_terms(sides: Sequence[tuple[list[int], list[int]]], ranks: Sequence[int]) -> tuple[list[DimTerms], DimTerms]:
    shared = len(sides[0][0]), len(sides[0][1])
    free = sum(shared)
    operands: list[DimTerms] = []
    result = list(range(shared[0]))
    for (batch, contracted), rank in zip(sides, ranks, strict=True):
        loops = {dim: k for k, dim in enumerate(batch)} | {dim: shared[0] + k for k, dim in enumerate(contracted)}
        for dim in range(rank):
            if dim not in loops:
                loops[dim] = free
                result.append(free)
                free += 1
        operands.append(plain_terms([loops[dim] for dim in range(rank)]))
    return operands, plain_terms(result)


def add_product(
    t: MlirTranslation, operation: Operation, inputs: list[NamedValue], *, operands: list[DimTerms], result: DimTerms
) -> None:
    rule = spell_rule(operands, result, ["0", "1"])
    op = next(
        (op for op in ("matmul", "linear") if matches_rule(t, op, inputs, results=t.tensors(operation), rule=rule)),
        None,
    )
    if op is None and all(dim for term in (*operands, result) for dim in term):
        attrs = {"equation": spell_rule(operands, result, [])}
        accumulate(t, operation, "einsum", inputs=inputs, attrs=attrs, kind="sum")
        return
    accumulate(t, operation, op or "dot_general", inputs=inputs, attrs={}, kind="sum", notation=None if op else rule)
