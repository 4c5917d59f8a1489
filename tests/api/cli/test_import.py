"""`import`: the documents that the commands write, and what their options change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner.documents.json_reader import read_json
from tests.testing.command_line import refused, shardplan

SIZES = {"n_embd": 16, "n_head": 2, "vocab_size": 24, "n_positions": 8}
ZOO = ("gpt2", "--layers", 1, "--dtype", "f32")
STATES = {
    None: set(),
    "sgd": set(),
    "sgd-momentum": {"momentum_buffer"},
    "adam": {"exp_avg", "exp_avg_sq", "step"},
    "adamw:lr=3e-4,weight_decay=0.1": {"exp_avg", "exp_avg_sq", "step"},
    "adafactor": {"row_var", "col_var", "variance", "step"},
}

torch = pytest.mark.frameworks("transformers")


def imported(folder: Path, *words: object) -> dict[str, Any]:
    told = shardplan("import", *words, "-o", folder / "graph.json.gz", "--json")
    assert told.code == 0, told.err
    document: dict[str, Any] = read_json(folder / "graph.json.gz")
    assert (told.json["nodes"], told.json["inputs"]) == (len(document["nodes"]), len(document["inputs"]))
    return document


def trained(document: dict[str, Any]) -> set[str]:
    """The names of the optimizer's states, without those of their parameters; every one is given back."""
    states = [entry for entry in document["inputs"] if entry["kind"] == "optimizer_state"]
    assert all("next" in entry for entry in states)
    return {entry["name"].rpartition(".")[2] for entry in states}


@pytest.mark.parametrize("train", STATES)
def test_a_model_of_the_zoo_is_trained_by_the_optimizer_asked_for(train: str | None, tmp_path: Path) -> None:
    document = imported(tmp_path, "zoo", *ZOO, *(("--train", train) if train else ()))
    assert trained(document) == STATES[train]
    assert ("update" in {node["phase"] for node in document["nodes"]}) == (train is not None)


@torch
def test_a_model_of_transformers_has_the_sizes_and_the_optimizer_asked_for(tmp_path: Path) -> None:
    sizes = ("--layers", 1, "--batch", 2, "--seq", 8, "--dtype", "bf16")
    config = [word for name, size in SIZES.items() for word in ("--config", f"{name}={size}")]
    words = ("torch", "--model", "transformers:gpt2", *config, *sizes, "--train", "sgd-momentum")
    document = imported(tmp_path, *words)
    inputs = {entry["name"]: entry for entry in document["inputs"]}
    assert inputs["transformer.wte.weight"]["shape"] == [24, 16]
    assert inputs["transformer.wte.weight"]["dtype"] == "bf16"
    assert trained(document) == STATES["sgd-momentum"]


BAD = [
    (("zoo", "gpt2", "--train", "adagrad"), "wanted one of sgd, sgd-momentum"),
    (("zoo", "gpt2", "--train", "adamw:rate=1"), "wanted one of lr, beta1"),
    (("zoo", "gpt2", "--train", "adamw:lr"), "wanted name=number"),
    (("zoo", "gpt2", "--train", "sgd", "--clip-grad-norm", "0"), "--clip-grad-norm"),
    (("zoo", "gpt2", "--train", "sgd", "--master", "f64"), "--master"),
    (("zoo", "gpt2", "--clip-grad-norm", "1"), "clip_grad_norm: train"),
    (("torch", "--model", "transformers:gpt2", "--config", "width"), "wanted name=value"),
    (("torch", "--model", "transformers:gpt2", "--train", "adagrad"), "wanted one of"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_invalid_options_are_refused(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    refused(shardplan("import", *words, "-o", tmp_path / "graph.json"), message)
    assert not (tmp_path / "graph.json").exists()
