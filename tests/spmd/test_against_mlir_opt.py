"""Random calls, right and wrong, are accepted here exactly where the real tools accept them, with listed exceptions."""

from __future__ import annotations

import math
import os
import random
import re
import subprocess
from typing import Any

import pytest

from planner.errors import InvalidProgram
from planner.spmd import LocalType, SpmdCall
from planner.spmd.folding import is_identity
from tests.testing.malformed_spmd import DIMS, PLACES, RIGHT, on_two
from tests.testing.spmd_programs import build
from tests.testing.upstream_spmd import VERSIONS, Case, accepted, missing, module

CASES = 600
MESHES = ("2", "3", "2x4", "3x?", "?", "1x2", "2x3x2")
KINDS = ("sum", "max", "bitwise_and", "generic")


def random_case(seed: int) -> Case:
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


def explained(case: Case, here: bool) -> bool:
    """Differences by decision; each is an item of the table of malformed calls or of the wider ones."""
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
    uneven = same_dim and n is not None and (operand.shape[attrs["split_axis"]] or 0) % n != 0
    return negative or far or meaningless or uneven or attrs.get("reduction") == "generic"


@pytest.mark.parametrize("version", VERSIONS)
def test_random_calls_are_judged_as_upstream_judges_them(version: int) -> None:
    if reason := missing(version):
        pytest.skip(reason)
    cases = [random_case(seed) for seed in range(CASES)]
    ours = [is_accepted(case) for case in cases]
    theirs = accepted(cases, version)
    odd = [(c, a, b) for c, a, b in zip(cases, ours, theirs, strict=True) if a != b and not explained(c, a)]
    assert not odd, "\n".join(f"{case}: here {here}, upstream {there}" for case, here, there in odd[:10])
    assert 100 <= sum(theirs) <= CASES - 100


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("op", [op for op in RIGHT if op != "shift"])  # a shift names an axis, so it has some
def test_a_collective_without_mesh_axes_folds_where_upstream_folds_it(version: int, op: str) -> None:
    """conformance 9"""
    if reason := missing(version):
        pytest.skip(reason)
    case = on_two(op)
    attrs = {**case.attrs, "mesh_axes": []} | {key: [] for key in PLACES if key in case.attrs}
    accumulators = ("f32", "f64") if op in ("all_reduce", "reduce", "reduce_scatter") else ("f32",)
    for kind in accumulators:
        plain = case._replace(operands=(LocalType((4,), "f32"),), results=(LocalType((4,), kind),), attrs=attrs)
        if op == "all_to_all":
            plain = plain._replace(attrs={**attrs, "concat_axis": 0})
        text = module(plain, 0, version).replace("{\n  %0", "-> tensor<4x" + kind + "> {\n  %0")
        text = text.replace("  return", f"  return %0 : tensor<4x{kind}>")
        done = subprocess.run(
            [VERSIONS[version], "--canonicalize"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "LLVM_DISABLE_SYMBOLIZATION": "1"},
        )
        folded = not re.search(rf"\.{op} ", done.stdout)
        assert plain.results
        call = SpmdCall(op, ("x",), ("y",), plain.results, plain.attrs)
        assert is_identity(call, plain.operands[0]) == folded, (kind, done.stdout)
