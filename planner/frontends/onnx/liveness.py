"""Which operands a node reads for their elements, and which only determine sizes.

Sizes are computed while a model is imported, elements when it runs. Only nodes whose elements an output depends on
become nodes of the document; the rest is shape arithmetic and must be computable at import.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from onnx import GraphProto, NodeProto

_REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")

SIZES: dict[str, tuple[int, ...]] = {
    **{f"Reduce{kind}": (1,) for kind in _REDUCTIONS},
    "ConstantOfShape": (0,),
    "CumSum": (1,),
    "Dropout": (1, 2),
    "Expand": (1,),
    "OneHot": (1, 2),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""Operator -> the operands whose elements must be known at import."""

TYPES: dict[str, tuple[int, ...]] = {
    "CastLike": (1,),
    "EyeLike": (0,),
    "GroupQueryAttention": (5, 6),
    "Shape": (0,),
    "Size": (0,),
}
"""Operator -> the operands of which it reads at most the type."""


@dataclass(frozen=True, slots=True)
class OperandUses:
    """The values whose elements the outputs depend on, and those that sizes depend on."""

    elements: frozenset[str]
    sizes: frozenset[str]

    @classmethod
    def of(cls, graph: GraphProto) -> OperandUses:
        """Collect the uses in one walk backwards; the nodes of a model are in topological order."""
        elements, sizes = {output.name for output in graph.output}, set[str]()
        for node in reversed(graph.node):
            outputs = set(node.output)
            if outputs & sizes:
                sizes.update(_operand_names(node, range(len(node.input))))
            if outputs & elements:
                static = SIZES.get(node.op_type, ())
                unread = (*static, *TYPES.get(node.op_type, ()))
                elements.update(_operand_names(node, (k for k in range(len(node.input)) if k not in unread)))
                sizes.update(_operand_names(node, static))
        return cls(frozenset(elements), frozenset(sizes))


def _operand_names(node: NodeProto, places: Iterable[int]) -> set[str]:
    """Return the operands at these places, except those left out and those of which only the type is read."""
    unread = TYPES.get(node.op_type, ())
    return {node.input[k] for k in places if k < len(node.input) and k not in unread and node.input[k]}
