"""Attention over a sequence that devices hold in blocks, causal, with windows, shared keys and uneven blocks."""

from __future__ import annotations

from dataclasses import dataclass

from planner.choose.hardware import load_profile
from planner.ir.graph import Annotation, Graph
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.pipeline import plan
from planner.planning.plan_types import Plan, Request
from tests.testing.graphs import Sketch

BATCH, HEAD = 2, 8


@dataclass(frozen=True, slots=True)
class SplitSequence:
    """Keys have `heads` heads, each read by `members` heads of queries; the mesh has `devices` on one axis."""

    heads: int
    members: int
    sequence: int
    devices: int
    causal: bool = True
    window: int = 0

    def graph(self) -> Graph:
        """Return attention and its gradient; every input and output is pinned in blocks of the sequence."""
        s = Sketch()
        own, shared = ((BATCH, self.heads, count, self.sequence, HEAD) for count in (self.members, 1))
        attrs = {"causal": self.causal, "window": self.window}
        query, key, value, grad = (s.input(*shape) for shape in (own, shared, shared, own))
        mixed = s.op("scaled_dot_product_attention", [query, key, value], own, **attrs)
        operands = [query, key, value, grad]
        into = s.op("scaled_dot_product_attention_backward", operands, own, shared, shared, **attrs)
        results = [(mixed, own), (into, own), (f"{into}:1", shared), (f"{into}:2", shared)]
        outputs = [s.op("negate", [name], shape) for name, shape in results]
        blocks = Sharding(((), (), (), (0,), ()))
        pins = tuple(Annotation(name, blocks) for name in (query, key, value, grad, *outputs))
        return s.graph(*outputs, annotations=pins)

    def plan(self) -> Plan:
        """Return the plan that receives the fewest bytes."""
        request = Request(gap=0.0, objective="bytes", deterministic=True)
        return plan(self.graph(), Mesh.parse(str(self.devices)), load_profile("h100-sxm"), request=request)


CASES = (
    SplitSequence(heads=4, members=1, sequence=16, devices=4),
    SplitSequence(heads=4, members=1, sequence=16, devices=4, causal=False),
    SplitSequence(heads=8, members=2, sequence=16, devices=4, window=5),
    SplitSequence(heads=4, members=2, sequence=18, devices=4, window=3),
    SplitSequence(heads=7, members=1, sequence=11, devices=3),
)
