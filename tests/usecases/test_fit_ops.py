"""Times of one's own ops become corrections of a profile, by which plans are priced; bad lines are told apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.choose.cost import PICO, CostModel
from planner.choose.hardware import Hardware, load_profile
from planner.choose.hardware.corrections import TimeCorrection, find_correction
from planner.choose.op_prices import OpPricing, kernel_s
from planner.documents.profiler_trace import ProfiledOp
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.usecases.fit_ops import fit_ops, read_csv, read_trace
from planner.usecases.steps import kernels
from tests.testing.op_graph_builder import Sketch

HEADER = "op,dtype,m,n,k,time_s\n"
FAULTS = [
    ("gemm,bf16,64,64\n", "line 2: number of cells"),
    ("gemm,bf16,64,64,64,1e-5,7\n", "line 2: number of cells"),
    ("gemm,bf16,64,64,many,1e-5\n", "line 2: k: number (got many"),
    ("gemm,bf16,64,64,64,0\n", "line 2: time_s"),
    ("gemm,bf16,64,64,64,nan\n", "line 2: time_s"),
    ("gemm,bf16,64,64,64,\n", "line 2: time_s"),
    ("spline,bf16,64,64,64,1e-5\n", "line 2: op: unknown op"),
    ("gemm,bf17,64,64,64,1e-5\n", "line 2: dtype"),
]


@pytest.mark.parametrize("profile", ["h100-sxm", "mi300x"])
def test_what_a_file_of_products_says_is_what_plans_cost(profile: str) -> None:
    base, sizes = load_profile(profile), [128 * (1 + each) for each in range(20)]
    columns = {"m": np.array(sizes, float), "n": np.full(20, 1024.0), "k": np.full(20, 4096.0)}
    seconds = 3e-6 + 1.5 * kernel_s(base, "gemm", "bf16", columns=columns)
    text = HEADER + "".join(f"gemm,bf16,{m},1024,4096,{s!r}\n" for m, s in zip(sizes, seconds.tolist(), strict=True))
    kernels, faults = read_csv(text, "mine.csv")
    fit = fit_ops(base, kernels)
    assert (faults, fit.refused) == ([], ())
    (correction,) = fit.corrections
    assert correction.name == "gemm.bf16"
    assert correction.after < 1e-3 < correction.before
    own = replace(base, op_corrections={correction.name: correction.fitted})
    assert product_s(own) == pytest.approx(3e-6 + 1.5 * product_s(base), rel=1e-3)


def product_s(hardware: Hardware) -> float:
    sketch = Sketch("bf16")
    sketch.op("matmul", [sketch.input(512, 2048), sketch.input(2048, 512)], (512, 512))
    kinds = (TensorType((512, 2048), "bf16"), TensorType((2048, 512), "bf16"))
    model = CostModel(Mesh.parse("1"), hardware)
    return model.op_ps(sketch.ops[0], kinds, ((),) * len(sketch.ops[0].rule.loops)) * PICO


@pytest.mark.parametrize(("lines", "fault"), FAULTS)
def test_a_bad_line_is_named_and_the_others_are_read(lines: str, fault: str) -> None:
    kernels, faults = read_csv(HEADER + lines + "gemm,bf16,64,64,64,1e-5\n", "mine.csv")
    assert len(kernels) == 1
    assert len(faults) == 1
    assert fault in faults[0]


def test_products_of_a_trace_are_read_with_their_shapes() -> None:
    def profiled(op: str, *shapes: tuple[int, ...], dtype: str = "bf16") -> ProfiledOp:
        return ProfiledOp(op, shapes, (dtype,) * len(shapes), 1e-3, 2e-4, scope="", run=0, depth=0)

    ops = [
        profiled("aten::mm", (64, 128), (128, 32)),
        profiled("aten::addmm", (32,), (64, 128), (128, 32)),
        profiled("aten::bmm", (4, 8, 16), (4, 16, 2), dtype="f32"),
        profiled("aten::mm"),
        profiled("aten::relu", (64, 128)),
    ]
    one, other, batched = read_trace(ops)
    assert one == other
    assert (one.op, one.dtype, one.numbers) == ("gemm", "bf16", {"m": 64, "n": 32, "k": 128})
    assert (batched.op, batched.numbers) == ("bmm", {"B": 4, "M": 8, "K": 16, "N": 2})
    assert one.time_s == 2e-4


def test_a_corrected_op_says_so() -> None:
    sketch = Sketch("bf16")
    sketch.op("matmul", [sketch.input(64, 64), sketch.input(64, 64)], (64, 64))
    own = replace(load_profile("h100-sxm"), op_corrections={"gemm.bf16": TimeCorrection(2.0, 0.0, 0.9, 1.2)})
    pricing = OpPricing.of(sketch.ops[0], own)
    assert pricing.source == "gemm.bf16 fitted on h100-sxm, corrected by own measurements"
    assert pricing.interval == (0.9, 1.2)


@pytest.mark.parametrize("name", ["a100-sxm", "h100-sxm", "mi300x"])
def test_products_of_a_step_take_own_measurements_whether_the_profile_cites_an_efficiency_or_not(name: str) -> None:
    base = load_profile(name)
    own = replace(base, op_corrections={"gemm.bf16": TimeCorrection(3.0, 0.0, 0.9, 1.2)})
    columns = {"m": np.array([4096.0]), "n": np.array([1024.0]), "k": np.array([512.0])}
    predicted = float(kernel_s(base, "gemm", "bf16", columns=columns)[0])
    assert kernels.product_s(own, "bf16", (4096, 1024, 512)) == pytest.approx(3 * predicted)


def test_an_op_that_was_not_measured_here_keeps_its_time_and_the_interval_of_what_predicts_it() -> None:
    fitted = TimeCorrection(2.0, 1e-6, 0.9, 1.2)
    assert find_correction({"gemm.bf16": fitted}, "gemm.bf16", (0.5, 2.0)) is fitted
    identity = find_correction({"gemm.bf16": fitted}, "gemm.f16", (0.5, 2.0))
    assert identity.is_identity
    assert (identity.apply(0.25), identity.low, identity.high) == (0.25, 0.5, 2.0)
