"""The document of a model of the zoo while it grows: parameters named by their module, one dtype for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from planner.frontends.graph_builder import DocumentValue, GraphBuilder, build_document
from planner.ir.graph import TensorType

VERSION = "1"


class ModelBuilder(GraphBuilder):
    """What has been written so far; `dtype` is that of parameters and activations, `prefix` starts every node's id.

    `next` maps the id of an input to the output that takes its place in the next run. `backward_rules` holds the rules
    of values whose op alone does not say how its gradient is computed (`planner.frontends.zoo.backward_ops`).
    """

    def __init__(self, dtype: str, prefix: str = "") -> None:
        super().__init__(prefix=prefix)
        self.dtype = dtype
        self.next: dict[str, DocumentValue] = {}
        self.backward_rules: dict[str, Callable[[Any], Any]] = {}

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
        """Add a value from outside, named below the scope."""
        path = f"{self.scope}.{name}" if self.scope else name
        return self.add_input(path, kind, TensorType(tuple(shape), dtype or self.dtype))

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
