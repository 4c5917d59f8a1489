"""Handlers of reductions, transposes, broadcasts and linalg.generic.

The body of a linalg.generic must be one operation or the multiplication and addition of a contraction, and the results
of its maps loops, sums of loops as in a convolution, or 0. If no op of the op table has its loops, it carries its own
rule.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import InvalidGraph, UnsupportedOp
from planner.frontends.mlir.accumulation import COMBINER_OPS, accumulate, mark_starts
from planner.frontends.mlir.attributes import AffineMap, DenseAttribute
from planner.frontends.mlir.loop_terms import DimTerms, matches_rule, plain_terms, spell_rule
from planner.frontends.mlir.op_names import ELEMENTWISE, REDUCTIONS, TOSA_REDUCTIONS
from planner.frontends.mlir.operations import Operation
from planner.frontends.mlir.product_ops import add_product
from planner.frontends.mlir.translation import MlirTranslation


def translate_reduction(t: MlirTranslation, operation: Operation) -> None:
    """linalg.reduce with one operation as its combiner."""
    kind = REDUCTIONS.get(ELEMENTWISE.get(operation.body[0].name, "") if operation.body else "")
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    both = not operation.parameters or _reads_only(_read_body(t, operation)[0], operation.parameters)
    if kind is None or len(inputs) != 1 or not both:
        raise t.scan.error("reduction", at=operation.at, wanted=f"one of {list(COMBINER_OPS)}", error=UnsupportedOp)
    accumulate(t, operation, kind, inputs=inputs, attrs={"dims": operation.attrs.get("dimensions", [])}, kind=kind)


def translate_tosa_reduction(t: MlirTranslation, operation: Operation) -> None:
    """tosa.reduce_sum and the other tosa reductions, which keep the reduced dim."""
    attrs = {"dims": [operation.attrs.get("axis")], "keepdim": True}
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    t.add(operation, TOSA_REDUCTIONS[operation.name], inputs, attrs, t.tensors(operation))


def translate_transpose(t: MlirTranslation, operation: Operation) -> None:
    """linalg.transpose and mhlo.transpose."""
    order = operation.attrs.get("permutation")
    order = list(order.value) if isinstance(order, DenseAttribute) and isinstance(order.value, tuple) else order
    mark_starts(t, operation)
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    t.add(operation, "transpose", inputs, {"permutation": order}, t.tensors(operation))


def translate_broadcast(t: MlirTranslation, operation: Operation) -> None:
    """linalg.broadcast: `dimensions` lists the new dims of the result."""
    mark_starts(t, operation)
    (kind,) = t.tensors(operation)
    new = operation.attrs.get("dimensions", [])
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    if new == list(range(len(new))):
        t.add(operation, "expand", inputs, {}, (kind,))
        return
    kept = tuple(dim for dim in range(len(kind.type.shape)) if dim not in new)
    rule = spell_rule([plain_terms(kept)], plain_terms(range(len(kind.type.shape))), ["0"])
    t.add(operation, "broadcast", inputs, {}, (kind,), rule)


def translate_generic(t: MlirTranslation, operation: Operation) -> None:
    """linalg.generic whose body is one operation, or the two of a contraction."""
    maps = operation.attrs.get("indexing_maps") or []
    inputs = [t.find_tensor(name, operation.at) for name in operation.operands]
    body = _read_body(t, operation)
    names = [ELEMENTWISE.get(each.name) for each in body]
    if len(maps) != len(inputs) + 1 or not all(isinstance(each, AffineMap) for each in maps):
        wanted = "one per operand, of sums of loops and 0"
        raise t.scan.error("indexing maps", at=operation.at, wanted=wanted, error=UnsupportedOp)
    terms: list[DimTerms] = [each.results for each in maps]
    if names == ["multiply", "add"] and len(inputs) == 2 and _is_product(body, operation.parameters):
        add_product(t, operation, inputs, operands=terms[:-1], result=terms[-1])
        return
    arguments = {name: place for place, name in enumerate(operation.parameters[: len(inputs)])}
    read = [arguments.get(name) for name in body[0].operands] if len(body) == 1 else []
    if len(names) != 1 or names[0] is None or None in read:
        raise t.scan.error(
            "body", at=operation.at, wanted="one elementwise operation, or a product", error=UnsupportedOp
        )
    places = [place for place in read if place is not None]
    inputs, operands = [inputs[place] for place in places], [terms[place] for place in places]
    mark_starts(t, operation)
    rule = spell_rule(operands, terms[-1], [])
    results = t.tensors(operation)
    has_row = matches_rule(t, names[0], inputs, results=results, rule=rule)
    t.add(operation, names[0] if has_row else f"generic {names[0]}", inputs, {}, results, None if has_row else rule)


def _read_body(t: MlirTranslation, operation: Operation) -> list[Operation]:
    """Return the operations of a body before its yield, which must yield the last result.

    Raises InvalidGraph for an undefined value.
    """
    *body, last = operation.body or (Operation("nothing", operation.at),)
    defined = {*operation.parameters, *t.bound}
    for each in (*body, last):
        if missing := [name for name in each.operands if name not in defined]:
            raise t.scan.error(
                "undefined value", at=each.at, got=f"%{missing[0]}", wanted="a value of the body", error=InvalidGraph
            )
        defined.update(each.results)
    if not body or last.name != "linalg.yield" or last.operands != body[-1].results:
        got = f"{last.name} {', '.join(f'%{name}' for name in last.operands)}"
        raise t.scan.error("end of a body", at=last.at, got=got, wanted="a yield of the last result")
    return body


def _reads_only(operation: Operation, names: Sequence[str]) -> bool:
    return sorted(operation.operands) == sorted(names)


def _is_product(body: Sequence[Operation], parameters: Sequence[str]) -> bool:
    """Return whether a body multiplies the two inputs and adds the product to the accumulator."""
    left, right, into = (*parameters, "", "", "")[:3]
    return _reads_only(body[0], (left, right)) and _reads_only(body[1], (into, *body[0].results))
