"""Compares predicted with published seconds of whole training steps whose layout is stated.

`python -m benchmarks.published_steps`. A row of data/steps.json is compared where its source states model, layout,
micro batch, precision and recomputation, and all of it can be written as a graph and shardings (`why_not` says which
rows are left out, and why). No constant is fitted to these rows.

    step = (m + (p - 1) / v) (micro + sends) + update

There are m micro batches, and p pipeline stages in v parts each (Narayanan et al., 2021: the bubble of 1F1B). `micro`
is forward and backward of the stage with the most work, which has the embedding and the head; its collectives overlap
with ops (`planner.judge.overlap_schedule`), less what the overlap slows the ops down. `sends` are 2 v activations
between nodes. `update` is Adam on what a device stores. Full recomputation adds one more forward pass of all layers,
each before the layer's backward.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.record import write
from planner.choose.hardware import Hardware, load_profile
from planner.choose.hardware.network import exchange_s
from planner.frontends.zoo.models import Model
from planner.usecases.steps.micro_batches import Placement, price_micro_batch

DATA = Path(__file__).parent / "data" / "steps.json"
Row = dict[str, Any]
KEPT = ("id", "source", "model", "device", "devices", "seq", "micro_batch", "remat")
UNSTATED = "h100-96-hbm2e-500w"
"""A part of which its source does not know the peak: between the SXM's and the NVL's, at less power (Liang et al.,
TorchTitan, 2024, arXiv:2410.06511). It is compared at the SXM's rates all the same."""
CLOSE = 0.01
"""Published speeds that differ by less than this share are not ordered."""
ALIKE = ("model", "source", "device", "seq", "compile")
"""Properties that two layouts must share to be compared as a pair."""
TABLE = "table"
"""The column that separates runs of a source: llm-foundry published those on 128 or more devices later, separately."""
MPT = {"mpt-7b": (32, 4096, 32), "mpt-13b": (40, 5120, 40), "mpt-30b": (48, 7168, 64), "mpt-70b": (80, 8192, 64)}
"""Layers, width and heads (llm-foundry, scripts/train/yamls/pretrain); the parameters published agree."""
TITLES = {
    "korthikanti2022": "Megatron-LM, 22B to 1T (Korthikanti et al., 2022)",
    "torchtitan-202412": "TorchTitan, Llama 3 8B",
    "torchtitan-asynctp-202506": "TorchTitan with tensor parallelism, Llama 3 8B and 70B",
    "llm-foundry": "llm-foundry, MPT 7B to 70B",
}
REMAT = {
    "none": "none",
    "full": "full",
    "selective (attention core)": "attention",
    "selective": "per op",
    "selective per op": "per op",
}
PRECISION = {
    "f16": ("f16", None),
    "bf16": ("bf16", "f32"),
    "bf16 (amp)": ("bf16", "f32"),
    "bf16 (pure)": ("bf16", "bf16"),
}
"""The compute dtype, and the dtype in which gradients are reduced (None: parameters are stored in the first)."""


def why_not(row: Row) -> str | None:
    """Return why a row is not compared, None if it is."""
    layout = row["layout"]
    if row["model"] not in MPT and "shape" not in row:
        return "sizes of the model not stated"
    if row["precision"] not in PRECISION:
        return "fp8 products, which no profile has a rate for as trained"
    if row["remat"] not in REMAT or row["micro_batch"] is None:
        return "recomputation or micro batch not stated"
    if layout.get("cp", 1) > 1:
        return "ring attention over the sequence"
    if layout["async_tp"]:
        return "products cut so that their collectives run beside them"
    return None


def hardware(device: str) -> Hardware:
    """Return the profile of a device, with the memory of the part at hand where parts differ in it."""
    match device:
        case "a100-80-sxm":
            return load_profile("a100-sxm")
        case "a100-40-sxm":
            return replace(load_profile("a100-sxm"), memory_bandwidth=1555e9, memory_bytes=40 * 10**9)
        case "h100-96-hbm2e-500w":
            return replace(load_profile("h100-sxm"), memory_bandwidth=2.4e12, memory_bytes=96 * 10**9)
        case _:
            return load_profile(device)


def sizes(row: Row) -> Model:
    """Return the model of one pipeline stage."""
    stages = row["layout"]["pp"]
    if row["model"] in MPT:
        layers, width, heads = MPT[row["model"]]
        return Model("gpt", layers, width, heads, heads, 4 * width, 50368, row["seq"])
    shape = row["shape"]
    family, kv = ("llama", shape["kv_heads"]) if "kv_heads" in shape else ("gpt", shape["heads"])
    layers = -(-shape["layers"] // stages)
    return Model(family, layers, shape["hidden"], shape["heads"], kv, shape["ffn"], shape["vocab"], row["seq"])


def predicted_s(row: Row) -> dict[str, float]:
    """Return the predicted seconds of a step and of its parts."""
    layout, device = row["layout"], hardware(row["device"])
    fsdp, tp, stages, parts = (layout[key] for key in ("fsdp", "tp", "pp", "virtual_stages"))
    count = row["global_batch"] // (row["micro_batch"] * fsdp)
    dtype, reduced = PRECISION[row["precision"]]
    placed = Placement(
        batch=row["micro_batch"] * fsdp,
        dtype=dtype,
        reduced=reduced,
        remat=REMAT[row["remat"]],
        fused=row["source"] != "korthikanti2022",
        fsdp=fsdp,
        tp=tp,
        sequence=layout["sequence_parallel"],
    )
    micro = price_micro_batch(sizes(row), placed, device)
    sent = 2 * parts * _send_s(row, device) if stages > 1 else 0.0
    return {
        "step_s": (count + (stages - 1) / parts) * (micro.overlapped_s + sent) + micro.update_s,
        "compute_s": micro.compute_s * count,
        "communication_s": micro.communication_s * count,
        "overlapped_s": micro.overlapped_s * count,
        "update_s": micro.update_s,
    }


def _send_s(row: Row, device: Hardware) -> float:
    """Return the seconds to send an activation to the next stage, on another node; each `tp` device sends a part."""
    size = row["micro_batch"] * row["seq"] * row["shape"]["hidden"] * 2 / row["layout"]["tp"]
    return exchange_s(device.links[device.tiers[-1].link], 1, size)


def published_s(row: Row) -> float:
    """Return the published seconds of a step, or those computed from its tokens and their rate."""
    if "step_s" in row:
        return float(row["step_s"])
    return float(row["global_batch"] * row["seq"] / row["tokens_per_s_per_device"] / row["devices"])


def ordered(rows: list[dict[str, Any]], alike: Sequence[str] = ALIKE) -> tuple[int, int]:
    """Return how many pairs of layouts of a model on a cluster are ordered as published, and the number of pairs."""
    right = pairs = 0
    for one, other in combinations(rows, 2):
        if any(one[key] != other[key] for key in alike):
            continue
        published, predicted = (one[key] / other[key] for key in ("published_per_token", "predicted_per_token"))
        if abs(published - 1) > CLOSE:
            pairs += 1
            right += (published > 1) == (predicted > 1)
    return right, pairs


@cache
def compared() -> list[dict[str, Any]]:
    """Return every comparable row with its prediction."""
    found = []
    for row in json.loads(DATA.read_text())["rows"]:
        if why_not(row):
            continue
        parts, published = predicted_s(row), published_s(row)
        tokens = row["global_batch"] * row["seq"] / row["devices"]
        found.append(
            {
                **{key: row[key] for key in KEPT},
                "compile": row.get("compile"),
                TABLE: row.get(TABLE),
                "published_s": round(published, 4),
                "predicted_s": round(parts["step_s"], 4),
                "ratio": round(parts["step_s"] / published, 4),
                "published_per_token": published / tokens,
                "predicted_per_token": parts["step_s"] / tokens,
                **{key: round(value, 4) for key, value in parts.items() if key != "step_s"},
            }
        )
    return found


def errors(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"rows": len(rows), "median_error": round(median(abs(row["ratio"] - 1) for row in rows), 4)}


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    head = "| source | rows | predicted / published, median (least, largest) |"
    groups = defaultdict(list)
    for row in result["compared"]:
        groups[f"{TITLES[row['source']]}, {row['device'].split('-')[0].upper()}"].append(row["ratio"])
    lines = [
        f"| {name} | {len(found)} | {median(found):.2f} ({min(found):.2f}, {max(found):.2f}) |"
        for name, found in groups.items()
    ]
    one = result["one_table"]
    order = f"{one['in_order']} of {one['pairs']} pairs of layouts in one table in the order published"
    order += f", {result['in_order']} of {result['pairs']} across tables"
    known = result["peak_stated"]
    stated = f"of the {known['rows']} on devices whose peak is stated {known['median_error']:.1%}"
    last = f"| all | {result['rows']} | median error {result['median_error']:.1%}, {stated}; {order} |"
    return "\n".join([head, "|---|---|---|", *lines, last])


def main() -> None:
    """Compare, and write results/published_steps.json."""
    rows = compared()
    right, pairs = ordered(rows)
    right_in_one, pairs_in_one = ordered(rows, (*ALIKE, TABLE))
    stated = [row for row in rows if row["device"] != UNSTATED]
    left = {row["id"]: why for row in json.loads(DATA.read_text())["rows"] if (why := why_not(row))}
    summary = {**errors(rows), "peak_stated": errors(stated), "pairs": pairs, "in_order": right}
    summary["one_table"] = {"pairs": pairs_in_one, "in_order": right_in_one}
    write("published_steps", {**summary, "compared": rows, "left_out": left})


if __name__ == "__main__":
    main()
