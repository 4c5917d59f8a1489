"""Differential measurements of the dialect: calls against mlir-opt 19 and 22, reshardings against least bytes, and
graphs with convolutions, halos and offsets together against the whole graph.

Random calls, right and wrong, are verified by us and by both tools. Every accepted call as the tools print it, in their
custom and generic form, is read. Random reshardings of small tensors, from sources that may be partial with replicas,
are compared with a count, element by element, of what devices have to receive at least; and item 107 of the
specification (no device receives more than its target shard) is counted under both objectives.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.conformance import convolution_outcome, over
from benchmarks.record import write
from planner.errors import ShardplanError
from planner.frontends.mlir import read_spmd
from planner.ir.accounting import count_held_bytes
from planner.reshard.cheapest_path import Objective, find_cheapest_path
from tests.testing.random_calls import is_accepted, is_explained, random_call
from tests.testing.random_reshards import count_least_elements, random_reshard
from tests.testing.upstream_spmd import VERSIONS, Case, accepted, missing, module

CALLS, RESHARDS, GRAPHS = range(50_000, 54_000), range(90_000, 115_000), range(60_000, 61_200)


def calls() -> dict[str, Any]:
    """Verify random calls here and upstream, and read what upstream prints of those that it accepts."""
    if reason := missing(19) or missing(22):
        return {"skipped": reason}
    cases = [random_call(seed) for seed in CALLS]
    ours = [is_accepted(case) for case in cases]
    theirs = {version: accepted(cases, version) for version in VERSIONS}
    counts, failures = Counter[str](tried=len(cases)), list[str]()
    for place, (case, here) in enumerate(zip(cases, ours, strict=True)):
        there = [theirs[version][place] for version in VERSIONS]
        if here and not any(there):
            known = is_explained(case, here)
            counts["accepted that both refuse" + (", by the block rule" if known else "")] += 1
            failures += [] if known else [f"accepted: {case}"]
        elif not here and any(there):
            known = is_explained(case, here)
            counts["refused that one accepts" + (", by decision" if known else "")] += 1
            failures += [] if known else [f"refused: {case}"]
        else:
            counts["judged alike"] += 1
    for version in VERSIONS:
        good = [case for case, here, there in zip(cases, ours, theirs[version], strict=True) if here and there]
        for text in _print_upstream(good, version):
            counts[f"prints of mlir-opt {version}"] += 1
            try:
                read_spmd(text)
                counts[f"prints of mlir-opt {version} read"] += 1
            except ShardplanError as error:
                failures.append(f"print of {version}: {error}: {text}"[:400])
    return {
        **dict.fromkeys(("accepted that both refuse", "refused that one accepts"), 0),
        **counts,
        "failures": failures,
    }


def _print_upstream(cases: Sequence[Case], version: int) -> Iterator[str]:
    """Yield the modules of the cases as mlir-opt prints them, in the custom and in the generic form."""
    text = "\n// -----\n".join(module(case, number, version) for number, case in enumerate(cases))
    for options in ([], ["--mlir-print-op-generic"]):
        run = subprocess.run(
            [VERSIONS[version], "--split-input-file", *options],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "LLVM_DISABLE_SYMBOLIZATION": "1"},
        )
        yield from filter(str.strip, re.split(r"^// -----\n", run.stdout, flags=re.MULTILINE))


def reshards() -> dict[str, Any]:
    """Compare the bytes of random reshardings with the least that their elements allow."""
    counts, failures = Counter[str](tried=len(RESHARDS)), list[str]()
    for seed in RESHARDS:
        source, target, kind, model = random_reshard(seed)
        least = count_least_elements(source, target, kind.shape, model.mesh) * kind.itemsize
        wanted = count_held_bytes(target, kind, model.mesh)
        replicas = model.mesh.group_size(tuple(_idle_axes(source, len(model.mesh.axes))))
        counts["from whole values"] += not source.partial
        counts["from partial sums with replicas"] += bool(source.partial) and replicas > 1
        for objective in Objective:
            found = find_cheapest_path(source, target, kind, model=model, objective=objective)
            received = found.received.sum(axis=0)
            counts[f"{objective}: least bytes"] += bool(received.sum() == least)
            counts[f"{objective}: no device receives more than its target shard"] += bool((received <= wanted).all())
            counts[f"{objective}: the same, from sources that are not partial"] += bool(
                not source.partial and (received <= wanted).all()
            )
            if objective is Objective.BYTES and received.sum() != least:
                failures.append(f"seed {seed}: {received.sum()} bytes, {least} would do")
    return {**counts, "failures": failures[:20]}


def _idle_axes(source: Any, axes: int) -> list[int]:
    used = {axis for split in source.split_axes for axis in split} | set(source.partial)
    return [axis for axis in range(axes) if axis not in used]


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    judged, moved, graphs = result["calls"], result["reshards"], result["convolutions"]
    prints = [(judged[f"prints of mlir-opt {each}"], judged[f"prints of mlir-opt {each} read"]) for each in VERSIONS]
    rows = [
        (
            "random calls, verified by us, mlir-opt 19 and 22",
            f"{judged['tried']:,}: {judged['accepted that both refuse']} accepted that both refuse, "
            f"{judged['refused that one accepts']} refused that one accepts; by decision "
            f"{judged.get('accepted that both refuse, by the block rule', 0):,} and "
            f"{judged.get('refused that one accepts, by decision', 0):,}",
        ),
        (
            "calls as mlir-opt 19 and 22 print them, custom and generic",
            " and ".join(f"{read:,} of {count:,} read" for count, read in prints),
        ),
        (
            f"small reshardings ({moved['from partial sums with replicas']:,} from partial sums with replicas)",
            f"{moved['bytes: least bytes']:,} of {moved['tried']:,} move the least bytes under `--objective bytes`, "
            f"{moved['time: least bytes']:,} under the default",
        ),
        (
            "no device receives more than its target shard, source not partial",
            f"{moved['bytes: the same, from sources that are not partial']:,} of {moved['from whole values']:,} under "
            f"`--objective bytes`, {moved['time: the same, from sources that are not partial']:,} under the default",
        ),
        (
            "random graphs with convolutions, halos and offsets",
            f"{graphs['graphs run']:,} run ({graphs['partitions equal']:,} partitions), {graphs['wrong']} wrong, "
            f"{graphs['crash']} crashes",
        ),
    ]
    return "\n".join(["| check | result |", "|---|---|", *(f"| {check} | {found} |" for check, found in rows)])


def main() -> None:
    """Measure everything and write results/dialect_differential.json."""
    graphs = {"tried": len(GRAPHS)} | over(GRAPHS, convolution_outcome).result()
    write("dialect_differential", {"calls": calls(), "reshards": reshards(), "convolutions": graphs})


if __name__ == "__main__":
    main()
