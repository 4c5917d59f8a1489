"""The document of a model of the zoo while it grows: parameters named by their module.

Parameters that are stored in another dtype than the ops compute in are cast before their first use, and their gradients
are cast back (Micikevicius et al., "Mixed precision training", ICLR 2018).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.frontends.graph_builder import DocumentValue, GraphBuilder, build_document
from planner.ir.graph import TensorType

VERSION = "1"


@dataclass
class KeyValueCache:
    """The keys and values that attention keeps for later tokens.

    tokens   those of earlier tokens that there is room for
    length   how many of these are there; None: the graph computes all tokens itself
    written  the keys and values that the graph computes, in the order of the layers
    """

    tokens: int = 0
    length: DocumentValue | None = None
    written: list[DocumentValue] = field(default_factory=list)


class ModelBuilder(GraphBuilder):
    """What has been written so far; `dtype` is that of activations, `prefix` starts every node's id.

    `parameter_dtype` is that of the parameters as they are stored, else `dtype`.

    `next` maps the id of an input to the output that takes its place in the next run. `backward_rules` holds the rules
    of values whose op alone does not say how its gradient is computed (`planner.frontends.zoo.backward_ops`). `cache`
    is there where keys and values are kept for later tokens.
    """

    def __init__(self, dtype: str, prefix: str = "", parameter_dtype: str | None = None) -> None:
        super().__init__(prefix=prefix)
        self.dtype = dtype
        self.parameter_dtype = parameter_dtype or dtype
        self.next: dict[str, DocumentValue] = {}
        self.backward_rules: dict[str, Callable[[Any], Any]] = {}
        self.cache: KeyValueCache | None = None

    @property
    def wide(self) -> str:
        """The dtype of losses and optimizer states."""
        return "f64" if self.dtype == "f64" else "f32"

    @property
    def parameters(self) -> list[DocumentValue]:
        """The inputs of kind parameter, in order."""
        return [self.find_value(name) for name, entry in self.inputs.items() if entry["kind"] == "parameter"]

    def input(
        self, name: str, shape: Sequence[int], kind: str = "parameter", *, dtype: str | None = None
    ) -> DocumentValue:
        """Add a value from outside, named below the scope; return it in the dtype that ops compute in."""
        path = f"{self.scope}.{name}" if self.scope else name
        if dtype is not None or kind != "parameter":
            return self.add_input(path, kind, TensorType(tuple(shape), dtype or self.dtype))
        return self.cast(self.add_input(path, kind, TensorType(tuple(shape), self.parameter_dtype)), self.dtype)

    def document(self, name: str, outputs: Sequence[DocumentValue]) -> dict[str, Any]:
        """Return the graph document as JSON values."""
        return build_document(
            name,
            ("shardplan.zoo", VERSION),
            inputs=self.inputs.values(),
            nodes=self.nodes,
            outputs=[value.id for value in outputs],
            next_values={name: value.id for name, value in self.next.items()},
        )
