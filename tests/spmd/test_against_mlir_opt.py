"""Random calls, right and wrong, are accepted here exactly where the real tools accept them, with listed exceptions."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from planner.spmd import LocalType, SpmdCall
from planner.spmd.folding import is_identity
from tests.testing.malformed_spmd import PLACES, RIGHT, on_two
from tests.testing.random_calls import is_accepted, is_explained, random_call
from tests.testing.upstream_spmd import VERSIONS, accepted, missing, module

CASES = 600


@pytest.mark.parametrize("version", VERSIONS)
def test_random_calls_are_judged_as_upstream_judges_them(version: int) -> None:
    if reason := missing(version):
        pytest.skip(reason)
    cases = [random_call(seed) for seed in range(CASES)]
    ours = [is_accepted(case) for case in cases]
    theirs = accepted(cases, version)
    odd = [(c, a, b) for c, a, b in zip(cases, ours, theirs, strict=True) if a != b and not is_explained(c, a)]
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
