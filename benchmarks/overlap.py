"""Fits what running at the same time costs to published measurements, and compares it with simple rules.

    python -m benchmarks.overlap FOLDER [--fit]

FOLDER holds `overlap_mist.parquet`: a matrix product, an all-gather and copies to and from the host that are started
together, on 1 to 4 nodes of 8 V100 or A100 (Dazz993/Mist, mist/tools/results, Apache-2.0). It needs pandas and pyarrow.
The rows are not part of the repository. `--fit` writes the shares into the profiles.

A row is predicted from its parts alone, which are rows too: `planner.choose.hardware.interference` says at what speed
each goes on while the others run. The shares minimise the mean of |log(predicted / measured)| by coordinates. Left out
means that one shape of the all-gather's group was left out of the fit on which its rows are scored.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, permutations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import write
from planner.choose import hardware
from planner.choose.hardware.interference import KINDS, Interference

SOURCE = "Dazz993/Mist, mist/tools/results (Apache-2.0)"
PARTS = ("flops", "gather_bytes", "host_to_device_bytes", "device_to_host_bytes")
PROFILES = {
    ("a100-sxm4-40gb", False): [("a100-sxm", "nvlink"), ("a100-sxm-cluster", "nvlink")],
    ("a100-sxm4-40gb", True): [
        ("a100-sxm", "infiniband"),
        ("a100-sxm", "roce"),
        ("a100-sxm", "efa"),
        ("a100-sxm-cluster", "infiniband"),
    ],
    ("v100-sxm2-16gb", False): [("v100-sxm", "nvlink")],
    ("v100-sxm2-16gb", True): [("v100-sxm", "infiniband")],
}
"""By device, and whether the group has several nodes: the profiles, and the link that the all-gather crosses."""
SHARES = (0.0, *np.round(np.geomspace(0.01, 20, 56), 3).tolist())
SWEEPS, COARSE = 3, 4
RULES: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "slowest": lambda alone: alone.max(axis=1),
    "sum": lambda alone: alone.sum(axis=1),
    "slowest and half of the rest": lambda alone: (alone.max(axis=1) + alone.sum(axis=1)) / 2,
}
Array = NDArray[np.float64]


class Rows(NamedTuple):
    """Seconds of each part alone `[rows, kinds]`, of all together, and the shape of the group."""

    alone: Array
    seconds: Array
    groups: NDArray[np.int64]


def read_rows(folder: Path) -> dict[tuple[str, bool], Rows]:
    """Return the rows of two parts or more, by device and whether the group has several nodes."""
    import pandas  # type: ignore[import-untyped, unused-ignore]  # not a dependency of the package

    table = pandas.read_parquet(folder / "overlap_mist.parquet")
    setting = [table[key] for key in ("device", "world_size", "intra_group", "inter_group")]
    amounts = table[list(PARTS)].to_numpy()
    parts = (amounts > 0).sum(axis=1)
    keys = list(zip(*setting, strict=True))
    single = {
        (*keys[n], part): table.time_s.iloc[n] for n in np.flatnonzero(parts == 1) for part in _amounts(amounts[n])
    }
    found: dict[tuple[str, bool], list[tuple[list[float], float, int]]] = {}
    for n in np.flatnonzero(parts > 1):
        wanted = {kind: single.get((*keys[n], (kind, amount))) for kind, amount in _amounts(amounts[n])}
        if None not in wanted.values():
            device, _, intra, inter = keys[n]
            row = [wanted.get(kind) or 0.0 for kind in range(len(PARTS))]
            found.setdefault((device, inter > 1), []).append((row, table.time_s.iloc[n], 10 * int(inter) + int(intra)))
    return {key: Rows(*(np.array(column) for column in zip(*rows, strict=True))) for key, rows in found.items()}


def _amounts(row: Array) -> list[tuple[int, float]]:
    return [(kind, float(amount)) for kind, amount in enumerate(row) if amount > 0]


def predict(shares: Array, alone: Array) -> Array:
    """Return the seconds until the last part ends; `shares[i, j]`: how much longer kind i takes beside kind j."""
    left, passed = alone.copy(), np.zeros(len(alone))
    for _ in KINDS:
        runs = left > 0
        slower = 1 + runs @ shares.T
        needed = np.where(runs, left * slower, np.inf)
        shortest = needed.min(axis=1, keepdims=True)
        step = np.where(np.isfinite(shortest), shortest, 0.0)
        left = np.where(needed > shortest, left - step / slower, 0.0)
        passed += step[:, 0]
    return passed


def fit(rows: Rows) -> Array:
    """Return the shares with the least mean |log(predicted / measured)| found.

    First both shares of each two kinds at once, on a coarse grid: what one part loses looks much like what the other
    loses. Then one share at a time.
    """
    shares = np.zeros((len(KINDS), len(KINDS)))
    pairs = list(combinations(range(len(KINDS)), 2))
    for places in [[(i, j), (j, i)] for i, j in pairs] * 2:
        _improve(shares, rows, places, product(SHARES[::COARSE], repeat=2))
    for place in [*permutations(range(len(KINDS)), 2)] * SWEEPS:
        _improve(shares, rows, [place], product(SHARES))
    return shares


def _improve(shares: Array, rows: Rows, places: Sequence[tuple[int, int]], tried: Iterable[tuple[float, ...]]) -> None:
    """Set some shares to the values of those tried that have the least loss."""

    def loss(values: tuple[float, ...]) -> float:
        for place, value in zip(places, values, strict=True):
            shares[place] = value
        return float(np.abs(np.log(predict(shares, rows.alone) / rows.seconds)).mean())

    best = min(tried, key=loss)
    loss(best)


def score(predicted: Array, seconds: Array) -> dict[str, float]:
    error = np.abs(predicted / seconds - 1)
    return {"median": round(float(np.median(error)), 4), "p90": round(float(np.quantile(error, 0.9)), 4)}


def score_left_out(rows: Rows) -> dict[str, float]:
    """Return the errors where each shape of the group is predicted by a fit to the others."""
    predicted = np.zeros_like(rows.seconds)
    for group in np.unique(rows.groups):
        out = rows.groups == group
        shares = fit(Rows(rows.alone[~out], rows.seconds[~out], rows.groups[~out]))
        predicted[out] = predict(shares, rows.alone[out])
    return score(predicted, rows.seconds)


def as_document(shares: Array) -> dict[str, dict[str, float]]:
    own = {
        kind: {other: float(shares[i, j]) for j, other in enumerate(KINDS) if shares[i, j]}
        for i, kind in enumerate(KINDS)
    }
    return {kind: others for kind, others in own.items() if others}


def as_array(interference: Interference) -> Array:
    return np.array([[0.0 if one == other else interference.share(one, other) for other in KINDS] for one in KINDS])


def write_profiles(
    fitted: Mapping[tuple[str, bool], Array], scores: Mapping[tuple[str, bool], dict[str, float]]
) -> None:
    """Write the shares into the profiles, which then count overlap."""
    folder = Path(hardware.__file__).parent
    for key, shares in fitted.items():
        for name, link in PROFILES[key]:
            file = folder / f"{name}.json"
            document = json.loads(file.read_text())
            sources = document.pop("sources")
            document["overlap"] = 1.0
            document.setdefault("interference", {})[link] = as_document(shares)
            error = scores[key]
            sources["overlap"] = "all of it counts, as interference says what it costs"
            sources["interference"] = f"{SOURCE}; by link below, with the error on rows left out of the fit"
            sources[f"interference.{link}"] = (
                f"fitted to {SOURCE}, {key[0]}, {'2 and 4 nodes' if key[1] else 'one node'}; error on group shapes "
                f"left out of the fit {error['median']:.1%} (median), {error['p90']:.1%} (90th percentile)"
            )
            file.write_text(json.dumps(document | {"sources": sources}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit what running at the same time costs.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fit", action="store_true", help="write the shares into the profiles")
    arguments = parser.parse_args()
    tables = read_rows(arguments.folder)
    left_out = {key: score_left_out(rows) for key, rows in tables.items()}
    if arguments.fit:
        write_profiles({key: fit(rows) for key, rows in tables.items()}, left_out)
    figures = []
    for key, rows in sorted(tables.items()):
        name, link = PROFILES[key][0]
        shares = as_array(hardware.load_profile(name).interference[link])
        pair = rows.alone[:, 2:].sum(axis=1) == 0
        figures.append(
            {
                "device": key[0],
                "nodes": "2 and 4" if key[1] else "1",
                "rows": len(rows.seconds),
                "left_out": left_out[key],
                "product": score(predict(shares, rows.alone), rows.seconds),
                "compute_and_collective": score(predict(shares, rows.alone[pair]), rows.seconds[pair]),
                "rules": {rule: score(apply(rows.alone), rows.seconds) for rule, apply in RULES.items()},
                "compute_slowed": float(shares[0, 1]),
                "collective_slowed": float(shares[1, 0]),
            }
        )
    write("overlap", {"source": SOURCE, "figures": figures})


def table(result: Mapping[str, Any]) -> str:
    """Return the figures as a table."""
    lines = [
        "| device | nodes | rows | group shapes left out | fitted | ops and a collective only | slowest part | sum | "
        "slowest and half of the rest | ops slowed by | collective slowed by |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["figures"]:
        scores = [row["left_out"], row["product"], row["compute_and_collective"], *row["rules"].values()]
        cells = [f"{100 * each['median']:.1f} / {100 * each['p90']:.1f} %" for each in scores]
        slowed = [f"{row[key]:.0%}" for key in ("compute_slowed", "collective_slowed")]
        lines.append(" | ".join(["| " + row["device"], row["nodes"], f"{row['rows']:,}", *cells, *slowed]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
