"""Whole models: the imported graph, whole and as planned on a mesh, gives torch's logits.

Models are tiny and have the framework's own weights. Plans are made under a limit at which parameters have to be
sharded; random options also try what no plan would choose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from planner import Request, pipeline
from planner.choose import hardware
from planner.choose.cost import CostModel
from planner.choose.formulate import Formulation, formulate
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.frontends.torch import import_torch
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Program, Reshard
from planner.ir.sharding import shard_bounds
from planner.run.executor import SINGLE_DEVICE, run_program, run_whole
from tests.testing.random_shards import reassembled
from tests.testing.random_strategies import random_strategies

torch = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install shardplan[torch]")

pytestmark = pytest.mark.frameworks("torch", "transformers")

BATCH, SEQ, LAYERS, VOCABULARY = 4, 16, 2, 101
SIZES = {"hidden_size": 32, "num_attention_heads": 4, "vocab_size": VOCABULARY, "max_position_embeddings": 64}
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": SIZES | NO_TOKENS,
    "llama": SIZES | NO_TOKENS | {"intermediate_size": 48, "num_key_value_heads": 2},
}
MODELS = [("gpt2", "f32"), ("gpt2", "f64"), ("llama", "f32")]
PROGRAMS = [("gpt2", "f32", "2x4"), ("gpt2", "f64", "2x2x2"), ("llama", "f32", "2x4"), ("llama", "f32", "2x2x2")]
TOLERANCE = {"f32": 1e-5, "f64": 1e-12}
SEEDS = [0, 1]
HARDWARE = hardware.load_profile("h100-sxm")


@dataclass(frozen=True)
class Model:
    """A graph document with the framework's arrays for its inputs, and the framework's logits."""

    document: GraphDocument
    arrays: dict[str, Any]
    logits: Any
    dtype: str

    def graph(self, mesh: Mesh = SINGLE_DEVICE) -> Graph:
        return load_graph(self.document, mesh)


@cache
def model(kind: str, dtype: str) -> Model:
    """A fresh model has zeros as biases; here all parameters are random."""
    config = CONFIGS[kind]
    document = import_torch(f"transformers:{kind}", batch=BATCH, seq=SEQ, layers=LAYERS, dtype=dtype, config=config)
    torch.manual_seed(0)
    settings = transformers.CONFIG_MAPPING[kind](**config, num_hidden_layers=LAYERS)
    module = transformers.AutoModelForCausalLM.from_config(
        settings, dtype={"f32": torch.float32, "f64": torch.float64}[dtype]
    ).eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    ids = torch.randint(VOCABULARY, (BATCH, SEQ))
    tensors = dict(module.named_parameters()) | dict(module.named_buffers()) | {"input_ids": ids}
    arrays = {entry["id"]: tensors[entry["name"]].detach().numpy() for entry in document["inputs"]}
    logits = module(input_ids=ids, use_cache=False).logits.detach().numpy()
    return Model(validate_document(GraphDocument, document, kind), arrays, logits, dtype)


def planned(of: Model, mesh: Mesh) -> Program:
    """A program that does not need to be the fastest, under a limit of three quarters of the inputs' bytes."""
    limit = sum(array.nbytes for array in of.arrays.values()) * 3 // 4
    found = pipeline.plan(of.graph(mesh), mesh, HARDWARE, request=Request(limit, gap=0.5))
    assert found.analysis is not None
    return found.analysis.program


@cache
def question(kind: str, dtype: str, mesh: str) -> Formulation:
    shape = Mesh.parse(mesh)
    return formulate(model(kind, dtype).graph(shape), CostModel(shape, HARDWARE))


def random_program(asked: Formulation, seed: int) -> Program:
    """Any option of any op, any layout of any input, output and shared value."""
    strategies = random_strategies(asked, np.random.default_rng(seed))
    return pipeline.write_program(asked, asked.decode(strategies))


def assert_torch_s_logits(of: Model, got: Any) -> None:
    assert (got.shape, got.dtype) == (of.logits.shape, of.logits.dtype)
    assert abs(got - of.logits).max() <= TOLERANCE[of.dtype] * abs(of.logits).max()


def assert_spreads(program: Program) -> None:
    """Data moves, and every device holds less than all arguments."""
    assert any(isinstance(done, Reshard) for done in program.instructions)
    values = [program.values[name] for name, _ in program.arguments]
    bounds = [shard_bounds(value.sharding, value.type.shape, program.mesh) for value in values]
    held = sum((part[..., 1] - part[..., 0]).prod(axis=1) for part in bounds)
    assert held.max() < sum(math.prod(value.type.shape) for value in values)


def assert_runs_to_torch_s_logits(of: Model, program: Program) -> None:
    assert_spreads(program)
    done = run_program(program, of.arrays, np, precision=of.dtype)
    shards = [outputs[0] for outputs in done.outputs]
    assert_torch_s_logits(of, reassembled(program, shards, of.logits.dtype))


@pytest.mark.parametrize(("kind", "dtype"), MODELS)
def test_the_imported_graph_gives_torch_s_logits(kind: str, dtype: str) -> None:
    of = model(kind, dtype)
    graph = of.graph()
    values = run_whole(graph, of.arrays, np, precision=dtype)
    assert_torch_s_logits(of, values[graph.outputs[0]])


@pytest.mark.parametrize(("kind", "dtype", "mesh"), PROGRAMS)
def test_a_planned_program_gives_torch_s_logits(kind: str, dtype: str, mesh: str) -> None:
    of = model(kind, dtype)
    assert_runs_to_torch_s_logits(of, planned(of, Mesh.parse(mesh)))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("kind", "dtype", "mesh"), PROGRAMS[:3])
def test_a_program_of_random_choices_gives_torch_s_logits(kind: str, dtype: str, mesh: str, seed: int) -> None:
    program = random_program(question(kind, dtype, mesh), seed)
    assert_runs_to_torch_s_logits(model(kind, dtype), program)
