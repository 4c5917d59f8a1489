"""Messages (conformance 53): matched by source; unmatched and ambiguous ones are reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.errors import RunFailed
from planner.run.spmd_executor import run_spmd
from planner.spmd import INDEX, Cluster, LocalType, SpmdBuilder
from tests.testing.spmd_programs import answers

F32 = LocalType((2,), "f32")
Messages = list[tuple[str, dict[str, Any]]]
TALKS: list[tuple[str, Messages, str]] = [
    ("nobody sends", [("recv", {"source": [0], "only": [[1]]})], "device 1 waits for a message that is never sent"),
    ("nobody receives", [("send", {"destination": [1], "only": [[0]]})], "message never received"),
    (
        "another sends",
        [("send", {"destination": [1], "only": [[2]]}), ("recv", {"source": [0], "only": [[1]]})],
        "got from device 2 (%1 = send(%x)); wanted a message from device 0",
    ),
    (
        "all send to one, as the plain text of the example has it",
        [("send", {"destination": [1]}), ("recv", {"source": [0]})],
        "device 0 waits for a message that is never sent",
    ),
    (
        "each waits for the other",
        [("recv", {}), ("send", {"destination": [1], "only": [[0]]})],
        "waits for a message that is never sent (got no message; wanted a message from any device",
    ),
]


@pytest.mark.parametrize(("name", "calls", "words"), TALKS, ids=[name for name, _, _ in TALKS])
def test_messages_that_do_not_match_are_reported(name: str, calls: Messages, words: str) -> None:
    """conformance 53: reported, never waited for"""
    build = SpmdBuilder({"m": Cluster.parse("3")}, "m")
    x = build.argument("x", F32)
    for op, attrs in calls:
        build.call(op, x, mesh_axes=[0], **attrs)
    with pytest.raises(RunFailed) as caught:
        run_spmd(build.program([x]), {"x": [np.zeros(2, np.float32)] * 3})
    assert words in str(caught.value)


def test_several_devices_may_be_on_one_path() -> None:
    """conformance 53: 0 and 1 send to 2, which takes them by source, whichever came first"""
    build = SpmdBuilder({"m": Cluster.parse("3")}, "m")
    x = build.argument("x", F32)
    build.call("send", x, mesh_axes=[0], destination=[2], only=[[0], [1]])
    results = [build.call("recv", x, mesh_axes=[0], source=[source], only=[[2]])[0] for source in (1, 0)]
    run = run_spmd(build.program(results), {"x": [np.full(2, n, np.float32) for n in range(3)]})
    assert (answers(run), answers(run, 1)) == ([None, None, [1, 1]], [None, None, [0, 0]])


# who sends and receives in order: (send, from, to), (recv, on, from or any), a collective of all
Talk = list[tuple[Any, ...]]
# conformance 53: two messages of which a recv from any source may take either, whatever the order in which devices run
RACES: list[tuple[str, Talk]] = [
    ("both are under way", [("send", 0, 2), ("send", 1, 2), ("recv", 2, None), ("recv", 2, None)]),
    ("the recv stands first", [("recv", 2, None), ("send", 0, 2), ("send", 1, 2), ("recv", 2, 1)]),
    ("the recv stands between", [("send", 0, 2), ("recv", 2, None), ("send", 1, 2), ("recv", 2, None)]),
    ("the later one is named", [("send", 1, 2), ("recv", 2, None), ("send", 0, 2), ("recv", 2, 0)]),
    (
        "the recv is done before the later one is sent",
        [("send", 0, 2), ("send", 2, 1), ("recv", 2, None), ("recv", 1, 2), ("send", 1, 2), ("recv", 2, None)],
    ),
    (
        "another's recv is known to be done",
        [("send", 0, 2), ("recv", 2, None), ("send", 1, 0), ("recv", 0, None), ("send", 1, 2), ("recv", 2, None)],
    ),
]
# conformance 53: the same recvs, when one sender alone can be meant
SURE: list[tuple[str, Talk, list[int]]] = [
    ("two of one sender", [("send", 0, 2), ("send", 0, 2), ("recv", 2, None), ("recv", 2, None)], [0, 0]),
    ("the other is taken by its source", [("send", 0, 2), ("send", 1, 2), ("recv", 2, 1), ("recv", 2, None)], [1, 0]),
    (
        "a collective stands between",
        [("send", 0, 2), ("recv", 2, None), ("all",), ("send", 1, 2), ("recv", 2, None)],
        [0, 1],
    ),
    (
        "the second sender was told",
        [("send", 0, 2), ("recv", 2, None), ("send", 2, 1), ("recv", 1, None), ("send", 1, 2), ("recv", 2, None)],
        [0, 1],
    ),
    (
        "the second sender was told by a third",
        [
            ("send", 0, 2),
            ("recv", 2, None),
            ("send", 2, 0),
            ("recv", 0, 2),
            ("send", 0, 1),
            ("recv", 1, None),
            ("send", 1, 2),
            ("recv", 2, None),
        ],
        [0, 1],
    ),
]


def heard_by_2(talk: Talk) -> list[Any]:
    """Run it on devices 0 to 2, each of which sends its own number; what device 2 receives, in order."""
    build = SpmdBuilder({"m": Cluster.parse("3")}, "m")
    x = build.argument("x", LocalType((1,), "i32"))
    taken = []
    for what, *who in talk:
        if what == "all":
            build.call("all_reduce", x, mesh_axes=[0])
        elif what == "send":
            build.call("send", x, mesh_axes=[0], destination=[who[1]], only=[[who[0]]])
        else:
            source = None if who[1] is None else [who[1]]
            taken += [build.call("recv", x, mesh_axes=[0], source=source, only=[[who[0]]])[0]] * (who[0] == 2)
    run = run_spmd(build.program(taken), {"x": [np.array([n], np.int32) for n in range(3)]})
    return [answers(run, place)[2][0] for place in range(len(taken))]


@pytest.mark.parametrize(("name", "talk"), RACES, ids=[name for name, _ in RACES])
def test_a_recv_that_may_take_either_of_two_messages_names_both_senders(name: str, talk: Talk) -> None:
    with pytest.raises(RunFailed, match=r"from any source on device 2 .*device 0 \(.*send.* and device 1 \(.*send"):
        heard_by_2(talk)


@pytest.mark.parametrize(("name", "talk", "heard"), SURE, ids=[name for name, _, _ in SURE])
def test_a_recv_from_any_source_takes_the_one_message_that_can_be_meant(
    name: str, talk: Talk, heard: list[int]
) -> None:
    assert heard_by_2(talk) == heard


def test_a_message_of_another_type_is_reported() -> None:
    """conformance 53"""
    build = SpmdBuilder({"m": Cluster.parse("2")}, "m")
    x, y = build.argument("x", F32), build.argument("y", LocalType((3,), "f32"))
    build.call("send", x, mesh_axes=[0], destination=[1], only=[[0]])
    build.call("recv", y, mesh_axes=[0], source=[0], only=[[1]])
    given: dict[str, Any] = {"x": [np.zeros(2, np.float32)] * 2, "y": [np.zeros(3, np.float32)] * 2}
    with pytest.raises(RunFailed, match=r"does not fit on device 1 \(got float32\[2\]; wanted float32\[3\]\)"):
        run_spmd(build.program([x]), given)


def test_every_device_may_name_its_own_destination() -> None:
    """conformance 53: dynamic coordinates, a ring in one send and one recv"""
    build = SpmdBuilder({"m": Cluster.parse("3")}, "m")
    x, following = build.argument("x", LocalType((1,), "i32")), build.argument("next", INDEX)
    build.call("send", x, following, mesh_axes=[0], destination=[None])
    got = build.call("recv", x, mesh_axes=[0])
    given: dict[str, Any] = {
        "x": [np.array([n], np.int32) for n in range(3)],
        "next": [np.int64((d + 1) % 3) for d in range(3)],
    }
    assert answers(run_spmd(build.program(got), given)) == [[2], [0], [1]]
