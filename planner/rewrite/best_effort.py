"""Completion of options given for some ops to all ops, loop by loop, for named layouts that people write by hand.

It walks backward over all ops, then forward. An op keeps the axes it was given. Every other loop takes those of a
result dim that it indexes, or else of an operand dim, where they are free and may split it. What nothing reaches stays
whole. Unlike `planner.rewrite.propagation.propagate` it takes part of a sharding where the whole does not fit, and it
ignores annotations: it completes an intention, while propagation completes a specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from planner.ir.graph import Graph, Op
from planner.ir.indexing import Option, Rule, can_split
from planner.ir.mesh import Mesh
from planner.ir.notation import Term
from planner.ir.sharding import Axes, Sharding

Given = Mapping[str, Mapping[str, Axes]]
"""op id -> loop -> mesh axes."""
Split = tuple[Axes, ...]
"""The mesh axes of every dim of a value; none where nothing is known of it."""


def complete_options(graph: Graph, mesh: Mesh, given: Given, *, inputs: Mapping[str, Sharding]) -> dict[str, Option]:
    """Return an option for every op, given the loops of some ops and the layouts of graph inputs."""
    split: dict[str, Split] = {value: sharding.split_axes for value, sharding in inputs.items()}
    options = {op.id: _given_option(op, given.get(op.id, {})) for op in graph.ops}
    completion = _Completion(mesh)
    for op in reversed(graph.ops):
        option = options[op.id] = completion.extend(op.rule, options[op.id], _list_splits(op.values, split))
        for operand, value in enumerate(op.inputs if any(option) else ()):
            wanted = op.rule.operand_sharding(operand, option).split_axes
            # The first wish wins (the last reader's, as the walk is backward): later ones would undo what it decided.
            if value not in split and any(wanted):
                split[value] = wanted
    for op in graph.ops:
        splits = _list_splits((*op.values, *op.inputs), split)
        option = options[op.id] = completion.extend(op.rule, options[op.id], splits)
        for result, value in enumerate(op.values):
            split[value] = op.rule.result_sharding(result, option).split_axes if any(option) else ()
    return options


def _given_option(op: Op, given: Mapping[str, Axes]) -> Option:
    return tuple([given.get(loop.name, ()) for loop in op.rule.loops]) if given else ((),) * len(op.rule.loops)


def _list_splits(values: Iterable[str], split: Mapping[str, Split]) -> tuple[Split, ...]:
    return tuple([split.get(value, ()) for value in values])


@dataclass(frozen=True)
class _Completion:
    """Adds axes to options on a mesh. Ops of one rule, option and neighbours are looked at once."""

    mesh: Mesh
    known: dict[tuple[int, Option, tuple[Split, ...]], Option] = field(default_factory=dict)

    def extend(self, rule: Rule, option: Option, splits: tuple[Split, ...]) -> Option:
        """Return an option with the axes that the dims of some values have: of the results, or of the operands too."""
        key = id(rule), option, splits
        if key not in self.known:
            self.known[key] = self._extend(rule, option, zip((*rule.results, *rule.operands), splits, strict=False))
        return self.known[key]

    def _extend(self, rule: Rule, option: Option, terms: Iterable[tuple[Term, Split]]) -> Option:
        places = {loop.name: place for place, loop in enumerate(rule.loops)}
        taken = list(option)
        for term, split in terms:
            for dim, axes in zip(term, split, strict=False):
                if not axes or dim.joined or not dim.loops or taken[places[dim.loops[0]]]:
                    continue
                used = {axis for others in taken for axis in others}
                loop = places[dim.loops[0]]
                if not used & set(axes) and can_split(rule.loops[loop], self.mesh.group_size(axes)):
                    taken[loop] = axes
        return tuple(taken)
