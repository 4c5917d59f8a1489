"""Random calls of the dialect, right and wrong, and where our verdict differs from upstream's by decision."""

from __future__ import annotations

import math
import random
from typing import Any

from planner.errors import InvalidProgram
from planner.spmd import LocalType
from tests.testing.malformed_spmd import DIMS, PLACES, RIGHT
from tests.testing.spmd_programs import build
from tests.testing.upstream_spmd import Case

MESHES = ("2", "3", "2x4", "3x?", "?", "1x2", "2x3x2")
KINDS = ("sum", "max", "bitwise_and", "generic")


def random_call(seed: int) -> Case:
    """A call of which every part is right in most cases."""
    draw = random.Random(seed)
    mesh = draw.choice(MESHES)
    sizes = [None if text == "?" else int(text) for text in mesh.split("x")]
    op = draw.choice(list(RIGHT))
    axes = draw.sample(range(len(sizes)), draw.randint(0, len(sizes)))
    shape = tuple(draw.choice([2, 3, 4, 6, 12, None]) for _ in range(draw.choice([0, 1, 2, 2, 3, 3])))
    attrs: dict[str, Any] = {"mesh_axes": axes}
    for key in RIGHT[op][2]:
        if key in DIMS:
            attrs[key] = draw.randrange(max(1, len(shape)))
        elif key in PLACES:
            attrs[key] = [draw.randint(-draw.randint(0, 1), (sizes[axis] or 3) - draw.randint(0, 1)) for axis in axes]
        elif key == "reduction":
            attrs[key] = draw.choice(KINDS)
        elif key == "shift_axis":
            attrs |= {key: draw.randrange(len(sizes)), "offset": draw.randint(-3, 3)}
    element = draw.choice(["f32", "i8"])
    group = [sizes[axis] for axis in axes]
    made = tuple(_size(draw, size, group) for size in shape)
    kind = element if draw.random() < 0.8 else "f64"
    return Case(mesh, op, (LocalType(shape, element),), (LocalType(made, kind),), attrs)


def _size(draw: random.Random, size: int | None, group: list[int | None]) -> int | None:
    """The operand's, gathered or sliced; sometimes unknown, rarely wrong."""
    if draw.random() < 0.25:
        return None
    n = 2 if None in group else math.prod(each or 1 for each in group)
    return draw.choice([size, size, None if size is None else size * n, (size or 7) // n])


def is_accepted(case: Case) -> bool:
    try:
        build(case)
    except InvalidProgram:
        return False
    return True


def is_explained(case: Case, here: bool) -> bool:
    """Return whether a difference is by decision: an item of the table of malformed calls, or of the wider ones."""
    attrs, (operand,) = case.attrs, case.operands
    sizes = [None if text == "?" else int(text) for text in case.mesh.split("x")]
    group = [sizes[axis] for axis in attrs["mesh_axes"]]
    n = None if None in group else math.prod(each or 1 for each in group)
    if here:
        cut = next((attrs[key] for key in ("slice_axis", "scatter_axis") if key in attrs), None)
        return cut is not None and n is not None and (operand.shape[cut] or 0) % n != 0  # the block rule
    negative = any(place < 0 for key in PLACES for place in attrs.get(key, ()))
    wraps = attrs.get("rotate", False)
    far = "offset" in attrs and not wraps and abs(attrs["offset"]) >= (sizes[attrs["shift_axis"]] or 99)
    assert case.results
    meaningless = attrs.get("reduction") == "bitwise_and" and case.results[0].dtype != "i8"
    same_dim = case.op == "all_to_all" and attrs["split_axis"] == attrs["concat_axis"]
    uneven = same_dim and (n is None or (operand.shape[attrs["split_axis"]] or 0) % n != 0)
    return negative or far or meaningless or uneven or attrs.get("reduction") == "generic"
