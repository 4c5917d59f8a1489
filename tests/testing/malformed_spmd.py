"""Calls, right and wrong, as text: `mesh | op operands -> results | attributes | exception`.

A wrong call stands under the words of its error. All verifier conditions that upstream documents for the collectives
and queries are here, with those that we add; an exception names what upstream accepts and we do not.
"""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

from planner.spmd import LocalType
from tests.testing.upstream_spmd import Case

# What upstream lets through, and the item or decision by which it is refused here.
NEGATIVE_ROOT = "an index out of range is an error, never wrapped (erratum 4)"
FAR_SHIFT = "a shift that no device receives is out of range (erratum 4)"
NO_FUNCTION = "generic needs a function (item 25)"
NO_MEANING = "a reduction without a meaning over the element type (item 24)"
UNEVEN = "blocks of 7 over 3 are 3, 3, 1: what devices hold differs, so the dim is ? (block rule)"
EXCEPTIONS = {
    "NEGATIVE_ROOT": NEGATIVE_ROOT,
    "FAR_SHIFT": FAR_SHIFT,
    "NO_FUNCTION": NO_FUNCTION,
    "NO_MEANING": NO_MEANING,
    "UNEVEN": UNEVEN,
}

SPECIFIC_TEXT = """
dim 1 of the result (got 5; wanted 4
    1 | all_gather 3x4xf32 -> 3x5xf32 | mesh_axes=[0] gather_axis=0
    1 | gather 3x4xf32 -> 3x5xf32 | mesh_axes=[0] gather_axis=0 root=[0]
dim 1 of the result (got 5; wanted 8
    1x2 | all_gather 3x4xf32 -> 3x5xf32 | mesh_axes=[1] gather_axis=1
    1x2 | gather 3x4xf32 -> 3x5xf32 | mesh_axes=[1] gather_axis=1 root=[0]
dim 0 of the result (got 3; wanted ? (dynamic)
    1 | all_gather ?xf32 -> 3xf32 | gather_axis=0
    1 | gather ?xf32 -> 3xf32 | gather_axis=0 root=[]
    1x1 | all_to_all ?x6xi8 -> 3x?xi8 | mesh_axes=[1] split_axis=0 concat_axis=1
    3 | all_to_all 7x2xi8 -> 3x6xi8 | mesh_axes=[0] split_axis=0 concat_axis=1
dim 0 of the result (got 8; wanted ? (dynamic)
    ? | all_gather 4xf32 -> 8xf32 | mesh_axes=[0] gather_axis=0
dim 1 of the result (got 6; wanted ? (dynamic)
    ?x1 | all_to_all 3x6xi8 -> ?x6xi8 | mesh_axes=[0] split_axis=0 concat_axis=1
dim 1 of the result (got 3; wanted ? (dynamic)
    1x1 | all_to_all 3x?xi8 -> ?x3xi8 | mesh_axes=[1] split_axis=0 concat_axis=1
dim 1 of the result (got 7; wanted 6
    3 | all_to_all 3x2xi8 -> 1x7xi8 | mesh_axes=[0] split_axis=0 concat_axis=1
dim 0 of the result (got 2; wanted 1
    3 | all_to_all 3x2xi8 -> 2x6xi8 | mesh_axes=[0] split_axis=0 concat_axis=1
    3 | all_slice 3xf32 -> 2xf32 | mesh_axes=[0] slice_axis=0
    3 | scatter 3xf32 -> 2xf32 | mesh_axes=[0] scatter_axis=0 root=[1]
    3 | reduce_scatter 3xf32 -> 2xf64 | mesh_axes=[0] scatter_axis=0
dim 0 of the result (got 7; wanted ? (dynamic)
    3 | all_to_all 7xi8 -> 7xi8 | mesh_axes=[0] split_axis=0 concat_axis=0 | UNEVEN
    ? | all_slice 7xf32 -> 7xf32 | mesh_axes=[0] slice_axis=0
dim 0 of the result (got 2; wanted ? (dynamic)
    3 | all_slice ?xf32 -> 2xf32 | mesh_axes=[0] slice_axis=0
    3 | all_slice 4xf32 -> 2xf32 | mesh_axes=[0] slice_axis=0
    3 | scatter ?xf32 -> 2xf32 | scatter_axis=0 root=[]
    3 | reduce_scatter ?xf32 -> 2xf64 | scatter_axis=0
    3 | reduce ?xi8 -> 2xi8 | mesh_axes=[0] root=[0]
dim 1 of the result (got 4; wanted 5
    3 | scatter 6x5xi8 -> 2x4xi8 | mesh_axes=[0] scatter_axis=0 root=[0]
    3 | reduce_scatter 6x5xi8 -> 2x4xi8 | mesh_axes=[0] scatter_axis=0
dim 0 of the result (got ?; wanted 2
    3 | broadcast 2xi8 -> ?xi8 | mesh_axes=[0] root=[0]
invalid shift axis (got 1; wanted one of the grouping mesh axes [0]
    2x4 | shift 4xi8 -> 4xi8 | mesh_axes=[0] shift_axis=1 offset=1
shift offset is out of range (got 4; wanted -3 to 3
    2x4 | shift 4xi8 -> 4xi8 | mesh_axes=[1] shift_axis=1 offset=4 | FAR_SHIFT
shift offset is out of range (got -2; wanted -1 to 1
    2x4 | shift 4xi8 -> 4xi8 | mesh_axes=[0] shift_axis=0 offset=-2 | FAR_SHIFT
shift offset is out of range (got 5
    2x4 | shift 4xi8 -> 4xi8 | mesh_axes=[1] shift_axis=1 offset=5 | FAR_SHIFT
a generic reduction names no function
    2 | all_reduce 4xi8 -> 4xi8 | mesh_axes=[0] reduction=generic | NO_FUNCTION
    2 | reduce 4xi8 -> 4xi8 | mesh_axes=[0] reduction=generic root=[0] | NO_FUNCTION
    2 | reduce_scatter 4xi8 -> 2xi8 | mesh_axes=[0] reduction=generic scatter_axis=0 | NO_FUNCTION
reduction bitwise_or over an element type (got f32
    2 | all_reduce 4xi8 -> 4xf32 | mesh_axes=[0] reduction=bitwise_or | NO_MEANING
reduction sum over an element type (got bool
    2 | all_reduce 4xi8 -> 4xbool | mesh_axes=[0] reduction=sum | NO_MEANING
reduction kind (got median
    2 | all_reduce 4xi8 -> 4xi8 | mesh_axes=[0] reduction=median
operand has no dims
    2 | send i8 -> i8 | mesh_axes=[0] destination=[0]
    2 | recv i8 -> i8 | mesh_axes=[0] source=[0]
    2 | shift i8 -> i8 | mesh_axes=[0] shift_axis=0 offset=1
    2 | all_gather i8 -> i8 | mesh_axes=[0] gather_axis=0
    2 | gather i8 -> i8 | mesh_axes=[0] gather_axis=0 root=[0]
    2 | all_slice i8 -> i8 | mesh_axes=[0] slice_axis=0
    2 | scatter i8 -> i8 | mesh_axes=[0] scatter_axis=0 root=[0]
    2 | reduce_scatter i8 -> i8 | mesh_axes=[0] scatter_axis=0
    2 | all_to_all i8 -> i8 | mesh_axes=[0] split_axis=0 concat_axis=0
number of results (got 2; wanted 1
    2x4 | mesh_shape -> index, index | axes=[0]
    2x4 | process_multi_index -> index, index | axes=[0]
number of results (got 2; wanted 3
    1x2x3 | mesh_shape -> index, index
    1x2x3 | process_multi_index -> index, index
mesh axis of axes is out of bounds (got 2; wanted 0 to 1
    2x4 | mesh_shape -> index, index | axes=[0,2]
    2x4 | process_multi_index -> index, index | axes=[0,2]
mesh axis of axes is out of bounds (got -1; wanted 0 to 1
    2x4 | mesh_shape -> index, index | axes=[0,-1]
    2x4 | process_multi_index -> index, index | axes=[0,-1]
axes contains duplicate elements
    2x4 | mesh_shape -> index, index | axes=[1,1]
    2x4 | process_multi_index -> index, index | axes=[1,1]
undefined mesh (got nowhere; wanted one of m)
    2 | mesh_shape -> index | mesh=nowhere
    2 | process_multi_index -> index | mesh=nowhere
    2 | process_linear_index -> index | mesh=nowhere
"""

# Right calls that upstream refuses: a dim that is not divisible (its blocks follow the block rule).
WIDER_TEXT = """
3 | all_slice 7xf32 -> ?xf32 | mesh_axes=[0] slice_axis=0
3 | scatter 4xf32 -> ?xf32 | mesh_axes=[0] scatter_axis=0 root=[1]
3 | reduce_scatter 4xf32 -> ?xf64 | mesh_axes=[0] scatter_axis=0
"""
# Right calls, here and upstream.
RIGHT_TEXT = """
2x4 | shift 4xi8 -> 4xi8 | mesh_axes=[1] shift_axis=1 offset=-1
3 | all_gather 6xi8 -> ?xi8 | mesh_axes=[0] gather_axis=0
3 | all_to_all 7x2xi8 -> ?x6xi8 | mesh_axes=[0] split_axis=0 concat_axis=1
? | all_slice 7xi8 -> ?xi8 | mesh_axes=[0] slice_axis=0
? | broadcast 7xi8 -> 7xi8 | mesh_axes=[0] root=[9]
3 | broadcast 7xi8, index -> 7xi8 | mesh_axes=[0] root=[None]
3 | broadcast i8 -> i8 | mesh_axes=[0] root=[2]
3 | recv 7xi8 -> 7xi8 | mesh_axes=[0]
3 | all_reduce ?xi8 -> 2xi8 | mesh_axes=[0]
3 | all_reduce 2xi8 -> ?xi8 | mesh_axes=[0]
4x?x2 | mesh_shape -> index, index | axes=[2,1]
"""


class Fault(NamedTuple):
    """An invalid call, words of its error, and the reason if upstream accepts it."""

    words: str
    case: Case
    exception: str | None = None


def tensor(text: str) -> LocalType:
    """Parse a type such as `3x?xf32`."""
    if text == "index":
        return LocalType((), "index")
    *dims, dtype = text.split("x")
    return LocalType(tuple(None if dim == "?" else int(dim) for dim in dims), dtype)


def value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text


def parsed(line: str) -> tuple[Case, str | None]:
    mesh, call, *rest = (part.strip() for part in line.split("|"))
    attrs = dict(pair.split("=") for pair in rest[0].split()) if rest else {}
    op, _, types = call.partition(" ")
    given, made = (tuple(map(tensor, filter(None, side.strip().split(", ")))) for side in types.split("->"))
    case = Case(mesh, op, given, made, {key: value(text) for key, text in attrs.items()})
    return case, EXCEPTIONS[rest[1]] if len(rest) > 1 else None


def cases(text: str) -> list[Case]:
    return [parsed(line)[0] for line in text.strip().splitlines()]


def specific() -> list[Fault]:
    found, words = [], ""
    for line in SPECIFIC_TEXT.strip().splitlines():
        if line.startswith(" "):
            found.append(Fault(words, *parsed(line)))
        else:
            words = line
    return found


# A right call of every op on groups of 2 of a 2x4 mesh: what makes it wrong is added below.
RIGHT: dict[str, tuple[str, str, dict[str, Any]]] = {
    "all_gather": ("4xf32", "8xf32", {"gather_axis": 0}),
    "all_reduce": ("4xf32", "4xf64", {"reduction": "max"}),
    "all_slice": ("4xf32", "2xf32", {"slice_axis": 0}),
    "all_to_all": ("4x3xf32", "2x6xf32", {"split_axis": 0, "concat_axis": 1}),
    "broadcast": ("4xf32", "4xf32", {"root": [1]}),
    "gather": ("4xf32", "8xf32", {"gather_axis": 0, "root": [1]}),
    "recv": ("4xf32", "4xf32", {"source": [1]}),
    "reduce": ("4xf32", "4xf64", {"reduction": "min", "root": [1]}),
    "reduce_scatter": ("4xf32", "2xf64", {"scatter_axis": 0}),
    "scatter": ("4xf32", "2xf32", {"scatter_axis": 0, "root": [1]}),
    "send": ("4xf32", "4xf32", {"destination": [1]}),
    "shift": ("4xf32", "4xf32", {"shift_axis": 0, "offset": 1}),
}
DIMS = ("gather_axis", "slice_axis", "split_axis", "concat_axis", "scatter_axis")
PLACES = ("root", "source", "destination")
KEEPS_ELEMENT = [op for op in RIGHT if op not in ("all_reduce", "reduce", "reduce_scatter")]


def on_two(op: str) -> Case:
    given, made, attrs = RIGHT[op]
    return Case("2x4", op, (tensor(given),), (tensor(made),), {"mesh_axes": [0], **attrs})


def every_op() -> list[Fault]:
    """Return the faults that apply to every collective."""
    found = []
    for op in RIGHT:
        case = on_two(op)
        for words, change in (
            ("undefined mesh", {"mesh": "nowhere"}),
            ("mesh axis of mesh_axes is out of bounds (got 2; wanted 0 to 1", {"mesh_axes": [2]}),
            ("mesh axis of mesh_axes is out of bounds (got -1; wanted 0 to 1", {"mesh_axes": [-1]}),
            (
                "mesh_axes contains duplicate elements (got [0, 0]; wanted each mesh axis at most once",
                {"mesh_axes": [0, 0]},
            ),
        ):
            found.append(Fault(words, case._replace(attrs={**case.attrs, **change})))
        for key in (key for key in DIMS if key in case.attrs):
            for value in (case.operands[0].rank, -1):
                found.append(Fault(f"{key} is out of bounds (got {value}", changed(case, key, value)))
        for key in (key for key in PLACES if key in case.attrs):
            size = f"in-group device {key!r} has unexpected multi-index size (got 2; wanted 1"
            bounds = f"coordinate 0 of in-group device {key!r} is out of bounds (got {{}}; wanted 0 to 1"
            found.append(Fault(size, changed(case, key, [1, 1])))
            found.append(Fault(bounds.format(2), changed(case, key, [2])))
            found.append(Fault(bounds.format(-1), changed(case, key, [-1]), NEGATIVE_ROOT))
        if op in KEEPS_ELEMENT:
            other = LocalType((case.results or ())[0].shape, "i8")
            found.append(Fault("element type of the result (got i8; wanted f32", case._replace(results=(other,))))
        assert case.results
        longer = case.results[0].with_dim(0, 99)
        found.append(Fault("dim 0 of the result (got 99", case._replace(results=(longer,))))
        flat = LocalType((*case.results[0].shape, 1), case.results[0].dtype)
        found.append(Fault("rank of the result", case._replace(results=(flat,))))
    return found


def changed(case: Case, key: str, value: Any) -> Case:
    return case._replace(attrs={**case.attrs, key: value})


FAULTS = [*every_op(), *specific()]
WIDER = cases(WIDER_TEXT)
ACCEPTED = [*(on_two(op) for op in RIGHT), *cases(RIGHT_TEXT)]
