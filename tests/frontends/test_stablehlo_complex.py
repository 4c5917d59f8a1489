"""Complex numbers and Fourier transforms of JAX functions, imported as pairs of real values, give JAX's numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
import pytest

from planner import Request, pipeline
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.errors import UnsupportedOp
from planner.frontends.stablehlo import import_stablehlo, import_text, trace_function
from planner.ir.mesh import Mesh
from planner.ops import OPS
from planner.run.executor import run_whole
from planner.run.validate import validate
from tests.testing.hardware import EAGER
from tests.testing.stablehlo_texts import main_of

jax: Any = pytest.importorskip("jax", reason="jax is not installed: pip install shardplan[jax]")
jnp, lax = jax.numpy, jax.lax
fft = jnp.fft
mlir = import_module("jaxlib.mlir.ir")
parse = import_module("planner.frontends.stablehlo.parse")
table = import_module("planner.frontends.stablehlo.complex_rules")

pytestmark = pytest.mark.frameworks("jax")

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((4, 6))
CUBE = RANDOM.standard_normal((2, 4, 6))
AT = np.int32(1)
PLACES = np.array([2, 0, 5], np.int32)
FACTORS = RANDOM.standard_normal((6, 3)) + 1j * RANDOM.standard_normal((6, 3))
"""Numbers of a text, which are constants of the document."""


def made(x: Any) -> Any:
    """Complex numbers that depend on the argument."""
    return x + 1j * jnp.cos(x)


def both(z: Any) -> Any:
    return z.real, z.imag


def stack_rows(x: Any) -> Any:
    """A loop that carries and stacks complex numbers."""
    return both(lax.scan(lambda carried, row: (carried * 0.5j + row, carried), made(x[0]), made(x))[1])


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "fft": lambda x: both(fft.fft(made(x))),
    "of real numbers": lambda x: both(fft.fft(x)),
    "ifft": lambda x: both(fft.ifft(made(x), norm="ortho")),
    "along another dim": lambda x: both(fft.fft(made(x), 7, axis=0)),
    "of all dims": lambda x: both(fft.ifftn(made(x))),
    "rfft": lambda x: both(fft.rfft(x)),
    "rfft of an odd length": lambda x: both(fft.rfft(x, 5, norm="forward")),
    "rfft of all dims": lambda x: both(fft.rfftn(x)),
    "irfft": lambda x: fft.irfft(made(x)),
    "irfft of an odd length": lambda x: fft.irfft(made(x), 9, norm="ortho"),
    "irfft of one and of two elements": lambda x: (fft.irfft(made(x), 1), fft.irfft(made(x), 2)),
    "irfft of two dims": lambda x: fft.irfft2(made(x), (5, 8)),
    "hfft": lambda x: fft.hfft(fft.ihfft(x, 8)),
    "a long convolution": lambda x: fft.irfft(fft.rfft(x, 12) * fft.rfft(jnp.sin(x), 12), 12)[:, :6],
    "a global filter": lambda x: fft.irfft2(fft.rfft2(x) * jnp.exp(1j * x[:, :4]), x.shape),
}
NUMBERS: dict[str, Callable[[Any], Any]] = {
    "products and quotients": lambda x: both(made(x) * made(x[::-1]) / (made(x * x) + 3.0)),
    "a quotient by a real number": lambda x: both(made(x) / (x * x + 1)),
    "differences and conjugates": lambda x: both(jnp.conj(made(x)) - 2.0j * made(x) - x),
    "squares": lambda x: both(jnp.square(made(x)) + made(x) ** 3),
    "lengths": lambda x: (jnp.abs(made(x)), jnp.abs((x + 0j) * 2)),
    "exp, log and angle": lambda x: (*both(jnp.exp(made(x))), *both(jnp.log(made(x) + 2)), jnp.angle(made(x) + 2)),
    "sums": lambda x: both(jnp.sum(made(x), 1) + jnp.mean(made(x)) + jnp.cumsum(made(x), 1)[:, -1]),
    "views": lambda x: both(jnp.pad(jnp.roll(made(x), 1).reshape(6, 4).T[::-1, None], ((0, 1), (1, 0), (2, 0)))),
    "pieces": lambda x: both(jnp.concatenate([made(x)[1:], fft.fft(x)[:1]]).at[0, 2].set(1j)),
    "reads": lambda x: both(made(x)[:, PLACES] + lax.dynamic_slice(made(x), (AT, AT), (1, 3))),
    "writes": lambda x: both(made(x).at[:, PLACES].add(made(x)[:, :3])),
    "choices": lambda x: both(jnp.where(x > 0, made(x), 2j)),
    "products of matrices": lambda x: both(jnp.einsum("ab,cb->ac", made(x), made(x) + 1)),
    "products with constants": lambda x: both((made(x) @ FACTORS) @ np.eye(3, dtype=complex)),
    "a loop": stack_rows,
}
COMPARED: dict[str, Callable[[Any], Any]] = {
    "equal": lambda x: (made(x) == made(x).at[0].add(1j)) | (made(x) != made(x)),
    "a large constant": lambda x: both(x.reshape(-1)[:1] * np.arange(200) * (1 - 2j)),
    "no numbers but the text's": lambda x: x + (jnp.sqrt(2j * jnp.ones(())) * 2).imag,
}
GRADIENTS = {
    f"gradient of {name}": jax.grad(
        lambda x, function=function: sum((jnp.sin(part) * part).sum() for part in jax.tree.leaves(function(x)))
    )
    for name, function in (TRANSFORMS | NUMBERS).items()
}
CASES = TRANSFORMS | NUMBERS | COMPARED | GRADIENTS
MESHES = ["2x2", "3"]


def trace(function: Callable[[Any], Any], x: Any) -> tuple[Any, dict[str, Any], list[Any]]:
    """The imported text, our outputs' names and values, and JAX's results."""
    found = trace_function(jax.jit(function), x, next={})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        imported = import_text(found.text, "case")
    graph = load_graph(GraphDocument.model_validate(imported.document), Mesh.parse("1"))
    assert not {op.op for op in graph.ops} - OPS.keys()
    arrays = dict(zip(imported.arguments, [x], strict=True)) | dict(imported.constants)
    values = run_whole(graph, arrays, np, precision="declared")
    wanted = [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(function)(x))]
    return imported, {name: values[name] for name in graph.outputs}, wanted


@pytest.mark.parametrize(("name", "dtype"), [*product(CASES, ["f4"]), *product(TRANSFORMS, ["f8"])])
def test_complex_numbers_give_what_jax_gives(name: str, dtype: str) -> None:
    with jax.enable_x64(dtype == "f8"):
        imported, got, wanted = trace(CASES[name], X.astype(dtype))
    tolerance = 1e-4 if dtype == "f4" else 1e-9
    for output, theirs in zip(imported.document["outputs"], wanted, strict=True):
        np.testing.assert_allclose(got[output], theirs, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("mesh", MESHES)
def test_a_plan_with_transforms_splits_the_other_dims_and_gives_the_same(mesh: str) -> None:
    step = jax.grad(lambda x: (fft.irfft2(fft.rfft2(x) * jnp.exp(1j * x[..., :4]), x.shape[1:]) ** 3).sum())
    found = trace_function(step, jax.ShapeDtypeStruct((12, 4, 6), jnp.float32), next={})
    graph = load_graph(GraphDocument.model_validate(import_text(found.text, "step").document), Mesh.parse(mesh))
    plan = pipeline.plan(graph, Mesh.parse(mesh), EAGER, request=Request(gap=0.1, time_limit_s=60.0))
    assert plan.choice is not None
    assert plan.analysis is not None
    transforms = [op.id for op in graph.ops if op.op == "fft"]
    assert all(any(plan.choice.options[op]) for op in transforms)
    verdict = validate(plan.analysis.program, "numpy", "none")
    assert (verdict.verdict, verdict.not_run) == ("equal", ())


def list_complex_ops(text: str) -> set[str]:
    """The names of the ops that read or make complex numbers."""
    names, module = set(), parse.parse_text(text, "t")

    def note(op: Any) -> Any:
        values = (*op.operands, *op.results)
        names.update([op.name] if any("complex<" in str(value.type) for value in values) else [])
        return mlir.WalkResult.ADVANCE

    module.operation.walk(note)
    return names


def test_every_row_for_complex_numbers_is_reached_by_a_case() -> None:
    texts = [trace_function(jax.jit(function), X, next={}).text for function in CASES.values()]
    reached = set[str]().union(*map(list_complex_ops, texts))
    assert table.COMPLEX_TABLE.keys() <= reached


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a result": (lambda x: (x, fft.fft(x)), "result 1: complex numbers (got complex<f32>; wanted real and imaginary"),
    "a function without a rule": (lambda x: jnp.tanh(made(x)).real, "got stablehlo.tanh; wanted complex numbers that"),
    "a decomposition": (lambda x: jnp.linalg.inv(made(x[:, :4])).real, "complex numbers (got "),
    "a product over a dim": (lambda x: jnp.prod(made(x)).real, "complex numbers (got a product over a dim"),
    "a running product": (lambda x: jnp.cumprod(made(x)).real, "stablehlo.reduce_window by stablehlo.multiply"),
    "a root": (lambda x: jnp.sqrt(made(x)).real, "complex numbers (got stablehlo.sqrt"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_complex_numbers_without_a_row_are_refused_with_what_to_write(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(UnsupportedOp) as refused:
        import_stablehlo(trace_function(function, X.astype(np.float32), next={}).text, "t")
    assert message in str(refused.value)


def test_numbers_of_a_text_that_are_not_finite_are_read() -> None:
    text = main_of(
        "%0 = stablehlo.constant dense<[(1.5,0x7F800000), (0xFF800000,-2.0)]> : tensor<2xcomplex<f32>> "
        "%1 = stablehlo.imag %0 : (tensor<2xcomplex<f32>>) -> tensor<2xf32> "
        "%2 = stablehlo.add %1, %a : tensor<2xf32> return %2 : tensor<2xf32>",
        "tensor<2xf32>",
        "tensor<2xf32>",
    )
    (numbers,) = import_text(text, "t").constants.values()
    np.testing.assert_array_equal(numbers, [np.inf, -2.0])
