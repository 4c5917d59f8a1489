"""Sharding propagation exactly as the mesh dialect defines it: some annotations in, all annotations out.

Propagation walks backward over all ops, then forward (or as `traversal` says). An op that has no option yet takes the
one that `planner.rewrite.propagation.op_option` prefers, given the definitions of its operands, their annotations for
this use, the definitions of its results and, where a result has none, the use of it that was annotated last. Then the
missing annotations around it are filled in: every use and definition as the op reads and leaves it, reduction loops
as partial axes. What was annotated stays; where the op disagrees, its operand or result is resharded.

An option given for an op wins. Constants (ops without operands) are whole unless their definition is annotated; their
uses split them. Nothing is optimised, and sizes matter only where a compound dim must divide.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from planner.errors import InvalidGraph, InvalidRequest, InvalidSharding, ShardplanError
from planner.ir.execution_order import Reader
from planner.ir.graph import Graph, Op
from planner.ir.indexing import Option
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.rewrite.annotations import Note, collect_notes
from planner.rewrite.propagation.op_option import KnownShardings, check_option, find_preferred_option
from planner.rewrite.propagation.propagated import PropagatedShardings

Traversal = Literal["backward-forward", "forward-backward", "forward", "backward"]


def propagate(
    graph: Graph,
    mesh: Mesh,
    options: Mapping[str, Option] | None = None,
    *,
    traversal: Traversal = "backward-forward",
) -> PropagatedShardings:
    """Return every sharding that follows from the graph's annotations and the options of some ops.

    `options` are by op id, beside those that ops carry themselves. Raises InvalidSharding for annotations that are
    undefined or that contradict each other around an op, InvalidGraph for an option of an unknown op, and
    InvalidRequest for an unknown traversal.
    """
    if traversal not in get_args(Traversal):
        raise InvalidRequest("unknown traversal", got=traversal, wanted=f"one of {', '.join(get_args(Traversal))}")
    walk = _Propagation(graph, mesh)
    walk.set_options({op.id: op.option for op in graph.ops if op.option is not None} | dict(options or {}))
    for direction in traversal.split("-"):
        walk.visit(reversed(range(len(graph.ops))) if direction == "backward" else range(len(graph.ops)))
    return walk.finish()


@dataclass
class _Propagation:
    graph: Graph
    mesh: Mesh
    options: dict[str, Option] = field(default_factory=dict)
    preferred: dict[tuple[int, tuple[KnownShardings, ...], tuple[KnownShardings, ...]], Option | None] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        given = collect_notes(self.graph, self.mesh)
        self.definitions = dict(given.definitions)
        self.uses: dict[str, dict[Reader, Note]] = defaultdict(dict)
        for reader, note in given.uses.items():
            self.uses[self._value_read(reader)][reader] = note

    def _value_read(self, reader: Reader) -> str:
        if reader.op is None:
            return self.graph.outputs[reader.operand]
        return self.graph.ops[reader.op].inputs[reader.operand]

    def set_options(self, options: Mapping[str, Option]) -> None:
        places = {op.id: place for place, op in enumerate(self.graph.ops)}
        for name, option in options.items():
            if name not in places:
                raise InvalidGraph("option of no node", got=name, wanted="the id of a node")
            place = places[name]
            try:
                checked = check_option(self.graph.ops[place].rule, self.mesh, option)
            except ShardplanError as error:
                raise error.at(f"option of node {name!r}") from None
            self.annotate(place, checked)

    def visit(self, places: Iterable[int]) -> None:
        for place in places:
            op = self.graph.ops[place]
            if op.id not in self.options and (option := self._option(place, op)) is not None:
                self.annotate(place, option)

    def _option(self, place: int, op: Op) -> Option | None:
        operands = tuple(self._operand(value, Reader(place, i)) for i, value in enumerate(op.inputs))
        results = tuple(self._result(value, used=bool(op.inputs)) for value in op.values)
        key = (id(op.rule), operands, results)
        try:
            if key not in self.preferred:
                self.preferred[key] = find_preferred_option(op.rule, self.mesh, operands, results=results)
        except ShardplanError as error:
            raise error.at(f"node {op.id!r}") from None
        return self.preferred[key]

    def _operand(self, value: str, reader: Reader) -> KnownShardings:
        use, definition = self.uses[value].get(reader), self.definitions.get(value)
        if use and use.required:
            return KnownShardings(use.sharding)
        return KnownShardings(implied=tuple(note.sharding for note in (use, definition) if note))

    def _result(self, value: str, used: bool) -> KnownShardings:
        definition = self.definitions.get(value)
        if definition and definition.required:
            return KnownShardings(definition.sharding)
        uses = list(self.uses[value].values()) if used else []
        last = next(reversed([note for note in uses if note.required] or uses), None)
        return KnownShardings(implied=tuple(note.sharding for note in (definition, last) if note))

    def annotate(self, place: int, option: Option) -> None:
        """Fill in what is missing around an op. A hint that the op does not follow is replaced."""
        op = self.graph.ops[place]
        self.options[op.id] = option
        for operand, value in enumerate(op.inputs):
            reader, read = Reader(place, operand), op.rule.operand_sharding(operand, option)
            use = self.uses[value].get(reader)
            if use is None or (not use.required and use.sharding != read):
                self.uses[value].pop(reader, None)
            self.uses[value][reader] = use if use and use.required else Note(read)
        for result, value in enumerate(op.values):
            left, definition = op.rule.result_sharding(result, option), self.definitions.get(value)
            if definition and definition.required:
                _check_partial(definition.sharding, left, f"node {op.id!r}: result {result}")
            else:
                self.definitions[value] = Note(left)

    def finish(self) -> PropagatedShardings:
        for place, op in enumerate(self.graph.ops):
            if not op.inputs and op.id not in self.options and any(self.uses[value] for value in op.values):
                self.annotate(place, ((),) * len(op.rule.loops))
        return PropagatedShardings(
            self.graph,
            {value: note.sharding for value, note in self.definitions.items()},
            {reader: note.sharding for uses in self.uses.values() for reader, note in uses.items()},
            self.options,
        )


def _check_partial(wanted: Sharding, left: Sharding, where: str) -> None:
    """Check that a definition is only partial as its op leaves it, since no collective makes a tensor partial."""
    if not set(wanted.partial) <= set(left.partial) or (wanted.partial and wanted.reduction is not left.reduction):
        what = "conflict: the op does not leave the result partial over these axes"
        raise InvalidSharding(what, where=where, got=str(left), wanted=str(wanted))
