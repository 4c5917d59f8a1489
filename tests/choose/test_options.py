"""What an op may be chosen to do."""

from __future__ import annotations

import pytest

from planner.choose.options import options
from planner.model.binding import bind
from planner.model.indexing import LoopKind
from planner.model.mesh import Mesh
from planner.model.sharding import Reduction

# rule with a loop that passes other terms than those of sums; the same without
RULES = [
    ("... -> ...; commutes max 0", "... -> ..."),
    ("..., ... -> ...; linear 0, 1; commutes product 0+1", "..., ... -> ...; linear 0, 1"),
]


@pytest.mark.parametrize(("rule", "plain"), RULES)
def test_options_pass_partial_sums_on_and_nothing_else(rule: str, plain: str) -> None:
    mesh, shapes = Mesh.parse("2x2"), [(8, 8)] * (plain.split("->")[0].count(",") + 1)
    bound, without = bind(rule, shapes, [(8, 8)]), bind(plain, shapes, [(8, 8)])
    assert [option[: len(without.loops)] for option in options(bound, mesh)] == list(options(without, mesh))
    assert all(option[-1] == () for option in options(bound, mesh))


@pytest.mark.parametrize("kind", [kind for kind in Reduction if kind is not Reduction.SUM])
def test_terms_come_in_and_leave_by_the_reduction_of_the_loop(kind: Reduction) -> None:
    rule = bind(f"x, x -> x; commutes {kind} 0+1; linear 0+1", [(8,)] * 2, [(8,)])
    assert [loop.reduction for loop in rule.loops if loop.kind is LoopKind.LINEAR] == [Reduction.SUM, kind]
    option = ((0,), (), (1,))
    shown = f"[[0]] partial={kind}[1]"
    assert [str(rule.operand_sharding(i, option)) for i in (0, 1)] == [shown] * 2
    assert str(rule.result_sharding(0, option)) == shown
    assert not rule.allows(((), (0,), (1,)), Mesh.parse("2x2"))
