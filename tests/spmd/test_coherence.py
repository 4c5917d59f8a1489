"""Identity, purity and coherence: which calls may be removed, and that a call is removed on all paths or on none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.errors import InvalidProgram
from planner.run.spmd_executor import run_spmd
from planner.spmd import SPMD_OPS, Cluster, LocalType, SpmdBuilder, SpmdCall
from planner.spmd.coherence import check_coherence
from planner.spmd.folding import is_identity, is_pure, unread_instructions
from tests.testing.spmd_programs import answers

COLLECTIVES: list[tuple[str, dict[str, Any]]] = [
    ("all_gather", {"gather_axis": 0}),
    ("all_reduce", {}),
    ("all_slice", {"slice_axis": 0}),
    ("all_to_all", {"split_axis": 0, "concat_axis": 0}),
    ("broadcast", {"root": []}),
    ("gather", {"gather_axis": 0, "root": []}),
    ("recv", {"source": []}),
    ("reduce", {"root": []}),
    ("reduce_scatter", {"scatter_axis": 0}),
    ("scatter", {"scatter_axis": 0, "root": []}),
    ("send", {"destination": []}),
]


@pytest.mark.parametrize(("op", "attrs"), COLLECTIVES, ids=[op for op, _ in COLLECTIVES])
def test_without_mesh_axes_a_collective_is_its_operand(op: str, attrs: dict[str, Any]) -> None:
    """conformance 9: groups of one; eleven ops fold when the types match"""
    kind = LocalType((4,), "f32")
    build = SpmdBuilder({"m": Cluster.parse("2")}, "m")
    x = build.argument("x", kind)
    if op == "recv":
        build.call("send", x, destination=[])
    results = build.call(op, x, **attrs)
    (call,) = [done for done in build.instructions if isinstance(done, SpmdCall) and done.results == results]
    assert is_identity(call, kind)
    if op != "send":
        given = [np.arange(4, dtype=np.float32), np.ones(4, np.float32)]
        assert answers(run_spmd(build.program(results), {"x": given})) == [each.tolist() for each in given]
    if SPMD_OPS[op].element == "accumulator":
        assert not is_identity(SpmdCall(op, ("x",), ("y",), (LocalType((4,), "f64"),), attrs), kind)


@pytest.mark.parametrize("op", ["send", "recv"])
def test_a_message_on_the_path_of_some_devices_is_not_its_operand(op: str) -> None:
    """conformance 9: on the other devices its result is undefined"""
    kind, end = LocalType((4,), "f32"), {"send": "destination", "recv": "source"}[op]
    everywhere = SpmdCall(op, ("x",), ("y",), (kind,), {"mesh_axes": [], end: []})
    assert is_identity(everywhere, kind)
    assert not is_identity(SpmdCall(op, ("x",), ("y",), (kind,), {**everywhere.attrs, "only": [[]]}), kind)


def test_a_shift_does_not_fold() -> None:
    """conformance 9"""
    call = SpmdCall(
        "shift", ("x",), ("y",), (LocalType((4,), "f32"),), {"mesh_axes": [0], "shift_axis": 0, "offset": 0}
    )
    assert not is_identity(call, LocalType((4,), "f32"))


def test_group_collectives_are_pure_and_messages_are_not() -> None:
    """conformance 10"""
    assert {name for name, row in SPMD_OPS.items() if not row.is_pure} == {"send", "recv"}


def with_everything_unread() -> SpmdBuilder:
    build = SpmdBuilder({"m": Cluster.parse("2")}, "m")
    x = build.argument("x", LocalType((2,), "f32"))
    (gathered,) = build.call("all_gather", x, mesh_axes=[0], gather_axis=0)
    build.call("all_slice", gathered, mesh_axes=[0], slice_axis=0)
    (sent,) = build.call("all_reduce", x, mesh_axes=[0])
    build.call("send", sent, mesh_axes=[0], destination=[1], only=[[0]])
    build.call("recv", x, mesh_axes=[0], only=[[1]])
    return build


def test_a_dead_collective_may_be_removed_and_a_dead_message_stays() -> None:
    """conformance 10 and 11: what goes, goes from the one list, so on every device"""
    build = with_everything_unread()
    program = build.program(["x"])
    assert unread_instructions(program) == (0, 1)
    assert [is_pure(done) for done in program.instructions] == [True, True, True, False, False]
    build.instructions = [
        done for place, done in enumerate(program.instructions) if place not in unread_instructions(program)
    ]
    left = build.program(["x"])
    assert unread_instructions(left) == ()
    given = {"x": [np.ones(2, np.float32)] * 2}
    assert answers(run_spmd(left, given)) == answers(run_spmd(program, given))


def test_a_collective_removed_on_one_path_must_vanish_on_all() -> None:
    """conformance 11: the same collective sequence on every device"""
    whole = with_everything_unread().instructions
    without_gather, without_send = (
        whole[1:],
        [done for done in whole if not (isinstance(done, SpmdCall) and done.op == "send")],
    )
    check_coherence([whole, whole])
    check_coherence([without_gather, without_gather])
    check_coherence([whole, without_send])  # paths may differ in messages, which the executor matches
    for lists in ([whole, without_gather], [without_gather, whole], [whole, whole, []]):
        with pytest.raises(InvalidProgram, match="devices reach different collectives"):
            check_coherence(lists)


@pytest.mark.parametrize(("op", "attrs"), COLLECTIVES, ids=[op for op, _ in COLLECTIVES])
def test_only_a_message_may_stand_on_the_path_of_some_devices(op: str, attrs: dict[str, Any]) -> None:
    """conformance 11: every device of a group reaches a pure collective"""
    build = SpmdBuilder({"m": Cluster.parse("2")}, "m")
    x = build.argument("x", LocalType((4,), "f32"))
    if not SPMD_OPS[op].is_pure:
        build.call(op, x, **attrs, only=[[]])
        return
    with pytest.raises(InvalidProgram, match="every device reaches it"):
        build.call(op, x, **attrs, only=[[]])
