"""JAX's random numbers: imported programs draw the bits that JAX draws, and a mask costs one op that reads the key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from planner import Request, pipeline
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.stablehlo import import_stablehlo, import_text, trace_function
from planner.ir.mesh import Mesh
from planner.run.executor import run_whole
from planner.run.validate import validate
from tests.testing.hardware import EAGER

jax: Any = pytest.importorskip("jax", reason="jax is not installed: pip install shardplan[jax]")
jnp, draw = jax.numpy, jax.random

pytestmark = pytest.mark.frameworks("jax")

SHAPE = (8, 16)
X = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


def dropout(key: Any, x: Any) -> Any:
    """Drop a tenth; a key for the next step is the second result."""
    now, later = draw.split(key)
    return jnp.where(draw.bernoulli(now, 0.9, x.shape), x / 0.9, 0.0), later


def dropped_by_scan(key: Any, x: Any) -> Any:
    return jax.lax.scan(lambda c, k: (dropout(k, c)[0], None), x, draw.split(key, 3))[0]


PROGRAMS: dict[str, tuple[Callable[..., Any], bool]] = {
    "dropout": (dropout, True),
    "dropout in a scan": (dropped_by_scan, True),
    "uniform": (lambda key, x: draw.uniform(key, SHAPE, minval=-2, maxval=3), True),
    "normal": (lambda key, x: draw.normal(key, (4, 1, 3)), True),
    "uniform of bf16": (lambda key, x: draw.uniform(key, SHAPE, jnp.bfloat16).astype(jnp.float32), True),
    "truncated normal": (lambda key, x: draw.truncated_normal(key, -2, 2, SHAPE), True),
    "gumbel": (lambda key, x: draw.gumbel(key, (16,)), True),
    "exponential": (lambda key, x: draw.exponential(key, SHAPE), True),
    "categorical": (lambda key, x: draw.categorical(key, x), True),
    "whole numbers": (lambda key, x: draw.randint(key, SHAPE, -3, 100), True),
    "bits of 8": (lambda key, x: draw.bits(key, SHAPE, jnp.uint8), True),
    "a permutation": (lambda key, x: draw.permutation(key, x), True),
    "a single number": (lambda key, x: draw.uniform(key) * x, False),
    "a folded key": (lambda key, x: draw.bits(draw.fold_in(key, x.astype(int).sum()), SHAPE), True),
    "a key for every row": (lambda key, x: jax.vmap(lambda k: draw.normal(k, (16,)))(draw.split(key, 8)), False),
    "more than are known at import": (lambda key, x: draw.bits(key, (1 << 17, 2)).max(0), True),
}
"""Functions of a key and x, and whether all their draws are `random_bits`."""


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("raw", [False, True], ids=["key", "raw key"])
def test_an_imported_program_draws_what_jax_draws(name: str, raw: bool) -> None:
    function, fused = PROGRAMS[name]
    key = draw.PRNGKey(7) if raw else draw.key(7)
    trace = trace_function(function, key, X, next={})
    made = import_text(trace.text, name)
    leaves = [np.asarray(draw.key_data(key)), X]
    arrays = {argument: leaves[leaf] for argument, leaf in zip(made.arguments, trace.kept, strict=True)}
    graph = load_graph(GraphDocument.model_validate(made.document), Mesh.parse("1"))
    values = run_whole(graph, arrays | dict(made.constants), np, precision="f32")
    for output, wanted in zip(graph.outputs, jax.tree.leaves(jax.jit(function)(key, X)), strict=True):
        plain = draw.key_data(wanted) if jax.dtypes.issubdtype(wanted.dtype, jax.dtypes.prng_key) else wanted
        np.testing.assert_allclose(values[output], np.asarray(plain), rtol=2e-5, atol=2e-6)
    assert ("random_bits" in {op.op for op in graph.ops}) == fused


@pytest.mark.parametrize("name", ["dropout", "categorical", "a key for every row"])
def test_a_plan_of_random_numbers_gives_on_the_mesh_what_the_graph_gives_whole(name: str) -> None:
    trace = trace_function(PROGRAMS[name][0], draw.key(7), X, next={})
    mesh = Mesh.parse("dp=2,tp=4")
    graph = load_graph(GraphDocument.model_validate(import_stablehlo(trace.text, name)), mesh)
    plan = pipeline.plan(graph, mesh, EAGER, request=Request(gap=0.3, time_limit_s=20.0))
    assert plan.choice is not None
    assert plan.analysis is not None
    assert any(axes for option in plan.choice.options.values() for axes in option)
    verdict = validate(plan.analysis.program, "numpy", "none")
    assert (verdict.verdict, verdict.not_run) == ("equal", ())


def test_a_function_that_only_has_the_generators_name_is_walked() -> None:
    @jax.jit  # type: ignore[untyped-decorator]
    def threefry2x32(a: Any, b: Any, c: Any, d: Any) -> Any:
        return a ^ c, b ^ d

    words = [np.full(SHAPE, number, np.uint32) for number in range(4)]
    document = import_stablehlo(trace_function(lambda *given: threefry2x32(*given), *words, next={}).text, "t")
    assert {node["op"] for node in document["nodes"]} == {"bitwise_xor"}
