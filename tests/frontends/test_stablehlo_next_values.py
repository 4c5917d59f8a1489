"""Results of a JAX step that are recognised as the next values of its arguments, and the layouts that both get."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import pytest

from planner.errors import InvalidMesh, InvalidRequest
from planner.frontends.stablehlo import trace_function
from planner.planning.plan_types import Request
from tests.testing.jax_libraries import run_library

jax = pytest.importorskip("jax", reason="jax is not installed: pip install shardplan[jax]")
jnp = jax.numpy
one_line = import_module("planner.integrations.jax")
traced = import_module("planner.frontends.stablehlo.traced_function")

pytestmark = pytest.mark.frameworks("jax")

X = jax.ShapeDtypeStruct((64, 64), jnp.float32)
TREE = {"w": X, "b": jax.ShapeDtypeStruct((64,), jnp.float32)}
STATE = (TREE, {"mu": TREE, "nu": TREE})


def add_one(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf + 1, tree)


def squares(tree: Any, x: Any) -> Any:
    return jnp.sum((x @ tree["w"] + tree["b"]) ** 2)


RECOGNIZED = [
    ("parameters returned alone", lambda p, x: add_one(p), (TREE, X), {0: 0, 1: 1}),
    ("parameters beside a loss", lambda p, x: (x.sum(), add_one(p)), (TREE, X), {0: 1, 1: 2}),
    ("state within a tree", lambda p, x: {"new": add_one(p), "loss": x.sum()}, (TREE, X), {0: 1, 1: 2}),
    ("parameters and state that holds trees like them", lambda p, s: (add_one(p), add_one(s)), STATE, None),
    ("two trees alike, in order", lambda p, q: (add_one(p), add_one(q)), (TREE, TREE), None),
    ("a tree within an argument", lambda s, x: (x, add_one(s["p"])), ({"p": TREE, "key": X}, X), {1: 1, 2: 2}),
    ("an array is an input", lambda x, w: x @ w, (X, X), {}),
    ("another dtype", lambda p: jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), p), (TREE,), {}),
    ("unchanged and unread", lambda p, x: ({"w": p["w"], "b": p["b"] * 0}, x), (TREE, X), {0: 0, 1: 1}),
]


@pytest.mark.parametrize(
    ("function", "arguments", "wanted"), [row[1:] for row in RECOGNIZED], ids=[row[0] for row in RECOGNIZED]
)
def test_a_tree_of_results_like_an_argument_is_its_next_value(function: Any, arguments: Any, wanted: Any) -> None:
    with warnings.catch_warnings(action="error"):
        found = trace_function(function, *arguments).next_outputs
    assert found == (dict(enumerate(range(len(jax.tree.leaves(arguments))))) if wanted is None else wanted)


UNCLEAR = [
    ("two results", lambda p: (add_one(p), add_one(p)), (TREE,), "result 0, result 1 may be .* of argument 0"),
    ("two arguments", lambda p, q: add_one(p), (TREE, TREE), "the result may be .* argument 0, argument 1"),
    ("an array's step", lambda w, x: w - jax.grad(lambda w: jnp.sum(w @ x))(w), (X, X), "the result"),
]


@pytest.mark.parametrize(
    ("function", "arguments", "message"), [row[1:] for row in UNCLEAR], ids=[row[0] for row in UNCLEAR]
)
def test_an_ambiguous_next_value_is_named_in_a_warning_and_an_explicit_next_settles_it(
    function: Any, arguments: Any, message: str
) -> None:
    with pytest.warns(traced.NextValueWarning, match=message):
        assert trace_function(function, *arguments).next_outputs == {}
    with warnings.catch_warnings(action="error"):
        assert trace_function(function, *arguments, next={}).next_outputs == {}


def test_next_names_the_pair() -> None:
    found = trace_function(lambda p, q: (jnp.zeros(()), add_one(q), add_one(p)), TREE, TREE, next={1: 1, 0: 2})
    assert found.next_outputs == {2: 1, 3: 2, 0: 3, 1: 4}


BAD: list[tuple[Any, str]] = [
    ([0], r"next \(got \[0\]; wanted a dict, \{number of the argument: number of the result\}\)"),
    ({2: 0}, "next: argument .got 2; wanted the number of one of 2 arguments"),
    ({0: 2}, "next: result .got 2; wanted the number of one of 2 results"),
    ({0: 1}, "next: result 1 as argument 0: structure, shapes or dtypes differ"),
    ({0: 0, 1: 0}, "another result for every argument"),
]


@pytest.mark.parametrize(("asked", "message"), BAD)
def test_a_wrong_next_is_refused(asked: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        trace_function(lambda p, x: (add_one(p), x), TREE, X, next=asked)


def update(tree: Any, x: Any) -> Any:
    value, gradients = jax.value_and_grad(squares)(tree, x)
    return jax.tree.map(lambda weight, gradient: weight - gradient, tree, gradients), value


def test_a_step_without_donation_has_one_layout_for_parameters_and_its_cost_is_that_of_donation() -> None:
    big = {"w": jax.ShapeDtypeStruct((512, 2048), jnp.float32), "b": jax.ShapeDtypeStruct((2048,), jnp.float32)}
    x = jax.ShapeDtypeStruct((1024, 512), jnp.float32)
    request = Request(memory_limit_bytes=9_000_000)
    planned = one_line.plan(update, big, x, mesh="dp=2,tp=4", request=request)
    assert planned.in_shardings[0] == planned.out_shardings[0]
    assert any(not each.is_fully_replicated for each in jax.tree.leaves(planned.in_shardings[0]))
    donated = one_line.plan(jax.jit(update, donate_argnums=0), big, x, mesh="dp=2,tp=4", request=request)
    assert planned.plan.certificate.objective_s == donated.plan.certificate.objective_s


def test_arguments_unread_or_returned_unchanged_keep_their_layout() -> None:
    tree = {"kept": X, "unread": X, "new": X}
    step = lambda p, x: ({"kept": p["kept"], "unread": x + 1, "new": p["new"] @ x @ p["kept"]}, x.sum())  # noqa: E731
    planned = one_line.plan(step, tree, X, mesh="dp=2,tp=4")
    assert planned.in_shardings[0] == planned.out_shardings[0]


def test_a_plan_for_a_mesh_without_devices_cannot_be_run() -> None:
    planned = one_line.plan(update, TREE, X, mesh="dp=2")
    with pytest.raises(InvalidMesh, match="mesh without devices"):
        planned.jit(update)


STATIC: list[Mapping[str, Any]] = [
    {"static_argnums": 0},
    {"static_argnums": (0,)},
    {"static_argnums": -3},
    {"static_argnames": "times"},
    {"static_argnames": ["times"], "donate_argnums": 2},
]


@pytest.mark.parametrize("options", STATIC, ids=str)
def test_static_arguments_have_no_sharding_and_are_passed_on(options: Mapping[str, Any]) -> None:
    def scaled(times: int, tree: Any, x: Any) -> Any:
        return x @ tree["w"] * times

    tree, x = {"w": jnp.ones((8, 8)), "none": None}, jnp.ones((4, 8))
    planned = one_line.plan(jax.jit(scaled, **options), 3, tree, x, mesh=jax.make_mesh((1,), ("dp",)))
    assert len(planned.in_shardings) == 2
    assert float(planned.jit(scaled, **options)(3, tree, x)[0, 0]) == 24
    with pytest.raises(InvalidRequest, match="name others in static_argnums"):
        planned.jit(scaled)(3, tree, x)


@pytest.mark.parametrize("count", [1, 8])
def test_random_keys_are_whole_in_their_words(count: int) -> None:
    """A key has the shape of an array of keys, without its words."""

    def step(tree: Any, keys: Any, x: Any) -> Any:
        kept = jax.vmap(lambda key, row: jnp.where(jax.random.bernoulli(key, 0.5, row.shape), row, 0))(keys, x)
        return add_one(tree), jax.vmap(lambda key: jax.random.split(key)[0])(keys), kept

    keys = jax.random.split(jax.random.key(0), count)
    tree = {"w": jnp.ones((4, 8))}
    planned = one_line.plan(step, tree, keys, jnp.ones((count, 8)), mesh=jax.make_mesh((1,), ("dp",)), next={})
    assert len(planned.in_shardings[1].spec) <= 1
    assert jax.random.key_data(planned.jit(step)(tree, keys, jnp.ones((count, 8)))[1]).shape == (count, 2)


LIBRARIES = [
    ("plain", ()),
    ("adamw", ("optax",)),
    ("adafactor", ("optax",)),
    ("multi_transform", ("optax",)),
    ("equinox", ("equinox", "optax")),
    ("linen", ("flax", "optax")),
    ("nnx", ("flax", "optax")),
]
SLOW_LIBRARIES = ("adafactor", "multi_transform", "linen")


@pytest.mark.parametrize(
    ("name", "packages"),
    [pytest.param(*row, id=row[0], marks=[pytest.mark.slow] * (row[0] in SLOW_LIBRARIES)) for row in LIBRARIES],
)
def test_two_steps_of_a_library_equal_the_unsharded_ones_on_explicit_and_auto_meshes(
    name: str, packages: tuple[str, ...]
) -> None:
    for package in packages:
        pytest.importorskip(package, reason=f"{package} is not installed: pip install shardplan[test-all]")
    report = run_library(name)
    assert report["difference"] < 2e-5
    assert report["rounding"] < 1e-6
    assert report["split"] > 0
    assert report["kept"]
    assert report["warnings"] == []
