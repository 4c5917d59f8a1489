"""Pins: the annotations that a plan must meet.

An output that takes the place of a graph input in the next run leaves the program in the sharding in which the input is
expected (`planner.ir.graph.Input`). So a pin of it as an output is one of the input.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from planner.errors import InvalidSharding
from planner.ir.graph import OUTPUTS, Annotation, Graph
from planner.ir.mesh import Mesh


def list_pins(graph: Graph, mesh: Mesh) -> dict[str, list[Annotation]]:
    """Return the pins of each value that has any.

    Raises InvalidSharding for a graph input that is pinned otherwise than the output that takes its place.
    """
    states = {entry.next: entry.id for entry in graph.inputs if entry.next is not None}
    pins: dict[str, list[Annotation]] = defaultdict(list)
    for pin in graph.annotations:
        if pin.required:
            is_state = pin.user == OUTPUTS and pin.value in states and not _is_read(graph, pin)
            held = replace(pin, value=states[pin.value], user=None, operand=None) if is_state else pin
            pins[held.value].append(held)
    for state in set(states.values()) & pins.keys():
        rank = len(graph.types[state].shape)
        asked = [pin.sharding.complete(rank, mesh) for pin in pins[state] if pin.user is None]
        if len(set(asked)) > 1:
            what = "pin of an output that is an input of the next step"
            raise InvalidSharding(what, where=f"input {state!r}", got=str(asked[1]), wanted=f"{asked[0]}, as the input")
    return pins


def _is_read(graph: Graph, pin: Annotation) -> bool:
    """Return whether a node has the id that stands for the outputs, and reads the value."""
    return any(op.id == pin.user and pin.value in op.inputs for op in graph.ops)
