"""StableHLO that cannot be planned is refused with its line and what to do."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InvalidDocument, InvalidGraph, InvalidRequest, InvalidSharding, ShardplanError, UnsupportedOp
from planner.frontends.stablehlo import import_file, import_jax, import_stablehlo, trace_function
from planner.frontends.uncovered_ops import UnknownOpWarning
from tests.testing.stablehlo_texts import F32, SHARDY, main_of

jax = pytest.importorskip("jax", reason="jax is not installed: pip install shardplan[jax]")

pytestmark = pytest.mark.frameworks("jax")
jnp, lax = jax.numpy, jax.lax

CALLS_ITSELF = f"{main_of(f'%0 = call @f(%a) : ({F32}) -> {F32} return %0 : {F32}')}" + (
    f" func.func private @f(%a: {F32}) -> {F32} {{ %0 = call @f(%a) : ({F32}) -> {F32} return %0 : {F32} }}"
)
LAUGHS = (
    main_of(f"%0 = call @f0(%a) : ({F32}) -> {F32} return %0 : {F32}")
    + "".join(
        f" func.func private @f{i}(%a: {F32}) -> {F32} {{"
        f" %0 = call @f{i + 1}(%a) : ({F32}) -> {F32} %1 = call @f{i + 1}(%0) : ({F32}) -> {F32} return %1 : {F32} }}"
        for i in range(30)
    )
    + f" func.func private @f30(%a: {F32}) -> {F32} {{ return %a : {F32} }}"
)
FOREVER = """
  %true = stablehlo.constant dense<true> : tensor<i1>
  %0 = stablehlo.while(%x = %a) : tensor<4x8xf32>
   cond { stablehlo.return %true : tensor<i1> } do { stablehlo.return %x : tensor<4x8xf32> }
  return %0 : tensor<4x8xf32>"""

REFUSED_TEXTS: dict[str, tuple[str, type[ShardplanError], str]] = {
    "nothing of the kind": ("hello", InvalidDocument, "t: line 1 column 1: not StableHLO"),
    "JSON": ("{}", InvalidDocument, "t: line 1 column 1: not StableHLO"),
    "cut off": (main_of("%0 = stablehlo.tanh %a :")[:-2], InvalidDocument, "t: line 2 column 23"),
    "empty": ("", InvalidGraph, "t: no function @main"),
    "no main": ("func.func @f() { return }", InvalidGraph, "got ['f']"),
    "an unknown value": (main_of(f"return %b : {F32}"), InvalidDocument, "t: line 2 column 8: not StableHLO"),
    "a dynamic dim": (
        main_of("return %a : tensor<?x8xf32>", "tensor<?x8xf32>", "tensor<?x8xf32>"),
        InvalidGraph,
        "t: argument arg0: dynamic dim (got tensor<?x8xf32>",
    ),
    "an element type": (
        main_of("return %a : tensor<4xcomplex<f32>>", "tensor<4xcomplex<f32>>", "tensor<4xcomplex<f32>>"),
        UnsupportedOp,
        "t: argument arg0: complex numbers (got complex<f32>; wanted real and imaginary part as two real arrays",
    ),
    "a narrow element type": (
        main_of("return %a : tensor<4xi4>", "tensor<4xi4>", "tensor<4xi4>"),
        UnsupportedOp,
        "t: argument arg0: element type (got i4",
    ),
    "an argument without elements": (
        main_of("return %a : tensor<0x8xf32>", "tensor<0x8xf32>", "tensor<0x8xf32>"),
        UnsupportedOp,
        "t: argument arg0: array without elements",
    ),
    "a custom call with side effects": (
        main_of(
            f"%0 = stablehlo.custom_call @attend(%a) {{has_side_effect = true}} : ({F32}) -> {F32}\nreturn %0 : {F32}"
        ),
        UnsupportedOp,
        "t: line 2: stablehlo.custom_call: custom call with side effects (got attend",
    ),
    "an endless loop": (main_of(FOREVER), UnsupportedOp, "t: line 4: stablehlo.while: loop too long"),
    "a function that calls itself": (CALLS_ITSELF, UnsupportedOp, "calls nested too deeply"),
    "a sharding without names": (
        f'func.func @main(%a: {F32} {{mhlo.sharding = "{{replicated}}"}}) -> {F32} {{ return %a : {F32} }}',
        UnsupportedOp,
        "t: argument arg0: sharding without axis names",
    ),
    "part of a mesh axis": (
        SHARDY.replace('{"dp"}, {?}', '{"tp":(1)2}, {?}'),
        InvalidSharding,
        "part of a mesh axis",
    ),
}
REFUSED_FUNCTIONS: dict[str, tuple[Any, type[ShardplanError], str]] = {
    "until something happens": (
        lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, x),
        UnsupportedOp,
        "data-dependent while loop",
    ),
    "a branch of the data": (
        lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
        UnsupportedOp,
        "data-dependent branch",
    ),
    "a number printed": (
        lambda x: (jax.debug.print("{}", x.sum()), x)[1],
        UnsupportedOp,
        "wanted a step without callbacks and jax.debug",
    ),
    "as many turns as an argument says": (
        lambda x: lax.fori_loop(0, x[0, 0].astype(int), lambda _, c: c + 1, x),
        UnsupportedOp,
        "wanted a loop whose turns are known: lax.scan, or fori_loop with numbers as bounds",
    ),
    "a Fourier transform": (lambda x: jnp.fft.rfft(x), UnsupportedOp, "complex numbers"),
    "a sum of nothing": (lambda x: x[:0].sum() + x, UnsupportedOp, "operand without elements"),
    "an error of its own": (lambda x: x.nothing, InvalidRequest, "AttributeError"),
}
DEEP = "module attributes {a = " + "[" * 100_000 + "]" * 100_000 + "} {}"
WITHOUT = """
import sys
sys.modules[{missing!r}] = None
from planner.errors import ShardplanError
from planner.frontends import stablehlo
try:
    {call}
except ShardplanError as error:
    raise SystemExit(str(error))
"""
X = jax.ShapeDtypeStruct((4, 8), jnp.float32)


@pytest.mark.parametrize("name", REFUSED_TEXTS)
def test_a_text_that_cannot_be_planned_is_refused_with_its_line(name: str) -> None:
    given, kind, message = REFUSED_TEXTS[name]
    with pytest.raises(kind) as refused:
        import_stablehlo(given, "t")
    assert message in str(refused.value)


@pytest.mark.parametrize("name", REFUSED_FUNCTIONS)
def test_a_function_that_cannot_be_planned_is_refused(name: str) -> None:
    function, kind, message = REFUSED_FUNCTIONS[name]
    with pytest.raises(kind) as refused:
        import_stablehlo(trace_function(function, X).text, "t")
    assert message in str(refused.value)


REPLICATED: dict[str, tuple[Any, str]] = {
    "an op outside the table": (jax.scipy.special.digamma, "chlo.digamma, 1x"),
    "a custom call": (jnp.linalg.qr, "stablehlo.custom_call lapack_sgeqrf_ffi, 1x"),
    "a form that a row does not take": (lambda x: lax.cumlogsumexp(x), "stablehlo.reduce_window (a body that is not"),
}


@pytest.mark.parametrize("name", REPLICATED)
def test_an_op_without_a_row_is_planned_replicated_and_named_in_a_warning(name: str) -> None:
    function, message = REPLICATED[name]
    with pytest.warns(UnknownOpWarning) as warned:
        document = import_stablehlo(trace_function(function, X).text, "t")
    assert message in str(warned[0].message)
    assert any("blocked" in node.get("rule", "") for node in document["nodes"])


def test_calls_that_multiply_exponentially_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.frontends.stablehlo.translation.MAX_STEPS", 5000)
    with pytest.raises(UnsupportedOp, match="program too long"):
        import_stablehlo(LAUGHS, "t")


def test_text_that_crashes_the_parser_is_refused(tmp_path: Path) -> None:
    (tmp_path / "minus.mlir").write_text(f"#m = affine_map<(d0) -> ({'-' * 100_000}d0)>\nmodule {{}}")
    with pytest.raises(InvalidDocument, match="the parser ended"):
        import_file(tmp_path / "minus.mlir")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (DEEP, "nested too deeply .wanted at most 500 levels"),
        (f"module @m {{\n}} loc({'callsite(unknown at ' * 501}unknown{')' * 501})", "t: line 2: nested too deeply"),
        (main_of(f"%0 = stablehlo.tanh %a : tensor<{'1x' * 100_000}f32>\nreturn %0 : {F32}"), "rank too high"),
    ],
)
def test_text_that_the_parser_would_crash_on_is_refused_before(text: str, message: str) -> None:
    with pytest.raises(InvalidDocument, match=message):
        import_stablehlo(text, "t")


def test_brackets_in_strings_and_arrows_are_no_nesting() -> None:
    text = main_of(f'%0 = stablehlo.tanh %a {{mhlo.note = "{"(" * 2000}"}} : {F32}\nreturn %0 : {F32}')
    assert len(import_stablehlo(text, "t")["nodes"]) == 1


def test_files_are_read_plain_and_packed(tmp_path: Path) -> None:
    plain, packed = tmp_path / "tanh.mlir", tmp_path / "tanh.mlir.gz"
    plain.write_text(main_of(f"%0 = stablehlo.tanh %a : {F32}\nreturn %0 : {F32}"))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert import_file(plain) == import_file(packed)
    assert import_file(plain)["name"] == "tanh"


def test_an_error_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "step.mlir").write_text("module {\n  nothing }")
    with pytest.raises(InvalidDocument, match=r"step\.mlir: line 2 "):
        import_file(tmp_path / "step.mlir")


BAD_FILES = {
    "missing.mlir": (None, "cannot be read"),
    "latin.mlir": (b"\xe9\xe9\xe9", "not UTF-8 text"),
    "cut.mlir.gz": (gzip.compress(b"module {}" * 99)[:20], "damaged gzip file"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_files_that_are_not_text_are_refused(name: str, tmp_path: Path) -> None:
    content, message = BAD_FILES[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidDocument, match=message):
        import_file(tmp_path / name)


CALLS_WITHOUT = {"jax": "stablehlo.import_jax('builtins:dict')", "jaxlib": "stablehlo.import_stablehlo('', 't')"}


@pytest.mark.parametrize("missing", CALLS_WITHOUT)
def test_without_jax_the_extra_is_named(missing: str) -> None:
    code = WITHOUT.format(missing=missing, call=CALLS_WITHOUT[missing])
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "not installed (wanted pip install shardplan[jax])" in run.stderr


def test_importing_the_frontend_imports_no_jax() -> None:
    code = "import sys, planner.frontends.stablehlo; sys.exit('jaxlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


NO_FUNCTIONS = {
    "json": "wanted module:function",
    "no_such_module:build": "No module named 'no_such_module'",
    "builtins:dict": "wanted (f, *arguments)",
}


@pytest.mark.parametrize("name", NO_FUNCTIONS)
def test_a_name_that_is_not_a_function_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        import_jax(name)
    assert NO_FUNCTIONS[name] in str(refused.value)
