"""Published steps of `benchmarks/data/steps.json` as rows that `shardplan predict steps` reads."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.published_steps import MPT

DATA = Path(__file__).parent / "data" / "steps.json"
DEVICES = {"h100-96-hbm2e-500w": "h100-sxm"}
REMAT = {"none stated": "none", "selective per op": "selective"}


def read_published() -> dict[str, list[dict[str, Any]]]:
    """Return the rows that state sizes, micro batch and precision, by source."""
    found = defaultdict(list)
    for row in json.loads(DATA.read_text())["rows"]:
        is_stated = "shape" in row or row["model"] in MPT
        if is_stated and row["micro_batch"] and row["global_batch"] and not row["device"].startswith("tpu"):
            found[row["source"]].append(_convert(row))
    return dict(found)


def _convert(row: dict[str, Any]) -> dict[str, Any]:
    step = row.get("step_s") or row["global_batch"] * row["seq"] / row["tokens_per_s_per_device"] / row["devices"]
    return {
        **row,
        "shape": _shape(row),
        "device": DEVICES.get(row["device"], row["device"]),
        "precision": row["precision"].split()[0],
        "remat": REMAT.get(row["remat"], row["remat"]),
        "step_s": step,
    }


def _shape(row: dict[str, Any]) -> dict[str, Any]:
    if row["model"] in MPT:
        layers, width, heads = MPT[row["model"]]
        return {"layers": layers, "hidden": width, "heads": heads, "ffn": 4 * width, "vocab": 50368, "gated": False}
    return {**row["shape"], "gated": "kv_heads" in row["shape"]}
