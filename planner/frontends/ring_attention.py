"""Lets the attention of a graph run as a ring: its ops get the attribute `ring` (`planner.ops.ring_attention`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import InvalidRequest
from planner.ops import OPS


def offer_rings(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a graph document in which blocks may travel while an op runs, wherever its row can do that.

    A mask that is the same for all queries keeps an op from it. Raises InvalidRequest where no op can.
    """
    able = {name for name, row in OPS.items() if row.ring is not None}
    nodes = [
        {**node, "attrs": {**node.get("attrs", {}), "ring": True}} if node["op"] in able else node
        for node in document["nodes"]
    ]
    if not any(node["op"] in able for node in nodes):
        where, wanted = f"graph {document['name']!r}", f"an op of {', '.join(sorted(able))}"
        raise InvalidRequest("ring attention", where=where, got="no attention", wanted=wanted)
    return {**document, "nodes": nodes}
