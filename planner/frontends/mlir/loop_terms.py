"""Dims of operands and results as sums of loops, and the rules that they make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from planner.errors import ShardplanError
from planner.frontends.mlir.annotation_checks import NamedValue
from planner.frontends.mlir.attributes import LoopSum
from planner.frontends.mlir.translation import MlirTranslation
from planner.frontends.mlir.types import MlirTensorType
from planner.ir.graph import TensorType
from planner.ops import bind_op

DimTerms = Sequence[LoopSum]
"""The loops that index every dim, with their coefficients; none for a dim of size 1."""


def plain_terms(loops: Iterable[int]) -> DimTerms:
    """Return the terms of dims that one loop each indexes."""
    return [{loop: 1} for loop in loops]


def matches_rule(
    t: MlirTranslation, op: str, inputs: Sequence[NamedValue], *, results: Sequence[MlirTensorType], rule: str
) -> bool:
    """Return whether the rule of an op equals a rule up to the names of loops."""
    types: tuple[TensorType, ...] = tuple(t.types[tensor.value] for tensor in inputs)
    result_types = tuple(kind.type for kind in results)
    try:
        ours = bind_op(op, types, result_types, attrs={}, notation=None)
        given = bind_op("", types, result_types, attrs={}, notation=rule)
    except ShardplanError:
        return False
    # The rules are equal if the loops correspond one to one: `names` maps each of ours to one of theirs.
    names: dict[str, str] = {}
    for mine, its in zip((*ours.operands, *ours.results), (*given.operands, *given.results), strict=True):
        for dim, other in zip(mine, its, strict=True):
            # A loop of one turn and no loop are the same.
            loops, others = (
                [loop for loop in each.loops if rule.sizes[loop] != 1] for each, rule in ((dim, ours), (other, given))
            )
            if len(loops) != len(others) or dim.coefficients != other.coefficients:
                return False
            if any(names.setdefault(a, b) != b for a, b in zip(loops, others, strict=True)):
                return False
    return len(set(names.values())) == len(names)


def spell_rule(operands: Sequence[DimTerms], result: DimTerms, linear: Sequence[str]) -> str:
    """Return a rule. Loops of the result come first in a window: along them it is split."""
    made = {loop for dim in result for loop in dim}

    def term(dims: DimTerms) -> str:
        return " ".join(map(spell, dims)) or "[]"

    def spell(dim: LoopSum) -> str:
        factors = {f"d{loop}": dim[loop] for loop in sorted(dim, key=lambda loop: loop not in made)}
        if not factors:
            return "1"
        return spell_window(factors) if list(factors.values()) != [1] else next(iter(factors))

    groups = f"; linear {', '.join(linear)}" if linear else ""
    return f"{', '.join(map(term, operands))} -> {term(result)}{groups}"


def spell_window(factors: Mapping[str, int]) -> str:
    """Return the notation of a dim that is read at a sum of loops with coefficients."""
    return f"({'+'.join(loop if factor == 1 else f'{factor}*{loop}' for loop, factor in factors.items())})"
