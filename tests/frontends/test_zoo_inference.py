"""Inference graphs of the zoo: decoding after a prefill gives the logits of the whole sequence, sharded or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner import pipeline
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidRequest
from planner.frontends.zoo import MODELS, import_zoo
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.planning.plan_types import Request
from planner.run.executor import run_whole
from planner.run.inputs import random_inputs
from planner.usecases.capacity_workloads import read_workload
from tests.testing.command_line import shardplan

MESH = Mesh.parse("2x2")
PEAK_BYTES_RATE = 3.35e12  # of an H100 SXM, by its datasheet
BATCH, TOKENS, VOCABULARY = 4, 7, 24
SIZES = {"layers": 2, "width": 16, "heads": 4, "feed_forward": 24, "vocabulary": VOCABULARY}
FEW = {"experts": 4, "active": 2}
# Model, and sizes beside SIZES. Experts have room for every token, as the groups that compete differ.
CASES: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", {}),
    ("llama-3-8b", {}),
    ("qwen3-8b", {"head_width": 8}),
    ("gemma-3-12b", {"head_width": 8, "window": 4, "global_every": 2}),
    ("gpt-oss-20b", {**FEW, "head_width": 8, "window": 4, "expert_width": 12, "capacity": 2.0}),
    ("mixtral-8x7b", {**FEW, "capacity": 2.0}),
]
# Options, and words of the message.
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("gpt2", {"prefill": True, "decode": True}, "one of prefill, decode and train"),
    ("gpt2", {"decode": True, "train": "adamw"}, "one of prefill, decode and train"),
    ("deepseek-v3", {"decode": True, "layers": 2}, "without latent attention"),
]


def graph(name: str, sizes: dict[str, Any], tokens: int, **kind: Any) -> Graph:
    document = import_zoo(name, batch=BATCH, seq=tokens, dtype="f64", **SIZES | sizes, **kind)
    return load_graph(GraphDocument.model_validate(document), MESH)


def run(graph: Graph, arrays: dict[str, Any]) -> list[Any]:
    values = run_whole(graph, {entry.id: arrays[entry.id] for entry in graph.inputs}, np, precision="f64")
    return [values[name] for name in graph.outputs]


@pytest.mark.parametrize(("name", "sizes"), CASES)
def test_decoding_after_a_prefill_gives_the_logits_of_the_whole_sequence(name: str, sizes: dict[str, Any]) -> None:
    whole = graph(name, sizes, TOKENS + 1)
    arrays = random_inputs(whole, np, "f64", seed=3)
    arrays["input_ids"] = np.arange(BATCH * (TOKENS + 1)).reshape(BATCH, TOKENS + 1) % VOCABULARY
    (wanted,) = run(whole, arrays)
    tables = {key: array[:TOKENS] for key, array in arrays.items() if "rotary" in key}
    before = arrays | tables | {"input_ids": arrays["input_ids"][:, :TOKENS]}
    logits, *kept = run(graph(name, sizes, TOKENS, prefill=True), before)
    assert logits == pytest.approx(wanted[:, TOKENS - 1 : TOKENS], rel=1e-9, abs=1e-12)
    step = graph(name, sizes, TOKENS, decode=True)
    caches = [entry.id for entry in step.inputs if entry.id.endswith("_cache")]
    assert len(caches) == len(kept) == 2 * SIZES["layers"]
    given = arrays | dict(zip(caches, kept, strict=True)) | {"length": np.array(TOKENS)}
    logits, length, *written = run(step, given | {"input_ids": arrays["input_ids"][:, TOKENS:]})
    assert logits == pytest.approx(wanted[:, TOKENS:], rel=1e-9, abs=1e-12)
    assert length == TOKENS + 1
    assert [each.shape[-2] for each in written] == [1] * len(caches)


def test_keys_beyond_the_length_do_not_count() -> None:
    step = graph("llama-3-8b", {}, TOKENS, decode=True)
    arrays = random_inputs(step, np, "f64", seed=1) | {"length": np.array(3)}
    other = {
        key: np.concatenate([array[..., :3, :], array[..., 3:, :] + 9], axis=-2)
        for key, array in arrays.items()
        if key.endswith("_cache")
    }
    assert run(step, arrays)[0] == pytest.approx(run(step, arrays | other)[0])


@pytest.mark.parametrize("kind", ["prefill", "decode"])
@pytest.mark.parametrize("name", ["gpt2", "llama-3-8b", "gpt-oss-20b"])
def test_an_inference_graph_is_planned_and_runs_as_it_does_unsharded(name: str, kind: str) -> None:
    asked = graph(name, dict(CASES)[name], TOKENS, **{kind: True})
    plan = pipeline.plan(asked, MESH, load_profile("h100-sxm"), request=Request(gap=0.1))
    verdict = pipeline.validate_plan(plan).verdict
    assert verdict is not None
    assert verdict.verdict == "equal"
    assert verdict.counted_bytes == verdict.predicted_bytes
    assert verdict.counted_peak_bytes == verdict.predicted_peak_bytes


def test_a_decode_step_holds_the_cache_once_and_reads_it() -> None:
    """Twice the tokens: twice the cache, and a step that is longer by reading it."""
    model, mesh = MODELS["llama-3-8b"], Mesh.parse("1")
    plans = []
    for tokens in (4096, 8192):
        document = import_zoo("llama-3-8b", batch=16, seq=tokens, layers=2, decode=True)
        asked = load_graph(GraphDocument.model_validate(document), mesh)
        plans.append(pipeline.plan(asked, mesh, load_profile("h100-sxm"), request=Request()).analysis)
    short, long = plans
    assert short is not None
    assert long is not None
    cache = 2 * 2 * 16 * 4096 * model.kv_heads * model.head * 2
    assert long.peak_bytes - short.peak_bytes == pytest.approx(cache, rel=0.01)
    longer_s = (long.step_ps - short.step_ps) * 1e-12
    assert cache / PEAK_BYTES_RATE < longer_s < cache / load_profile("h100-sxm").bytes_rate


@pytest.mark.parametrize(("name", "options", "words"), WRONG)
def test_graphs_that_cannot_be_are_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        import_zoo(name, batch=2, seq=4, **options)


def test_a_step_of_decoding_counts_one_token_a_sequence() -> None:
    document = import_zoo("gpt2", batch=4, seq=16, layers=1, decode=True)
    assert read_workload(document).tokens == 4


@pytest.mark.slow
def test_capacity_ranks_batches_of_decoding() -> None:
    done = shardplan(
        *("capacity", "gpt2", "--layers", 1, "--decode", "--batch", "8,16", "--seq", 64, "--devices", "1,2"),
        *("--hardware", "h100-sxm", "--json"),
    )
    assert done.code == 0, done.err
    best = done.json["fastest"]
    assert best["tokens_per_s"] * best["objective_s"] in (8, pytest.approx(16))
