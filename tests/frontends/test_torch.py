"""Documents imported from PyTorch models, and the refusals."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidGraph, InvalidRequest, UnsupportedOp
from planner.frontends.torch import build_graph_document, build_module_document, import_torch
from planner.frontends.uncovered_ops import UnknownOpWarning
from planner.ir.indexing import LoopKind
from planner.ir.mesh import Mesh
from tests.testing.torch_modules import Linked

torch: Any = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
pytest.importorskip("transformers", reason="transformers is not installed: pip install shardplan[torch]")

pytestmark = pytest.mark.frameworks("torch", "transformers")

GPT2 = "transformers:gpt2"
LAYERS, WIDTH = 2, 768
OPS_OF_TWO_LAYERS = {
    "addmm": 4 * LAYERS,
    "linear": 1,
    "scaled_dot_product_attention": LAYERS,
    "layer_norm": 2 * LAYERS + 1,
    "embedding": 2,
    "split": LAYERS,
    "gelu": LAYERS,
}
REFUSED_MODELS = [
    ("gpt2", "wanted transformers:<model type> or module:function"),
    ("transformers:nothing", "wanted a type of language models or image classifiers"),
    ("no_such_module:build", "No module named 'no_such_module'"),
    ("json:dumps", "model cannot be built"),
    ("builtins:dict", "wanted (module, args, kwargs)"),
]
NAN, X = float("nan"), torch.ones(2, 3)
NOT_NUMBERS = [
    (lambda x: x * NAN, "aten.mul.Tensor (scalar nan"),
    (lambda x: NAN - x, "aten.rsub.Scalar (scalar nan"),
    (lambda x: torch.add(x, x, alpha=NAN), "aten.add.Tensor (scalar nan"),
    (lambda x: x == NAN, "aten.eq.Scalar (scalar nan"),
    (lambda x: x.clamp(max=NAN), "aten.clamp.default (scalar nan"),
    (lambda x: x.masked_fill(x > 0, NAN), "aten.masked_fill.Scalar (value nan"),
    (lambda x: torch.where(x > 0, x, NAN), "aten.where.ScalarOther (value nan"),
    (lambda x: x + torch.full((3,), NAN), "aten.full.default (value nan"),
    (lambda x: x + torch.tensor(NAN), "(value nan"),
    (lambda x: torch.nn.functional.layer_norm(x, (3,), eps=float("inf")), "aten.layer_norm.default (eps inf"),
    (lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x, scale=NAN), "(scale nan"),
]
WITHOUT = """
import sys
sys.modules[{missing!r}] = None
from planner.errors import ShardplanError
from planner.frontends.torch import import_torch
try:
    import_torch("transformers:gpt2", batch=1, seq=8)
except ShardplanError as error:
    raise SystemExit(str(error))
"""


class Gammas(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Two calls outside the table, one of them behind the other."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Identity()
        self.inner.forward = lambda x: x.lgamma()

    def forward(self, x: Any) -> Any:
        return self.inner(x).digamma()


class Calls(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def exported(module: Any, *args: Any, **options: Any) -> Any:
    return torch.export.export(module.eval(), args, strict=False, **options)


@pytest.fixture(scope="module")
def gpt2() -> dict[str, Any]:
    return import_torch(GPT2, batch=8, seq=512, layers=LAYERS)


def test_gpt2_consists_of_the_ops_that_its_architecture_says(gpt2: dict[str, Any]) -> None:
    counts = Counter(node["op"] for node in gpt2["nodes"])
    assert {op: counts[op] for op in OPS_OF_TWO_LAYERS} == OPS_OF_TWO_LAYERS


def test_every_layer_of_gpt2_has_the_same_ops() -> None:
    document = import_torch(GPT2, batch=1, seq=8, layers=3)
    layers = [
        [(node["op"], node["attrs"], node["outputs"]) for node in document["nodes"] if scope in node["scope"]]
        for scope in ("h.0", "h.1", "h.2")
    ]
    assert layers[0]
    assert layers[0] == layers[1] == layers[2]


def test_attention_of_gpt2_is_causal_without_a_mask(gpt2: dict[str, Any]) -> None:
    attention = [node for node in gpt2["nodes"] if node["op"] == "scaled_dot_product_attention"]
    assert {(len(node["inputs"]), node["attrs"]["causal"]) for node in attention} == {(3, True)}


def test_every_parameter_of_gpt2_is_one_input_under_its_own_name(gpt2: dict[str, Any]) -> None:
    names = [entry["name"] for entry in gpt2["inputs"] if entry["kind"] == "parameter"]
    assert len(names) == len(set(names)) == 12 * LAYERS + 4
    assert names[0] == "transformer.wte.weight"
    assert "lm_head.weight" not in names
    assert "transformer.h.1.mlp.c_fc.bias" in names


def test_scopes_are_module_paths(gpt2: dict[str, Any]) -> None:
    assert {node["scope"] for node in gpt2["nodes"] if node["op"] == "addmm"} == {
        f"transformer.h.{layer}.{part}"
        for layer in range(LAYERS)
        for part in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    }


def test_the_output_is_the_logits(gpt2: dict[str, Any]) -> None:
    (output,) = gpt2["outputs"]
    (node,) = [node for node in gpt2["nodes"] if node["id"] == output]
    assert node["outputs"] == [{"shape": [8, 512, 50257], "dtype": "f32"}]


def test_every_dim_is_a_plain_int(gpt2: dict[str, Any]) -> None:
    tensors = gpt2["inputs"] + [result for node in gpt2["nodes"] for result in node["outputs"]]
    assert {type(dim) for tensor in tensors for dim in tensor["shape"]} == {int}


def test_every_value_is_made_before_it_is_read(gpt2: dict[str, Any]) -> None:
    known = {entry["id"] for entry in gpt2["inputs"]}
    for node in gpt2["nodes"]:
        assert set(node["inputs"]) <= known
        made = {node["id"], *(f"{node['id']}:{k}" for k in range(1, len(node["outputs"])))}
        assert not made & known
        known |= made


def test_two_imports_give_identical_bytes(gpt2: dict[str, Any]) -> None:
    again = import_torch(GPT2, batch=8, seq=512, layers=LAYERS)
    assert json.dumps(again, allow_nan=False) == json.dumps(gpt2, allow_nan=False)


def test_no_weight_is_allocated() -> None:
    from planner.frontends.torch import capture

    program = capture.export_model(GPT2, 1, 8, options=capture.CaptureOptions(layers=1))
    assert {tensor.device.type for tensor in program.state_dict.values()} == {"meta"}


def test_options_override_the_configuration() -> None:
    document = import_torch(GPT2, batch=1, seq=8, layers=1, dtype="bf16", config={"vocab_size": 50300})
    (table,) = [entry for entry in document["inputs"] if entry["name"] == "transformer.wte.weight"]
    assert (table["shape"], table["dtype"]) == ([50300, WIDTH], "bf16")


def test_tied_weights_are_one_input_and_unused_weights_are_dropped() -> None:
    document = build_graph_document(exported(Linked(), torch.zeros(2, 4)), "linked")
    assert [entry["name"] for entry in document["inputs"]] == ["first.weight", "x"]


def test_calls_without_a_row_are_planned_replicated_and_every_one_is_named() -> None:
    with pytest.warns(UnknownOpWarning, match=r"gammas: planned replicated") as caught:
        document = build_graph_document(exported(Gammas(), torch.zeros(2, 4)), "gammas")
    said = str(caught[0].message)
    assert re.search(r"aten\.digamma\.default, 1x at the model itself \(test_torch\.py:\d+\)", said)
    assert re.search(r"aten\.lgamma\.default, 1x at inner \(test_torch\.py:\d+\)", said)
    graph = load_graph(GraphDocument.model_validate(document), Mesh.parse("2x4"))
    assert [op.op for op in graph.ops] == ["aten.lgamma.default", "aten.digamma.default"]
    assert all(loop.kind is LoopKind.BLOCKED for op in graph.ops for loop in op.rule.loops)


def test_arguments_that_a_row_does_not_take_are_planned_replicated_and_named_with_the_reason() -> None:
    named = r"bins: planned replicated.*aten\.histc\.default \(bins of .*\), 1x at .*\(test_torch\.py:\d+\)"
    with pytest.warns(UnknownOpWarning, match=named):
        document = build_graph_document(exported(Calls(lambda x: x.histc(4, 0, 2)), X), "bins")
    assert [node["op"] for node in document["nodes"]] == ["aten.histc.default"]


def test_dtypes_that_no_document_has_are_refused_with_their_place() -> None:
    with pytest.raises(UnsupportedOp, match=r"wide: torch ops .*\(dtype torch\.float8_e4m3fnuz\), 1x at .*") as caught:
        build_graph_document(exported(Calls(lambda x: x.to(torch.float8_e4m3fnuz)), X), "wide")
    assert "test_torch.py:" in str(caught.value)
    assert "aten.addmm.default" in caught.value.__notes__[1]


@pytest.mark.parametrize("train", [None, "sgd"])
@pytest.mark.parametrize("function", [lambda x: torch.complex(x, x).sqrt(), lambda x: torch.fft.fft(x).tan()])
def test_complex_calls_without_real_parts_are_refused_with_what_to_write_instead(
    function: Callable[..., Any], train: str | None
) -> None:
    with pytest.raises(UnsupportedOp, match=r"complex numbers.*torch\.fft makes") as caught:
        build_module_document(Calls(lambda x: function(x).abs().sum()), (X,), {}, train=train)
    assert "test_torch.py:" in str(caught.value)


@pytest.mark.parametrize("train", [None, "sgd"])
@pytest.mark.parametrize("function", [lambda x: x[x > 0], torch.nonzero, torch.unique, lambda x: x * x.max().item()])
def test_shapes_and_numbers_that_depend_on_data_are_refused(function: Callable[..., Any], train: str | None) -> None:
    with pytest.raises(UnsupportedOp, match=r"depends on data.*wanted .*torch\.where") as caught:
        build_module_document(Calls(lambda x: function(x).float().sum()), (X,), {}, train=train)
    assert re.search(r"the model itself \(\w+\.py:\d+\)", str(caught.value))


def connectionist_loss(x: torch.Tensor) -> torch.Tensor:
    labels, two = torch.ones(1, 2, dtype=torch.int64), torch.full((1,), 2)
    return torch.nn.functional.ctc_loss(x[:, None].log_softmax(-1), labels, two, two)


# What torch refuses while it traces, with what the message calls it.
REFUSED_BY_TORCH: list[tuple[Callable[..., Any], str]] = [
    (lambda x: x + 1 if x.sum() > 0 else x, "a branch"),
    (connectionist_loss, r"aten\._ctc_loss\.Tensor"),
]


@pytest.mark.parametrize("train", [None, "sgd"])
@pytest.mark.parametrize(("function", "got"), REFUSED_BY_TORCH)
def test_what_torch_cannot_trace_for_its_data_is_refused_with_its_line(
    function: Callable[..., Any], got: str, train: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    said = rf"depends on data \(got {got} \(test_torch\.py:\d+\); wanted .*torch\.where in place of a branch"
    with pytest.raises(UnsupportedOp, match=said):
        build_module_document(Calls(lambda x: function(x).sum()), (X,), {}, train=train)
    assert "def forward" not in capfd.readouterr().err


def test_control_flow_is_refused_with_its_line() -> None:
    function = Calls(lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)))
    with pytest.raises(UnsupportedOp, match=r"cond \(a branch: write torch\.where of both results\)"):
        build_graph_document(torch.export.export(function, (X,)), "cond")


def test_a_result_that_is_no_loss_cannot_be_trained() -> None:
    with pytest.raises(InvalidGraph, match=r"wanted a loss: one floating-point number"):
        build_module_document(torch.nn.Linear(4, 4), (X[:, :1].expand(2, 4),), {}, train="sgd")


def test_dynamic_dims_are_refused() -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    program = exported(torch.nn.Linear(4, 4), torch.zeros(8, 4), dynamic_shapes=({0: rows},))
    with pytest.raises(InvalidGraph, match="dynamic dim"):
        build_graph_document(program, "dynamic")


@pytest.mark.parametrize(("function", "message"), NOT_NUMBERS)
def test_a_scalar_that_is_no_finite_number_is_refused(function: Callable[..., Any], message: str) -> None:
    program = exported(Calls(function), X)
    with pytest.raises(UnsupportedOp) as caught:
        build_graph_document(program, "scalars")
    assert message in str(caught.value)
    assert "wanted a finite number" in str(caught.value)


@pytest.mark.parametrize(("model", "message"), REFUSED_MODELS)
def test_a_model_that_cannot_be_built_is_refused(model: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        import_torch(model, batch=1, seq=8)
    assert message in str(caught.value)


def test_a_configuration_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"model cannot be built.*Padding_idx"):
        import_torch("transformers:llama", batch=1, seq=8, layers=1, config={"vocab_size": 8, "pad_token_id": 9})


def test_more_positions_than_the_model_has_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="at most 1024 positions"):
        import_torch(GPT2, batch=1, seq=1025, layers=1)


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_a_missing_package_is_named_with_the_extra_that_brings_it(missing: str) -> None:
    script = WITHOUT.format(missing=missing)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.stderr.strip().splitlines()[-1] == (
        f"import torch: {missing} is not installed (wanted pip install shardplan[torch])"
    )
