"""The result of propagation: the sharding of every definition and use that was reached, and every op's option."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from planner.ir.execution_order import Reader, find_readers
from planner.ir.graph import OUTPUTS, Annotation, Graph, Op
from planner.ir.indexing import Option
from planner.ir.sharding import Sharding


@dataclass(frozen=True, eq=False)
class PropagatedShardings:
    """Annotated definitions by value, uses by reader, and options by op; what was not reached is absent.

    The methods also answer for what is absent. An op without an option runs whole. A value without a definition is as
    its op leaves it, a graph input as the last of its annotated uses wants it (a constant: whole), and an output as it
    is defined.

    An op reads operand i as `operand_sharding(i, option)` of its rule. Where the annotated use differs, because
    annotations around the op disagree, the value is resharded on the way from its definition.
    """

    graph: Graph
    definitions: Mapping[str, Sharding]
    uses: Mapping[Reader, Sharding]
    options: Mapping[str, Option]

    def option(self, op: Op) -> Option:
        return self.options.get(op.id, ((),) * len(op.rule.loops))

    def definition(self, value: str) -> Sharding:
        """Return the sharding in which a value is defined, before anyone reads it."""
        if value in self.definitions:
            return self.definitions[value]
        if value in self._producers:
            op, result = self._producers[value]
            return op.rule.result_sharding(result, self.option(op))
        if value in self._input_layouts:
            return Sharding(self._input_layouts[value].split_axes)
        return Sharding.replicated(len(self.graph.types[value].shape))

    def use(self, reader: Reader) -> Sharding:
        """Return the sharding in which a reader is given its value."""
        if reader in self.uses:
            return self.uses[reader]
        if reader.op is None:
            return self.definition(self.graph.outputs[reader.operand])
        op = self.graph.ops[reader.op]
        return op.rule.operand_sharding(reader.operand, self.option(op))

    @cached_property
    def _producers(self) -> dict[str, tuple[Op, int]]:
        return {value: (op, result) for op in self.graph.ops for result, value in enumerate(op.values)}

    @cached_property
    def _input_layouts(self) -> dict[str, Sharding]:
        """The last annotated use of every graph input except constants."""
        by_value = find_readers(self.graph)
        changing = [entry.id for entry in self.graph.inputs if entry.kind != "constant"]
        return {value: self.uses[r] for value in changing for r in by_value.get(value, []) if r in self.uses}

    def annotations(self) -> tuple[Annotation, ...]:
        """Return the completed annotations of the graph.

        An annotation is for one operand where the reads of one user differ.
        """
        defined = [Annotation(value, sharding) for value, sharding in self.definitions.items()]
        return (*defined, *(one for uses in self._by_user().values() for one in self._use_annotations(uses)))

    def _by_user(self) -> dict[tuple[str, int | None], list[Reader]]:
        readers: dict[tuple[str, int | None], list[Reader]] = {}
        for value, who in find_readers(self.graph).items():
            for reader in who:
                readers.setdefault((value, reader.op), []).append(reader)
        return readers

    def _use_annotations(self, readers: Sequence[Reader]) -> list[Annotation]:
        """Return the annotations for all reads of one value by one user."""
        place, graph = readers[0].op, self.graph
        op = None if place is None else graph.ops[place]
        value = (op.inputs if op else graph.outputs)[readers[0].operand]
        given = {reader.operand: self.uses[reader] for reader in readers if reader in self.uses}
        user = op.id if op else OUTPUTS
        if len(given) == len(readers) and len(set(given.values())) == 1:
            return [Annotation(value, next(iter(given.values())), user=user)]
        return [Annotation(value, sharding, user=user, operand=operand) for operand, sharding in given.items()]

    def __str__(self) -> str:
        """Format a line for every op and for every annotation, in program order."""
        lines = [f"%{i.id} to {self.definitions[i.id]}" for i in self.graph.inputs if i.id in self.definitions]
        for place, op in enumerate(self.graph.ops):
            lines += self._reads(place, op.inputs)
            lines.append(f"{', '.join(f'%{v}' for v in op.values)} = {op.op}({', '.join(f'%{v}' for v in op.inputs)})")
            lines += [f"%{value} to {self.definitions[value]}" for value in op.values if value in self.definitions]
        return "\n".join([*lines, *self._reads(None, self.graph.outputs)])

    def _reads(self, place: int | None, values: tuple[str, ...]) -> list[str]:
        given = [(value, self.uses.get(Reader(place, operand))) for operand, value in enumerate(values)]
        return [f"%{value} to {sharding} for users" for value, sharding in given if sharding is not None]
