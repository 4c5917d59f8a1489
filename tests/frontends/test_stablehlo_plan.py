"""`planner.jax.plan`: shardings for the arguments and results of a function; and the command line's imports."""

from __future__ import annotations

import json
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.errors import InvalidMesh, InvalidRequest, InvalidSharding, UnsupportedOp
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from planner.planning.plan_types import Request
from tests.testing.command_line import refused, shardplan

jax = pytest.importorskip("jax", reason="jax is not installed: pip install shardplan[jax]")
jnp = jax.numpy
one_line = import_module("planner.integrations.jax")
spec = import_module("planner.export.partition_spec")
models = import_module("examples.jax_models")

pytestmark = pytest.mark.frameworks("jax")

P = jax.sharding.PartitionSpec
MESH = Mesh.parse("dp=2,tp=4")
SPECS = [
    (Sharding(((0,), ())), (8, 6), P("dp"), []),
    (Sharding(((), (1,))), (8, 8), P(None, "tp"), []),
    (Sharding(((1, 0), ())), (8, 6), P(("tp", "dp")), []),
    (Sharding(((0, 1), ())), (8, 6), P(("dp", "tp")), []),
    (Sharding(((), ())), (8, 6), P(), []),
    (Sharding(((0, 1), ())), (6, 6), P("dp"), ["dim 0 of 6 is not split along tp: JAX splits evenly"]),
    (Sharding(((1,), (0,))), (6, 6), P(None, "dp"), ["dim 0 of 6 is not split along tp: JAX splits evenly"]),
    (
        Sharding(((), ()), (0,), Reduction.SUM),
        (8, 6),
        P(),
        ["terms along dp are reduced (sum): JAX keeps none between calls"],
    ),
]


@pytest.mark.parametrize(("sharding", "shape", "wanted", "remarks"), SPECS)
def test_a_sharding_as_a_partition_spec(sharding: Sharding, shape: tuple[int, ...], wanted: Any, remarks: Any) -> None:
    assert spec.partition_spec(sharding, shape, MESH) == (wanted, remarks)


def test_halos_are_refused() -> None:
    with pytest.raises(InvalidSharding, match="halos and offsets"):
        spec.partition_spec(Sharding(((0,),), halo_sizes=(1, 1)), (8,), MESH)


def test_meshes_of_jax_and_ours_are_taken() -> None:
    theirs = jax.sharding.AbstractMesh((2, 4), ("dp", "tp"))
    assert spec.jax_mesh(theirs) == (MESH, theirs)
    assert spec.jax_mesh("dp=2,tp=4") == (MESH, theirs)
    with pytest.raises(InvalidMesh, match="mesh of JAX's"):
        spec.jax_mesh(8)


def perceptron(parameters: Any, x: Any, unused: Any) -> Any:
    return {"y": jnp.tanh(x @ parameters["up"]) @ parameters["down"], "x": x}


def shaped(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def test_a_function_gets_a_tree_of_shardings_for_its_arguments_and_results() -> None:
    parameters = {"up": shaped(1024, 4096), "down": shaped(4096, 1024)}
    planned = one_line.plan(perceptron, parameters, shaped(64, 1024), shaped(3), mesh="dp=2,tp=4")
    tree, x, unused = planned.in_shardings
    assert set(tree) == {"up", "down"}
    assert set(planned.out_shardings) == {"y", "x"}
    assert all(isinstance(leaf, jax.sharding.NamedSharding) for leaf in jax.tree.leaves(planned.in_shardings))
    assert unused.spec == P()
    assert planned.plan.certificate.status == "optimal"
    wanted = planned.plan.choice.inputs["arg2"]
    assert x.spec == spec.partition_spec(wanted, (64, 1024), MESH)[0]


def test_a_step_runs_under_its_shardings() -> None:
    """On as many devices as there are here: one; the trees fit jit."""
    model = models.Model("gpt", layers=1)
    function, *arguments = models.training(model, 4)
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("dp", "tp"))
    planned = one_line.plan(function, *arguments, mesh=mesh, request=Request(time_limit_s=2.0))
    step = jax.jit(function, in_shardings=planned.in_shardings, out_shardings=planned.out_shardings)
    assert step.lower(*arguments).out_info[0].shape == ()


def test_shardings_that_jax_cannot_express_are_left_out_with_a_warning() -> None:
    export = one_line._JaxExport(MESH, jax.sharding.AbstractMesh((2, 4), ("dp", "tp")))
    with pytest.warns(UserWarning, match="argument x: dim 0 of 6"):
        export.sharding(Sharding(((1,),)), (6,), "argument x")
    with warnings.catch_warnings(action="error"):
        export.sharding(Sharding(((1,),)), (8,), "argument x")


def test_too_little_memory_is_reported() -> None:
    with pytest.raises(InvalidRequest, match="no plan fits"):
        one_line.plan(lambda x: x @ x, shaped(64, 64), mesh="dp=2", request=Request(memory_limit_bytes=10))


def test_the_command_line_imports_text_and_functions(tmp_path: Path) -> None:
    function, *arguments = models.training(models.Model("llama"), 2)
    (tmp_path / "step.mlir").write_text(function.lower(*arguments).as_text())
    told = shardplan("import", "stablehlo", tmp_path / "step.mlir", "-o", tmp_path / "step.json", "--json").json
    document = json.loads((tmp_path / "step.json").read_text())
    assert (told["name"], told["nodes"], told["inputs"]) == ("step", len(document["nodes"]), len(document["inputs"]))
    words = ("tests.testing.jax_function:build", "-o", tmp_path / "tanh.json", "--kind", "x=input")
    assert "build, 1 nodes, 1 inputs" in shardplan("import", "jax", *words).out


BAD_COMMANDS = [
    (("stablehlo", "missing.mlir"), "missing.mlir: cannot be read"),
    (("jax", "json:nothing"), "json:nothing: function cannot be called"),
    (("jax", "tests.testing.jax_function:build", "--kind", "input"), "wanted name=kind"),
]


@pytest.mark.parametrize(("words", "message"), BAD_COMMANDS)
def test_bad_imports_end_in_one_message(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    refused(shardplan("import", *words, "-o", tmp_path / "out.json"), message)


NEEDS_DATA = [
    lambda x: x[x > 0],
    lambda x: x if x.sum() > 0 else -x,
    lambda x: jnp.zeros(int(x.sum())),
    lambda x: jnp.asarray(np.asarray(x)),
]


@pytest.mark.parametrize("function", NEEDS_DATA)
def test_what_jax_cannot_trace_for_its_data_is_refused_with_what_to_write_instead(function: Any) -> None:
    said = "a shape, number or branch that depends on data .*wanted jnp.where in place of a branch"
    with pytest.raises(UnsupportedOp, match=said):
        one_line.plan(function, jax.ShapeDtypeStruct((8, 8), jnp.float32), mesh="dp=2,tp=4")


class JitWrapper:
    """A function jitted by another library, which takes what is no array for a static argument."""

    def __call__(self, x: Any) -> Any:
        assert isinstance(x, jax.Array)
        return x @ x

    def lower(self, x: Any) -> Any:
        return jax.jit(lambda: self(x)).lower()


def test_a_function_that_another_library_jitted_is_traced_on_its_arguments() -> None:
    planned = one_line.plan(JitWrapper(), jax.ShapeDtypeStruct((64, 64), jnp.float32), mesh="dp=2,tp=4")
    assert len(jax.tree.leaves(planned.in_shardings)) == 1
