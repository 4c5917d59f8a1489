"""Fits the times of single kernels to published measurements, and writes the fitted classes of each device.

    python -m benchmarks.op_times FOLDER [--score]

FOLDER holds the tables as Parquet files: `gemm`, `context_attention`, `generation_attention`, `moe`, `collectives`,
`deepep` (ai-dynamo/aiconfigurator at 095f58a5, Apache-2.0) and `neusight_forward` (sitar-lab/NeuSight, MIT). It needs
pandas, pyarrow and scipy. The tables are not part of the repository. The fit is a smoothed least-absolute-error
regression of log2(measured / roofline) on the weights of the lattice; a fifth of the rows, whole shapes, is kept out to
score it.
`--score` records the errors on these rows, and on all rows with the fits of the other devices; where two frameworks
were measured, also those of fits to one framework on other devices, on its own rows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import write
from planner.choose.hardware import load_profile
from planner.choose.hardware import op_times as product
from planner.choose.hardware.op_classes import OP_CLASSES, Columns, OpClass
from planner.choose.hardware.op_rates import find_itemsize, find_rates
from planner.choose.hardware.op_transfer import KernelTimes, find_kernels

OUTPUT = Path(product.__file__).parent / "op_times"
AICONFIGURATOR = "ai-dynamo/aiconfigurator at 095f58a5, collected tables (Apache-2.0)"
NEUSIGHT = "sitar-lab/NeuSight, scripts/asplos/data/dataset/train (MIT)"
DEVICES = {"v100-pcie-32": "v100-pcie", "p100-pcie-16": "p100-pcie"}
SKEW = {"balanced": 0.0, "power_law_1.01": 1.01, "power_law_1.2": 1.2}
SMOOTHNESS, STEPS, CLOSE = 0.03, 6, 1e-5
Array = NDArray[np.float64]


FRAMEWORKS = ("trtllm", "sglang")
BY_FRAMEWORK = ("gemm", "moe", "context_attention", "generation_attention")
"""Tables with the times of each framework."""


class Table(NamedTuple):
    """Measured rows of one class and element type on one device."""

    device: str
    key: str
    columns: Columns
    seconds: Array
    source: str


def read_tables(folder: Path) -> Iterator[Table]:
    """Yield the tables of a folder, one for each device, class and element type."""
    for name in ("gemm", "moe", "context_attention", "generation_attention", "collectives", "deepep"):
        yield from _split(_read(folder, name), AICONFIGURATOR, name)
    yield from _split(_read(folder, "neusight_forward"), NEUSIGHT, "neusight")


def read_framework(folder: Path, framework: str) -> Iterator[Table]:
    """Yield the tables of a folder with the times of one framework."""
    for name in BY_FRAMEWORK:
        rows = _read(folder, name)
        if (name, framework) == ("context_attention", "sglang"):
            rows = rows[rows.gpu != "b200_sxm"]  # see _split
        column = f"time_{framework}_s"
        yield from _split(rows[rows[column].notna()].assign(time_s=rows[column]), AICONFIGURATOR, name)


def _read(folder: Path, name: str) -> Any:
    import pandas  # type: ignore[import-untyped, unused-ignore]  # not a dependency of the package

    return pandas.read_parquet(folder / f"{name}.parquet")


KEYS = {
    "gemm": (["dtype"], "gemm.{}"),
    "moe": (["dtype"], "moe.{}"),
    "context_attention": ([], "context_attention.bf16"),
    "generation_attention": ([], "generation_attention.bf16"),
    "collectives": (["kind", "library"], "{}.{}"),
    "deepep": (["op", "mode"], "deepep_{}.{}"),
    "neusight": (["op"], "{}.f32"),
}


def _split(rows: Any, source: str, name: str) -> Iterator[Table]:
    by, pattern = KEYS[name]
    device = "device" if name == "neusight" else "gpu"
    if name == "context_attention":  # windowed SGLang kernels on B200 stop growing with the length: not the whole work
        rows = rows[(rows.gpu != "b200_sxm") | rows.time_trtllm_s.notna()]
        rows = rows.assign(time_s=rows.time_trtllm_s.where(rows.gpu == "b200_sxm", rows.time_s))
    if "distribution" in rows:
        rows["skew"] = rows.distribution.map(SKEW)
    for (gpu, *words), part in rows.groupby([device, *by]):
        key = pattern.format(*words)
        wanted = dict(OP_CLASSES[key.split(".")[0]].optional)
        names = [*OP_CLASSES[key.split(".")[0]].columns, *wanted]
        columns = {each: part[each].to_numpy(float) for each in names}
        named = DEVICES.get(gpu, gpu.replace("_", "-"))
        yield Table(named, key, columns, part.time_s.to_numpy(float), source)


def fit(op: OpClass, roofline_s: Array, table: Table, rows: NDArray[np.bool_]) -> Array:
    """Return the values of the lattice that fit the rows, by iteratively reweighted least squares.

    The weights of a row are sparse, so that each linear system is solved by conjugate gradients.
    """
    # Not a dependency of the package; tables of results are read without it.
    from scipy import sparse  # type: ignore[import-untyped, unused-ignore]
    from scipy.sparse.linalg import cg  # type: ignore[import-untyped, unused-ignore]

    wanted = np.log2(table.seconds / roofline_s)[rows]
    indices, weights = product.find_corners(op.knots, [axis[rows] for axis in op.shape(table.columns)])
    sizes = [len(each) for each in op.knots]
    size, starts = int(np.prod(sizes)), np.arange(0, indices.size + 1, indices.shape[1])
    matrix = sparse.csr_matrix((weights.ravel(), indices.ravel(), starts), shape=(len(wanted), size))
    penalty = SMOOTHNESS * _roughness(sizes) + 1e-5 * sparse.eye(size)
    importance: Array = np.ones(len(wanted))
    values: Array = np.zeros(size)
    for _ in range(STEPS):
        normal = (matrix.T @ sparse.diags(importance) @ matrix + penalty).tocsr()
        scale = sparse.diags(1 / normal.diagonal())
        values, failed = cg(normal, matrix.T @ (importance * wanted), x0=values, rtol=CLOSE, M=scale)
        assert not failed, f"{table.device} {table.key}: conjugate gradients did not converge"
        left = np.abs(matrix @ values - wanted)
        importance = np.asarray(1 / np.maximum(left / max(float(np.median(left)), 1e-3), 0.3), np.float64)
    return values


def _roughness(sizes: Sequence[int]) -> Any:
    """Return the quadratic form of second differences, and weakly of first ones, along each axis of a lattice."""
    from scipy import sparse

    form = sparse.csr_matrix((int(np.prod(sizes)),) * 2)
    for axis, size in enumerate(sizes):
        second, first = np.diff(np.eye(size), 2, axis=0), np.diff(np.eye(size), 1, axis=0)
        own = second.T @ second + 0.01 * first.T @ first
        before, after = int(np.prod(sizes[:axis])), int(np.prod(sizes[axis + 1 :]))
        form = form + sparse.kron(sparse.kron(sparse.eye(before), own), sparse.eye(after))
    return form.tocsr()


def hold_out(table: Table) -> NDArray[np.bool_]:
    """Return a fifth of the rows: whole shapes, drawn by their columns."""
    stacked = np.stack([np.asarray(each) for each in table.columns.values()])
    primes = np.array([2.0, 3.0, 5.0, 7.0, 11.0, 13.0, 17.0, 19.0, 23.0])[: len(stacked)]
    mixed = np.sqrt(primes) @ stacked
    return np.asarray(mixed % 1 < 0.2)


def fit_whole(table: Table) -> product.OpFit:
    """Return a fit to all rows of a table, without an interval."""
    op, dtype = OP_CLASSES[table.key.split(".")[0]], table.key.split(".")[1]
    itemsize = find_itemsize(dtype)
    work = op.count_work(table.columns, itemsize)
    roofline_s = product.roofline_s(find_rates(load_profile(table.device), table.key), work)
    values = fit(op, roofline_s, table, np.ones(len(table.seconds), bool))
    return product.OpFit(product.Lattice(op.knots, values), itemsize, 1, 1)


def fit_table(table: Table) -> dict[str, Any]:
    """Return the document of a fitted class, with its errors on the rows kept out of a first fit."""
    op, dtype = OP_CLASSES[table.key.split(".")[0]], table.key.split(".")[1]
    profile = load_profile(table.device)
    rates, itemsize = find_rates(profile, table.key), find_itemsize(dtype)
    work = op.count_work(table.columns, itemsize)
    roofline_s = product.roofline_s(rates, work)
    kept = hold_out(table)
    values = fit(op, roofline_s, table, ~kept)
    trial = product.OpFit(product.Lattice(op.knots, values), itemsize, 1, 1)
    ratio = table.seconds[kept] / trial.seconds(op, rates, table.columns)[kept]
    error = np.abs(1 / ratio - 1)
    full = fit(op, roofline_s, table, np.ones(len(kept), bool))
    low, high = np.quantile(ratio, [0.05, 0.95])
    bound = product.bound_s(op, rates, work)
    return {
        "source": table.source,
        "rows": len(table.seconds),
        "held_out": {"median": _round(np.median(error)), "p90": _round(np.quantile(error, 0.9))},
        "faster_than_peak": int((table.seconds < bound).sum()),
        "itemsize": itemsize,
        "low": _round(low),
        "high": _round(high),
        "correction": [round(100 * float(each)) for each in full],
    }


def _round(value: Any) -> float:
    return float(f"{float(value):.3g}")


def score_table(table: Table) -> dict[str, Any] | None:
    """Return the errors of the fits of the other devices on a table; None where no other has the class."""
    op, variant = table.key.split(".")
    others = [each for each in product.list_fitted() if each != table.device and table.key in product.load_fits(each)]
    if not others:
        return None
    found = find_kernels(load_profile(table.device), op, variant, among=others)
    return {"fitted_on": found.device, **_measure_errors(found, table)}


def score_frameworks(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return by class and device the errors of each framework, predicted by its fits on the other devices."""
    scores: dict[tuple[str, str], dict[str, Any]] = {}
    for framework in FRAMEWORKS:
        tables = {(table.key, table.device): table for table in read_framework(folder, framework)}
        fits = {where: fit_whole(table) for where, table in tables.items()}
        for (key, device), table in tables.items():
            others = [other for other_key, other in fits if other_key == key and other != device]
            if others:
                found = find_kernels(load_profile(device), *key.split("."), among=others)
                sources = tuple(replace(each, fit=fits[key, each.device]) for each in found.sources)
                errors = _measure_errors(replace(found, sources=sources), table)
                scores.setdefault((key, device), {})[framework] = errors
    return scores


def _measure_errors(found: KernelTimes, table: Table) -> dict[str, float]:
    error = np.abs(found.seconds(table.columns) / table.seconds - 1)
    return {"median": _round(np.median(error)), "p90": _round(np.quantile(error, 0.9))}


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit the times of single kernels.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--score", action="store_true", help="score the fits of the product, and fit nothing")
    arguments = parser.parse_args()
    if arguments.score:
        score(arguments.folder)
        return
    fits: dict[str, dict[str, Any]] = {}
    for table in read_tables(arguments.folder):
        made = fits.setdefault(table.device, {})[table.key] = fit_table(table)
        print(table.device, table.key, made["held_out"], flush=True)
    for device, classes in fits.items():
        (OUTPUT / f"{device}.json").write_text(json.dumps({"device": device, "fits": classes}) + "\n")


def score(folder: Path) -> None:
    """Record the errors on rows kept out of the fits, and those of fits of other devices."""
    figures: dict[str, dict[str, Any]] = {}
    by_framework = score_frameworks(folder)
    for table in read_tables(folder):
        fitted = product.read_fits(table.device)[table.key]
        own = {"rows": fitted["rows"], **{key: fitted["held_out"][key] for key in ("median", "p90")}}
        scores = {"held_out": own, "other_device": score_table(table)}
        scores["by_framework"] = by_framework.get((table.key, table.device), {})
        figures.setdefault(table.key, {})[table.device] = scores
    write("op_times", {"figures": figures})


def table(result: Mapping[str, Any]) -> str:
    """Return the figures as a table."""
    titles = ("class", "device", "rows", "kept out", "other device", *(f"{name} only" for name in FRAMEWORKS))
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for key, devices in result["figures"].items():
        for device, scores in devices.items():
            own, other = scores["held_out"], scores["other_device"]
            transferred = f"{_show(other)} ({other['fitted_on']})" if other else "no other"
            one = [_show(found) if (found := scores["by_framework"].get(name)) else "-" for name in FRAMEWORKS]
            lines.append(f"| {key} | {device} | {own['rows']:,} | {_show(own)} | {transferred} | {' | '.join(one)} |")
    return "\n".join(lines)


def _show(errors: Mapping[str, Any]) -> str:
    return f"{100 * errors['median']:.1f} / {100 * errors['p90']:.0f} %"


if __name__ == "__main__":
    main()
