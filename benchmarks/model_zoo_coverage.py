"""Measures which PyTorch models the torch frontend imports: tiny models of transformers, and plain modules.

Every model is imported, as a forward pass and as a training step, in a child process with a time limit. The outcome is
`complete` (every call has a row), `replicated` (with the calls that have none), `refused` (with the designed error),
`not exportable` (refused because torch.export cannot trace or differentiate it), `failed` (any other error: a defect)
or `timeout`. A document is loaded as a graph, but not planned.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.plain_modules import MODULES
from benchmarks.record import write
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.errors import ShardplanError
from planner.frontends.torch import build_module_document, import_torch
from planner.frontends.uncovered_ops import UnknownOpWarning
from planner.ir.mesh import Mesh

LIMIT_S = 90
SIZES = {
    2: "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_decoder_layers "
    "num_encoder_layers encoder_num_layers decoder_num_layers num_key_value_heads num_experts_per_tok",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_experts "
    "num_local_experts n_routed_experts",
    16: "head_dim d_kv attention_head_size embedding_size_per_head",
    32: "image_size patch_embed_dim",
    64: "hidden_size d_model n_embd dim embedding_size hidden_dim emb_dim",
    128: "vocab_size intermediate_size d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim n_inner moe_intermediate_size "
    "shared_expert_intermediate_size max_position_embeddings n_positions",
    0: "pad_token_id",
    1: "bos_token_id decoder_start_token_id",
}
OVERRIDES = {name: size for size, names in SIZES.items() for name in names.split()}
LAYERS = {name: size for name, size in OVERRIDES.items() if "layer" in name}
ATTEMPTS: tuple[dict[str, int], ...] = (
    OVERRIDES,
    {name: size for name, size in OVERRIDES.items() if name != "head_dim"},
    LAYERS,
    {},
)
"""The sizes of tiny instances. Not every configuration takes them all: the first that can be exported is used."""
CANNOT_EXPORT = ("model cannot be built", "torch.export cannot trace", "torch cannot differentiate")
Outcome = tuple[str, str]


def list_types() -> list[str]:
    """Return the types of transformers whose default configuration is that of one model with a head we train."""
    from transformers import (
        CONFIG_MAPPING,
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
        MODEL_FOR_MASKED_LM_MAPPING,
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    )

    heads = (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
        MODEL_FOR_MASKED_LM_MAPPING,
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    )
    return sorted(kind for kind in CONFIG_MAPPING if any(CONFIG_MAPPING[kind] in head for head in heads))


def import_type(kind: str, train: str | None) -> dict[str, Any]:
    """Return the document of a tiny instance of a type of transformers."""
    for sizes in ATTEMPTS[:-1]:
        try:
            return _import_sized(kind, train, sizes)
        except ShardplanError as refusal:
            if not is_not_exportable(str(refusal)):
                raise
    return _import_sized(kind, train, ATTEMPTS[-1])


def _import_sized(kind: str, train: str | None, sizes: Mapping[str, int]) -> dict[str, Any]:
    from transformers import CONFIG_MAPPING

    given = CONFIG_MAPPING[kind]()
    config = {name: size for name, size in sizes.items() if _has_size(given, name)}
    return import_torch(f"transformers:{kind}", batch=2, seq=16, config=config, train=train)


def _has_size(config: Any, name: str) -> bool:
    try:
        return isinstance(getattr(config, name, None), int) or (name.endswith("_token_id") and hasattr(config, name))
    except Exception:  # noqa: BLE001 - some configurations refuse to name a size that differs from layer to layer
        return False


def is_not_exportable(refusal: str) -> bool:
    """Return whether a refusal says that torch or transformers, not shardplan, cannot do it."""
    return any(each in refusal for each in CANNOT_EXPORT)


def import_module(name: str, train: str | None) -> dict[str, Any]:
    """Return the document of one of `benchmarks.plain_modules`."""
    import torch

    module, args = MODULES[name](train is not None)
    with torch.set_grad_enabled(train is not None):
        return build_module_document(module.eval(), args, {}, train=train)


def classify(build: Callable[[], dict[str, Any]]) -> Outcome:
    """Return the outcome of an import and the calls or the error that it names."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        try:
            load_graph(GraphDocument.model_validate(build()), Mesh.parse("2"))
        except ShardplanError as refusal:
            return "not exportable" if is_not_exportable(str(refusal)) else "refused", str(refusal)[:400]
        except Exception as failure:  # noqa: BLE001 - any other error is a defect, and counted
            return "failed", f"{type(failure).__name__}: {failure}"[:400]
    named = [str(each.message) for each in raised if issubclass(each.category, UnknownOpWarning)]
    calls = sorted(set(re.findall(r"(\S+?)(?: \([^;]*\))?, \d+x at", " ".join(named))))
    return ("replicated", ", ".join(calls)) if named else ("complete", "")


def _run(pipe: Connection, name: str, train: str | None) -> None:
    pipe.send(classify(lambda: (import_module if name in MODULES else import_type)(name, train)))


def import_in_child(name: str, train: str | None, limit_s: float = LIMIT_S) -> Outcome:
    """Return the outcome of a model, which a child process imports."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_run, args=(theirs, name, train))
    child.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(limit_s) else ("timeout", f"after {limit_s} s")
    except EOFError:
        return "failed", f"the process ended with {child.exitcode}"
    finally:
        child.kill()
        child.join()


def measure(names: list[str]) -> Iterator[dict[str, str]]:
    for name in names:
        for step, train in (("forward", None), ("training", "adamw")):
            outcome, detail = import_in_child(name, train)
            print(name, step, outcome, detail, flush=True)
            yield {"model": name, "step": step, "outcome": outcome, "detail": detail}


def main() -> None:
    """Import all models, or those that are named, and write results/model_zoo_coverage.json for all."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*")
    names = parser.parse_args().names
    logging.disable()  # torch and transformers print the trace of every model that cannot be exported
    import torch
    import transformers

    torch.set_num_threads(1)
    rows = list(measure(names or [*MODULES, *list_types()]))
    counts = {
        step: dict(Counter(row["outcome"] for row in rows if row["step"] == step)) for step in ("forward", "training")
    }
    print(counts)
    if not names:
        versions = {"torch": torch.__version__.partition("+")[0], "transformers": transformers.__version__}
        write("model_zoo_coverage", {"versions": versions, "counts": counts, "models": rows}, show=False)


if __name__ == "__main__":
    main()
