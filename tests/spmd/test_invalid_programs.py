"""Programs that break a rule which upstream cannot express or does not check: each is refused with a message."""

from __future__ import annotations

import re
from typing import Any

import pytest

from planner.errors import InvalidMesh, InvalidProgram, ShardplanError
from planner.ir.graph import Op, TensorType
from planner.ops import bind_op
from planner.spmd import INDEX, Cluster, LocalOp, LocalType, LocalValue, SpmdBuilder, SpmdCall, SpmdProgram

X = LocalType((4, 6), "f32")
CLUSTERS = {
    "m": Cluster.parse("2x3"),
    "far": Cluster.parse("6", first=6),
    "small": Cluster.parse("2", first=12),
    "open": Cluster.parse("2x?"),
}
HALO: dict[str, Any] = {"split_axes": [[0], [1]], "source_halo_sizes": [0, 0, 0, 0]}

# conformance 55 (halos), 56 and 57 (permutes), 11 (coherence), 25 (generic), 44 (blocks), 53 (messages)
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("update_halo", {**HALO, "destination_halo_sizes": [1, 1, 1]}, "number of destination_halo_sizes (got 3; wanted 4"),
    ("update_halo", {**HALO, "destination_halo_sizes": [1, -1, 1, 1]}, "destination_halo_sizes is negative"),
    (
        "update_halo",
        {**HALO, "destination_halo_sizes": [1, 5, 1, 1]},
        "halo of dim 0 is wider than the neighbour's core (got [1, 5]; wanted at most 4",
    ),
    (
        "update_halo",
        {"split_axes": [[0]], "source_halo_sizes": [3, 2], "destination_halo_sizes": [0, 0]},
        "source halo of dim 0 is larger than the shard (got [3, 2]; wanted at most 4",
    ),
    ("update_halo", {**HALO, "split_axes": [[0], [0]]}, "missing attribute (got none; wanted destination_halo_sizes"),
    (
        "update_halo",
        {**HALO, "split_axes": [[0], [0]], "destination_halo_sizes": [0] * 4},
        "split_axes contains duplicate elements",
    ),
    (
        "update_halo",
        {**HALO, "split_axes": [[0], [2]], "destination_halo_sizes": [0] * 4},
        "mesh axis of split_axes is out of bounds (got 2",
    ),
    (
        "update_halo",
        {**HALO, "split_axes": [[0], [], [1]], "destination_halo_sizes": [0] * 4},
        "split_axes has more lists than dims (got 3; wanted at most 2",
    ),
    (
        "update_halo",
        {**HALO, "split_axes": [[-1]], "destination_halo_sizes": [0, 0]},
        "mesh axis of split_axes is out of bounds (got -1",
    ),
    ("update_halo", {**HALO, "destination_halo_sizes": [0] * 4, "mesh": "nowhere"}, "undefined mesh (got nowhere"),
    (
        "update_halo",
        {**HALO, "source_halo_sizes": [0, -1, 0, 0], "destination_halo_sizes": [0] * 4},
        "source_halo_sizes is negative",
    ),
    ("collective_permute", {"mesh_axes": [2], "pairs": []}, "mesh axis of mesh_axes is out of bounds (got 2"),
    ("collective_permute", {"mesh_axes": [-1], "pairs": []}, "mesh axis of mesh_axes is out of bounds (got -1"),
    ("collective_permute", {"mesh_axes": [0, 0], "pairs": []}, "mesh_axes contains duplicate elements"),
    ("collective_permute", {"pairs": [], "mesh": "nowhere"}, "undefined mesh (got nowhere"),
    ("collective_permute", {}, "collective_permute (got neither; wanted either pairs or a target mesh"),
    ("collective_permute", {"pairs": [], "target": "far"}, "collective_permute (got both"),
    ("collective_permute", {"mesh_axes": [0], "target": "far"}, "mesh axes of a collective_permute between meshes"),
    ("collective_permute", {"target": "nowhere"}, "undefined mesh (got nowhere; wanted one of m, far, small, open"),
    ("collective_permute", {"target": "small"}, "devices of the target mesh (got 2; wanted 6"),
    ("collective_permute", {"mesh_axes": [1], "pairs": [(0, 3)]}, "pair of a collective_permute (got [0, 3]"),
    ("collective_permute", {"mesh_axes": [1], "pairs": [(0, 1, 2)]}, "pair of a collective_permute (got [0, 1, 2]"),
    (
        "collective_permute",
        {"mesh_axes": [1], "pairs": [(0, 1), (2, 1)]},
        "target of a collective_permute repeated (got [1, 1]",
    ),
    (
        "collective_permute",
        {"mesh_axes": [1], "pairs": [(0, 1), (0, 2)]},
        "source of a collective_permute repeated (got [0, 0]",
    ),
    ("all_slice", {"mesh_axes": [1], "slice_axis": 1, "block": 0}, "block size (got 0; wanted 1 or more"),
    ("all_slice", {"mesh_axes": [1], "slice_axis": 1, "block": 1}, "block size (got 1; wanted at least ceil(6 / 3)"),
    ("send", {"mesh_axes": [1], "destination": [0], "only": []}, "attribute only (got []"),
    ("send", {"mesh_axes": [1], "destination": [0], "only": [[3]]}, "coordinate 0 of in-group device 'only'"),
    ("send", {"mesh_axes": [1], "destination": [0], "only": [[None]]}, "attribute only (got none"),
    ("send", {"mesh_axes": [1]}, "missing attribute (got none; wanted destination"),
    ("all_gather", {"gather_axis": 0, "only": [[0]]}, "unknown attribute (got only; wanted one of mesh_axes"),
    ("all_gather", {"gather_axis": True}, "attribute gather_axis (got True; wanted a whole number"),
    ("all_gather", {"gather_axis": 0, "mesh_axes": 1}, "attribute mesh_axes (got 1; wanted a list of whole numbers"),
    ("all_gather", {"gather_axis": 0, "mesh_axes": ["0"]}, "attribute mesh_axes (got 0; wanted a whole number"),
    ("shift", {"mesh_axes": [1], "shift_axis": 1, "offset": 1, "rotate": 1}, "attribute rotate (got 1"),
    ("all_reduce", {"reduction": "sum", "reducer": "f"}, "reducer given for a reduction that has its own (got sum"),
    ("all_reduce", {"reduction": "generic", "reducer": 3}, "attribute reducer (got 3; wanted a name"),
    ("broadcast", {"mesh_axes": [1], "root": [None]}, "number of operands (got 1; wanted 1 and 1 for dynamic numbers"),
    ("process_linear_index", {}, "number of operands (got 1; wanted 0 and 0"),
    ("all_scatter", {}, "unknown op (got all_scatter; wanted one of all_gather"),
]  # fmt: skip


def program(*instructions: SpmdCall | LocalOp, outputs: tuple[str, ...] = (), mesh: str | None = "m") -> SpmdProgram:
    return SpmdProgram(CLUSTERS, (("x", LocalValue(X, "m")),), instructions, outputs, mesh)


@pytest.mark.parametrize(("op", "attrs", "words"), REFUSED, ids=[f"{op} {words[:30]}" for op, _, words in REFUSED])
def test_a_call_that_breaks_a_rule_is_refused(op: str, attrs: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidProgram, match=re.escape(words)) as caught:
        program(SpmdCall(op, ("x",), ("y",), (X,), attrs))
    assert str(caught.value).startswith(f"%y = {op}(%x): ")


def test_dynamic_numbers_are_integers_without_dims() -> None:
    for kind in (LocalType((), "f32"), LocalType((1,), "index")):
        build = SpmdBuilder({"m": Cluster.parse("2")}, "m")
        x, root = build.argument("x", X), build.argument("root", kind)
        with pytest.raises(InvalidProgram, match="dynamic number"):
            build.call("broadcast", x, root, mesh_axes=[0], root=[None])


IDENTITY = SpmdCall("all_reduce", ("x",), ("y",), (X,))


@pytest.mark.parametrize(
    ("instructions", "outputs", "words"),
    [
        ((SpmdCall("all_reduce", ("z",), ("y",), (X,)),), (), "use of an undefined value (got %z"),
        ((IDENTITY, IDENTITY), (), "value defined twice (got %y"),
        ((SpmdCall("all_reduce", ("x",), ("x",), (X,)),), (), "value defined twice (got %x"),
        ((IDENTITY,), ("w",), "use of an undefined value (got %w"),
        ((SpmdCall("all_reduce", ("x",), ("y", "z"), (X, X)),), (), "number of results (got 2; wanted 1"),
        ((SpmdCall("all_reduce", ("x",), ("y",), (X,), {"mesh": "far"}),), (), "%x is not on every device (got mesh m"),
    ],
)
def test_values_are_made_once_and_before_they_are_read(
    instructions: tuple[SpmdCall, ...], outputs: tuple[str, ...], words: str
) -> None:
    with pytest.raises(InvalidProgram, match=re.escape(words)):
        program(*instructions, outputs=outputs)


def test_a_default_mesh_must_exist() -> None:
    """conformance 5"""
    with pytest.raises(InvalidProgram, match="undefined mesh"):
        program(mesh="nowhere")
    with pytest.raises(InvalidProgram, match="undefined mesh"):
        SpmdProgram(CLUSTERS, (("x", LocalValue(X, "nowhere")),), (), ("x",))


def negate(shape: tuple[int, ...], option: tuple[tuple[int, ...], ...], *operands: str) -> LocalOp:
    """Two parallel loops and the linear one."""
    kind = TensorType(shape, "f32")
    op = Op("n", "negate", ("o",), (kind,), bind_op("negate", (kind,), (kind,), attrs={}, notation=None))
    return LocalOp(op, (*option, ()), operands, ("y",))


LOCAL = [
    (negate((8, 18), ((0,), ()), "x"), "shape of operand 0 (got f32[4,6]; wanted [4,18]"),
    (negate((8, 18), ((0,), (1,)), "x", "x"), "operands and results (got 2 and 1; wanted 1 and 1"),
    (negate((1, 6), ((0,), ()), "x"), "option the op does not allow"),
    (negate((8, 18), ((0,), (0,)), "x"), "option the op does not allow"),
    (negate((8, 18), ((2,), ()), "x"), "option the op does not allow"),
    (negate((8, 18), ((0,),), "x"), "option the op does not allow"),
]


@pytest.mark.parametrize(("wrong", "words"), LOCAL)
def test_a_local_op_reads_its_part_of_the_operands(wrong: LocalOp, words: str) -> None:
    program(negate((8, 18), ((0,), (1,)), "x"))
    with pytest.raises(InvalidProgram, match=re.escape(words)):
        program(wrong)


def test_a_local_op_over_a_mesh_of_unknown_size_is_refused() -> None:
    """conformance 2"""
    split = negate((8, 18), ((1,), ()), "x")
    with pytest.raises(InvalidMesh, match="unknown"):
        SpmdBuilder({"open": Cluster.parse("2x?")}, "open").local(split.op, "x", option=split.option)


@pytest.mark.parametrize("shape", [(-1,), (1 << 41,), (1,) * 17])
def test_a_type_has_sensible_dims(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidProgram, match="got"):
        LocalType(shape, "f32")
    with pytest.raises(InvalidProgram, match="unknown dtype"):
        LocalType((1,), "f33")


@pytest.mark.parametrize("devices", [(0, 0), (0,), (0, -1), (0, 1, 2)])
def test_a_cluster_has_one_device_a_position(devices: tuple[int, ...]) -> None:
    with pytest.raises(ShardplanError, match="device"):
        Cluster(CLUSTERS["small"].mesh, devices)
    with pytest.raises(InvalidMesh, match="devices of a mesh of unknown size"):
        Cluster(CLUSTERS["open"].mesh, devices)


def test_a_program_is_printed_call_by_call() -> None:
    build = SpmdBuilder({"m": Cluster.parse("2x3")}, "m")
    x, root = build.argument("x", LocalType((2, None), "f32")), build.argument("root", INDEX)
    (whole,) = build.call("all_gather", x, mesh_axes=[0, 1], gather_axis=0)
    (one,) = build.call("broadcast", whole, root, mesh_axes=[1], root=[None])
    assert str(build.program([one])).splitlines() == [
        "mesh @m 0=2,1=3",
        "argument %x: f32[2,?] on @m",
        "argument %root: index[] on @m",
        "%2 = all_gather(%x) mesh_axes=[0,1] gather_axis=0 : f32[12,?]",
        "%3 = broadcast(%2, %root) mesh_axes=[1] root=[?] : f32[12,?]",
        "return %3",
    ]
