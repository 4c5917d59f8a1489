"""A few cases of each part of the conformance benchmark, and the failures that it once found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks import conformance
from benchmarks.conformance import (
    FAULTS,
    Outcome,
    check_program,
    convolution_outcome,
    graph_outcome,
    malformed_outcome,
    spmd_outcome,
)
from planner.errors import InvalidSharding, RunFailed
from planner.ir.mesh import Mesh
from planner.rewrite.propagation.propagate import propagate
from tests.testing.annotated_notation import elementwise, materialized, of
from tests.testing.seeds import seeds
from tests.testing.spmd_programs import run_one

MESH = Mesh.parse("2x2")
SMALL = {"texts": 5, "damaged": 40, "annotations": 4, "programs": 4}


@pytest.mark.parametrize("one", [graph_outcome, convolution_outcome, spmd_outcome])
def test_random_graphs_and_programs_are_right(one: Callable[[int], Outcome]) -> None:
    total = Outcome()
    for seed in seeds(40, 3000):
        total.add(one(seed))
    assert not total.failures


def test_malformed_inputs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "MALFORMED", SMALL)
    found = malformed_outcome()
    assert not found.failures
    assert found.counts["refused"] > 100
    assert not any(found.counts[fault] for fault in FAULTS)


# conformance 24
@pytest.mark.parametrize("kind", ["sum", "product", "max", "min", "average"])
def test_an_argument_that_comes_in_terms_is_the_argument(kind: str) -> None:
    graph = elementwise(of("i0", f"[[0],[]] {kind}[1]"))
    program = materialized(graph, MESH, propagate(graph, MESH))
    assert program.arguments[0][1].partial == (1,)
    check_program(program, 0)


@pytest.mark.parametrize("kind", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bits_of_floats_are_no_partial_tensor(kind: str) -> None:
    graph = elementwise(of("i0", f"[[0],[]] {kind}[1]"))
    with pytest.raises(InvalidSharding, match=r"'i0': reduction bitwise_\w+ .*\(got f32; wanted integers or bool\)"):
        propagate(graph, MESH)


@pytest.mark.parametrize("new", [[1, 1], [0, 2]])
def test_a_shard_smaller_than_its_source_halo_is_reported(new: list[int]) -> None:
    attrs: dict[str, Any] = {"split_axes": [[0]], "source_halo_sizes": [1, 1], "destination_halo_sizes": new}
    with pytest.raises(RunFailed, match="source halo of dim 0 is larger than the shard on device 0"):
        run_one("2", "update_halo", [np.arange(1), np.arange(4)], **attrs)
