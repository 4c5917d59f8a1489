"""Plans price ops as `predict ops` does, and no split is faster than the bound of all splits."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import pytest

from planner.choose.cost import PICO, CostModel
from planner.choose.hardware import Hardware, load_profile
from planner.choose.hardware.curves import Curve, Curves
from planner.choose.op_prices import OpPricing
from planner.choose.options import enumerate_options
from planner.errors import InvalidHardware
from planner.ir.graph import Op, TensorType
from planner.ir.mesh import Mesh
from planner.ops import bind_op
from planner.usecases.predict_ops import predict_ops

Shape = tuple[int, ...]
MESHES = ["2", "2x4", "3x4", "16"]
ALONE = Mesh.parse("1")
ATTENTION = "scaled_dot_product_attention"


class Priced(NamedTuple):
    """An op, a profile, and the row of `predict ops` that describes the op."""

    name: str
    operands: list[Shape]
    results: list[Shape]
    attrs: dict[str, object]
    dtype: str
    profile: str
    row: dict[str, object]


PRICED = [
    Priced(
        "matmul", [(512, 4096), (4096, 1024)], [(512, 1024)], {}, "bf16", "h100-sxm", {"m": 512, "n": 1024, "k": 4096}
    ),
    Priced("linear", [(2, 96, 640), (320, 640)], [(2, 96, 320)], {}, "f16", "b200-sxm", {"m": 192, "n": 320, "k": 640}),
    Priced(
        "matmul",
        [(4, 64, 256), (4, 256, 128)],
        [(4, 64, 128)],
        {},
        "f32",
        "v100-pcie",
        {"op": "bmm", "B": 4, "M": 64, "N": 128, "K": 256},
    ),
    Priced(
        ATTENTION,
        [(2, 8, 4, 1024, 128), (2, 8, 1, 1024, 128), (2, 8, 1, 1024, 128)],
        [(2, 8, 4, 1024, 128)],
        {"causal": True},
        "bf16",
        "h200-sxm",
        {"op": "context_attention", "batch": 2, "heads": 32, "kv_heads": 8, "head_dim": 128, "seq": 1024},
    ),
    Priced(
        ATTENTION,
        [(2, 8, 2048, 128)] * 3,
        [(2, 8, 2048, 128)],
        {"causal": True, "window": 256},
        "bf16",
        "h100-sxm",
        {"op": "context_attention", "batch": 2, "heads": 8, "kv_heads": 8, "head_dim": 128, "seq": 2048, "window": 256},
    ),
    Priced("matmul", [(512, 4096), (4096, 1024)], [(512, 1024)], {}, "bf16", "l40s", {"m": 512, "n": 1024, "k": 4096}),
    Priced("matmul", [(256, 512), (512, 128)], [(256, 128)], {}, "bf16", "a100-sxm", {"m": 256, "n": 128, "k": 512}),
    Priced("add", [(8192, 1024)] * 2, [(8192, 1024)], {}, "f32", "v100-pcie", {"op": "add", "B": 8192, "H": 1024}),
    Priced("multiply", [(64, 4096)] * 2, [(64, 4096)], {}, "bf16", "h100-sxm", {"op": "mul", "B": 64, "H": 4096}),
    Priced(
        "softmax", [(8, 512, 512)], [(8, 512, 512)], {"dim": -1}, "f32", "t4", {"op": "softmax", "B": 4096, "H": 512}
    ),
]
# op, operands, results: bound by the same test as PRICED
BOUNDED = [
    ("layer_norm", ["bf16 96x512", "bf16 512", "bf16 512"], ["bf16 96x512"], {}, "b200-sxm"),
    ("embedding", ["bf16 1000x256", "i32 8x96"], ["bf16 8x96x256"], {}, "h100-sxm"),
    ("grouped_mm", ["bf16 256x128", "bf16 8x128x64", "i32 8"], ["bf16 256x64"], {}, "h200-sxm"),
    ("grouped_mm_weight_backward", ["bf16 256x128", "bf16 256x64", "i32 8"], ["bf16 8x128x64"], {}, "gb200"),
    ("scaled_dot_product_attention_backward", ["bf16 2x8x512x64"] * 4, ["bf16 2x8x512x64"] * 3, {}, "l40s"),
    ("scaled_dot_product_attention_backward", ["bf16 2x8x512x64"] * 4, ["bf16 2x8x512x64"] * 3, {}, "h100-sxm"),
    ("matmul", ["f8e4m3 512x256", "f8e4m3 256x512"], ["f8e4m3 512x512"], {}, "h20"),
    ("matmul", ["f8e5m2 512x256", "f8e5m2 256x512"], ["f8e5m2 512x512"], {}, "b200-sxm"),
    ("matmul", ["bf16 512x256", "bf16 256x512"], ["bf16 512x512"], {}, "v100-sxm"),
    ("sum", ["f32 512x2048"], ["f32 2048"], {"dims": [0]}, "rtx-pro-6000"),
]
UNFITTED = [("h100-sxm", "f64"), ("mi300x", "bf16"), ("cpu", "f32")]


def bind(case: Priced) -> Op:
    read, made = (tuple(TensorType(shape, case.dtype) for shape in side) for side in (case.operands, case.results))
    rule = bind_op(case.name, read, made, attrs=case.attrs, notation=None)
    inputs = tuple(f"i{k}" for k in range(len(read)))
    return Op(case.name, case.name, inputs, made, rule, MappingProxyType(case.attrs))


def bind_product(dtype: str) -> Op:
    return bind(Priced("matmul", [(64, 256), (256, 512)], [(64, 512)], {}, dtype, "", {}))


def op_s(op: Op, hardware: Hardware) -> float:
    operands = tuple(TensorType(shape, op.results[0].dtype) for shape in op.rule.shapes)
    return CostModel(ALONE, hardware).op_ps(op, operands, ((),) * len(op.rule.loops)) * PICO


@pytest.mark.parametrize("case", PRICED)
def test_an_op_takes_in_a_plan_what_predict_ops_says(
    case: Priced,
) -> None:
    row = {"op": "gemm", "gpu": case.profile, "dtype": case.dtype, **case.row}
    predicted = predict_ops([row])[0]["time_s"]
    # Attention also counts the softmax's operations here.
    assert op_s(bind(case), load_profile(case.profile)) == pytest.approx(
        predicted, rel=0.03 if case.name == ATTENTION else 1e-6
    )


def test_a_token_with_a_cache_takes_what_decoding_attention_takes() -> None:
    kinds: list[Shape] = [(4, 8, 4, 1, 128), (4, 8, 1, 4096, 128), (4, 8, 1, 4096, 128)]
    one = (4, 8, 1, 1, 128)
    read = (*(TensorType(shape, "bf16") for shape in (*kinds, one, one)), TensorType((), "i32"))
    made = (TensorType(kinds[0], "bf16"),)
    rule = bind_op("cached_attention", read, made, attrs={}, notation=None)
    op = Op("a", "cached_attention", tuple("qkvnwl"), made, rule, MappingProxyType({}))
    row = {"op": "generation_attention", "gpu": "h100-sxm", "dtype": "bf16", "batch": 4, "heads": 32}
    predicted = predict_ops([row | {"kv_heads": 8, "head_dim": 128, "kv_len": 4096}])[0]["time_s"]
    priced = CostModel(ALONE, load_profile("h100-sxm")).op_ps(op, read, ((),) * len(rule.loops)) * PICO
    assert priced == pytest.approx(predicted, rel=0.03)


@pytest.mark.parametrize(("profile", "dtype"), UNFITTED)
def test_without_a_fitted_class_the_roofline_of_the_profile_is_the_price(profile: str, dtype: str) -> None:
    op, hardware = bind_product(dtype), load_profile(profile)
    pricing = OpPricing.of(op, hardware)
    size = TensorType((1,), dtype).bytes
    flops, moved = 2 * 64 * 256 * 512, size * (64 * 256 + 256 * 512 + 64 * 512)
    assert pricing.times is None
    assert op_s(op, hardware) == pytest.approx(hardware.op_s("matmul", dtype, flops, moved=moved, kind=pricing.kind))


def test_measured_curves_come_before_fitted_classes() -> None:
    op = bind_product("bf16")
    curves = MappingProxyType({"matmul": Curves(flops=Curve((1.0, 2.0), (0.5, 0.5)))})
    assert op_s(op, replace(load_profile("h100-sxm"), curves=curves)) > 0.5


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("case", PRICED)
def test_no_split_of_an_op_is_faster_than_its_bound(case: Priced, mesh: str) -> None:
    op = bind(case)
    check_bound(op, tuple(TensorType(shape, case.dtype) for shape in op.rule.shapes), case.profile, mesh)


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize(("name", "operands", "results", "attrs", "profile"), BOUNDED)
def test_no_split_of_any_class_is_faster_than_its_bound(
    name: str, operands: list[str], results: list[str], attrs: dict[str, object], profile: str, mesh: str
) -> None:
    read, made = (tuple(map(parse_type, side)) for side in (operands, results))
    rule = bind_op(name, read, made, attrs=attrs, notation=None)
    op = Op(name, name, tuple(f"i{k}" for k in range(len(read))), made, rule, MappingProxyType(attrs))
    check_bound(op, read, profile, mesh)


def parse_type(text: str) -> TensorType:
    dtype, shape = text.split()
    return TensorType(tuple(map(int, shape.split("x"))), dtype)


def check_bound(op: Op, kinds: tuple[TensorType, ...], profile: str, mesh: str) -> None:
    hardware, devices = load_profile(profile), Mesh.parse(mesh)
    whole = CostModel(ALONE, hardware).op_work(op, kinds, ((),) * len(op.rule.loops))
    least = OpPricing.of(op, hardware).least_s(whole, devices.devices)
    model = CostModel(devices, hardware)
    fastest = min(model.op_ps(op, kinds, option) for option in enumerate_options(op.rule, devices))
    assert 0 < least <= (fastest + 1) * PICO  # prices are rounded


def test_a_profile_names_a_measured_device() -> None:
    with pytest.raises(InvalidHardware, match="no fitted classes"):
        replace(load_profile("h100-sxm"), op_times="abacus")
