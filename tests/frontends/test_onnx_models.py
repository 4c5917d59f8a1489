"""Models that PyTorch exports to ONNX: the imported graph, whole and as planned on a mesh, gives torch's numbers.

With symbolic dims the file is full of shape arithmetic, which the imported document no longer has.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from planner import Request, pipeline
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.frontends.onnx import build_graph_document
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.judge.analysis import Analysis
from planner.run.executor import SINGLE_DEVICE, run_program, run_whole
from planner.run.validate import validate
from tests.testing.hardware import EAGER
from tests.testing.random_shards import reassembled

torch: Any = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed")
onnx: Any = pytest.importorskip("onnx", reason="onnx is not installed: pip install shardplan[onnx]")
pytest.importorskip("onnxscript", reason="onnxscript is not installed: torch.onnx.export needs it")

pytestmark = pytest.mark.frameworks("torch", "transformers", "onnx")

BATCH, LENGTH, IDS = 2, 8, 40
SIZES = {"batch": BATCH, "length": LENGTH}
TEXT = {"vocab_size": IDS, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32}
SHAPES_IN_ONNX = {"Shape", "Range", "Gather", "Concat", "Unsqueeze", "Squeeze", "Expand"}


def gpt2() -> Any:
    config = transformers.GPT2Config(vocab_size=IDS, n_positions=16, n_embd=16, n_layer=1, n_head=4)
    return transformers.GPT2LMHeadModel(config)


def bert() -> Any:
    return transformers.BertModel(transformers.BertConfig(**TEXT, max_position_embeddings=16), add_pooling_layer=False)


def llama() -> Any:
    config = transformers.LlamaConfig(**TEXT, num_key_value_heads=2, max_position_embeddings=16, use_cache=False)
    return transformers.LlamaForCausalLM(config)


def vit() -> Any:
    sizes = {key: size for key, size in TEXT.items() if key != "vocab_size"}
    return transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=16, patch_size=4), add_pooling_layer=False)


@dataclass(frozen=True)
class Family:
    """How a tiny model is built, what it is called with, and the symbolic dims of that."""

    build: Callable[[], Any]
    images: bool = False
    symbols: tuple[str, ...] = ()

    def example(self) -> Any:
        torch.manual_seed(1)
        return torch.randn(BATCH, 3, 16, 16) if self.images else torch.randint(0, IDS, (BATCH, LENGTH))


MODELS = {
    "gpt2": Family(gpt2, symbols=("batch", "length")),
    "bert": Family(bert),
    "llama": Family(llama, symbols=("batch", "length")),
    "vit": Family(vit, images=True, symbols=("batch",)),
}
MESHES = ("2x4", "2x2x2")
PROGRAMS = [(name, mesh) for name in MODELS for mesh in MESHES]


class First(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    """The first result of a model; `use_cache` is off."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Any) -> Any:
        return self.model(x, **({"use_cache": False} if hasattr(self.model.config, "use_cache") else {}))[0]


@cache
def exported(name: str) -> tuple[Any, Any]:
    """The ONNX model, and torch's result; all parameters are random."""
    family = MODELS[name]
    torch.manual_seed(0)
    module, example = First(family.build().eval()).eval(), family.example()
    for parameter in module.parameters():
        torch.nn.init.uniform_(parameter, -0.6, 0.6)
    symbols = {"dynamic_shapes": (dict(enumerate(family.symbols)),)} if family.symbols else {}
    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        wanted = module(example).numpy()
        program = torch.onnx.export(module, (example,), dynamo=True, input_names=["x"], verbose=False, **symbols)
        return program.model_proto, wanted


@cache
def document(name: str) -> dict[str, Any]:
    sizes = {symbol: SIZES[symbol] for symbol in MODELS[name].symbols}
    return build_graph_document(exported(name)[0], name, sizes)


def graph(name: str, mesh: Mesh = SINGLE_DEVICE) -> Graph:
    return load_graph(validate_document(GraphDocument, document(name), name), mesh)


def arrays(name: str) -> dict[str, Any]:
    """What the model has under the names of the document's inputs."""
    proto = exported(name)[0].graph
    held = {tensor.name: tensor for tensor in proto.initializer}
    held |= {node.output[0]: node.attribute[0].t for node in proto.node if node.op_type == "Constant"}
    known = {key: onnx.numpy_helper.to_array(tensor) for key, tensor in held.items()}
    known["x"] = MODELS[name].example().numpy()
    return {entry["id"]: known[entry["name"]] for entry in document(name)["inputs"]}


def assert_torch_s(name: str, got: Any) -> None:
    wanted = exported(name)[1]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * abs(wanted).max())


@pytest.mark.parametrize("name", MODELS)
def test_the_imported_graph_gives_torch_s_numbers(name: str) -> None:
    values = run_whole(graph(name), arrays(name), np, precision="f64")
    assert_torch_s(name, values[graph(name).outputs[0]])


@pytest.mark.parametrize(("name", "mesh"), PROGRAMS)
def test_a_planned_program_gives_torch_s_numbers(name: str, mesh: str) -> None:
    plan = pipeline.plan(graph(name, Mesh.parse(mesh)), Mesh.parse(mesh), EAGER, request=Request(gap=0.5))
    assert isinstance(plan.analysis, Analysis)
    program = plan.analysis.program
    done = run_program(program, arrays(name), np, precision="f64")
    assert_torch_s(name, reassembled(program, [outputs[0] for outputs in done.outputs], np.float64))
    assert validate(program).verdict == "equal"


@pytest.mark.parametrize("name", [name for name, family in MODELS.items() if family.symbols])
def test_shape_arithmetic_is_gone(name: str) -> None:
    """What is left of whole numbers are positions: of tokens, of rows and columns of the mask."""
    proto = exported(name)[0]
    assert {"Shape", "Concat"} <= {node.op_type for node in proto.graph.node} & SHAPES_IN_ONNX
    tiny = [n for n in document(name)["nodes"] if n["outputs"][0]["dtype"] == "i64" and n["outputs"][0]["shape"] == [1]]
    assert not tiny


@pytest.mark.parametrize("name", MODELS)
def test_scopes_are_module_paths(name: str) -> None:
    scopes = {node["scope"] for node in document(name)["nodes"]}
    layer = {"gpt2": "h.0", "bert": "layer.0", "llama": "layers.0", "vit": "layers.0"}[name]
    assert any(layer in scope for scope in scopes), sorted(scopes)


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_parameters_under_names_of_the_model(name: str) -> None:
    proto = exported(name)[0]
    weights = {tensor.name for tensor in proto.graph.initializer}
    parameters = [entry for entry in document(name)["inputs"] if entry["kind"] == "parameter"]
    assert parameters
    assert {entry["name"] for entry in parameters} <= weights
    assert [entry["name"] for entry in document(name)["inputs"] if entry["kind"] == "input"] == ["x"]
