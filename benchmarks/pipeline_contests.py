"""Contests with published planners of pipelines on their own tables: the least cost that their pricing allows.

    python -m benchmarks.pipeline_contests FOLDER

FOLDER holds the tables as JSON: inputs of Piper (Tarnawski et al., NeurIPS 2021; github.com/msr-fiddle/piper, MIT) with
`piper_results.json`, and of its predecessor's device placement (Tarnawski et al., NeurIPS 2020;
github.com/msr-fiddle/dnn-partitioning, MIT) with `dnnp_results.json`. Each tool's pricing is written here from its
sources. Stages are differences of *down-sets*: sets of nodes with all that they depend on, which are listed one by one.
The dynamic program over them is exact, so that its optimum is a bound, too. Graphs with more than MAX_DOWN_SETS are
left out and counted.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import write

MAX_DOWN_SETS = 2000
GROWTH = 1.05
"""Factor by which the largest load that is looked for grows until a plan is found."""
Table = dict[str, Any]
Floats = NDArray[np.float64]


class TooManyDownSets(Exception):
    """A graph has more than MAX_DOWN_SETS."""


def list_down_sets(nodes: Sequence[int], edges: Sequence[tuple[int, int]]) -> list[frozenset[int]]:
    """Return all sets of nodes that contain what their nodes depend on, smaller ones first."""
    needs = {node: {source for source, target in edges if target == node} for node in nodes}
    found = {frozenset[int]()}
    front = [frozenset[int]()]
    while front:
        after = {held | {node} for held in front for node in nodes if node not in held and needs[node] <= held}
        front = list(after - found)
        found |= after
        if len(found) > MAX_DOWN_SETS:
            raise TooManyDownSets
    return sorted(found, key=lambda held: (len(held), sorted(held)))


@dataclass(frozen=True)
class Piper:
    """Piper's question: least time per sample of the slowest stage, on `devices` with a memory limit.

    A stage has a data-parallel degree d, a tensor-parallel degree t and a variant for each layer. Every d divides
    `batch`, the micro-batches of a step.
    """

    table: Table
    devices: int
    bandwidth: float
    batch: int
    memory: float

    @cached_property
    def layers(self) -> dict[int, Table]:
        return {node["id"]: node["TMPCs"] for node in self.table["nodes"]}

    @cached_property
    def edges(self) -> list[tuple[int, int, float]]:
        return [(edge["sourceId"], edge["destId"], edge["communicationCost"]) for edge in self.table["edges"]]

    @cached_property
    def degrees(self) -> list[tuple[int, int]]:
        tensor = sorted({int(t) for layer in self.layers.values() for t in layer})
        data = [d for d in range(1, self.devices + 1) if self.batch % d == 0]
        return [(d, t) for d in data for t in tensor if d * t <= self.devices]

    def solve(self) -> float:
        """Return the least load. Larger loads are looked for until there is a plan."""
        work = sum(
            min(int(t) * each["timePerSample"] for t, kinds in layer.items() for each in kinds)
            for layer in self.layers.values()
        )
        most = work / self.devices
        sets = list_down_sets(list(self.layers), [(source, target) for source, target, _ in self.edges])
        spans = [(i, j) for i, low in enumerate(sets) for j, high in enumerate(sets) if low < high]
        known: dict[object, float] = {}
        while (least := self._solve_below(most, sets, spans, known=known)) == math.inf:
            most *= GROWTH
        return least

    def _solve_below(
        self, most: float, sets: list[frozenset[int]], spans: list[tuple[int, int]], *, known: dict[object, float]
    ) -> float:
        """Return the least load where it is at most `most`, else infinity.

        `least[i][k, s]`: of stages for all that down-set i lacks, on at most k devices, with data-parallel degrees that
        add up to s.
        """
        size = self.devices + 1
        least = [np.full((size, size), math.inf) for _ in sets]
        least[-1][:, 0] = 0.0
        for i, j in sorted(spans, reverse=True):
            inside = sets[j] - sets[i]
            for d, t in self.degrees:
                options = self._options(inside, d, t)
                if options is None or sum(min(cost for cost, _, _ in each) for each in options) > most:
                    continue
                for total in range(d, min(self.devices, self.batch) + 1):
                    load = self._load(options, -(-total // d), known)
                    if load > most:
                        break
                    reached = np.maximum(load, least[j][: size - d * t, total - d])
                    least[i][d * t :, total] = np.minimum(least[i][d * t :, total], reached)
        best = float(least[0][self.devices].min())
        return best if best <= most else math.inf

    def _options(
        self, inside: frozenset[int], d: int, t: int
    ) -> tuple[tuple[tuple[float, float, float], ...], ...] | None:
        """Return the load and both memory terms of every variant of every layer, or None without one of degree t."""
        options = []
        for layer in sorted(inside):
            if str(t) not in self.layers[layer]:
                return None
            options.append(tuple(self._price(layer, each, inside, d=d) for each in self.layers[layer][str(t)]))
        return tuple(sorted(options))

    def _price(self, layer: int, variant: Table, inside: frozenset[int], *, d: int) -> tuple[float, float, float]:
        moved = 0.0
        for source, target, cost in self.edges:
            if target == layer and source not in inside:
                moved += 2 * (cost + variant["syncTimeFw"].get(str(source), 0.0))
            if source == layer and target not in inside:
                moved += 2 * (cost + variant["syncTimeBw"].get(str(target), 0.0))
        shared = 4 * (d - 1) * variant["parameterSize"] / (d * self.batch)
        load = variant["timePerSample"] / d + moved / d / self.bandwidth + shared / self.bandwidth
        return load, variant["memoryUsageA"], variant["memoryUsageB"]

    def _load(
        self, options: tuple[tuple[tuple[float, float, float], ...], ...], copies: int, known: dict[object, float]
    ) -> float:
        """Return the least load whose memory fits, with activations held `copies` times: an exact knapsack."""
        key = options, copies
        if key not in known:
            loads, held = np.zeros(1), np.zeros(1)
            for each in options:
                loads = np.concatenate([loads + load for load, _, _ in each])
                held = np.concatenate([held + (more * copies + fixed) for _, more, fixed in each])
                loads, held = _pareto(loads, held, self.memory)
            known[key] = float(loads.min(initial=math.inf))
        return known[key]


def _pareto(loads: Floats, held: Floats, memory: float) -> tuple[Floats, Floats]:
    """Return the pairs within the memory that no other pair beats in both."""
    order = np.lexsort((loads, held))
    loads, held = loads[order], held[order]
    best = np.minimum.accumulate(np.concatenate([[math.inf], loads[:-1]]))
    kept = (loads < best) & (held <= memory)
    return loads[kept], held[kept]


@dataclass(frozen=True)
class Placement:
    """Least largest load of accelerators and processors, in contiguous groups (dnn-partitioning, throughput).

    Nodes of one colour are on one device. Groups are contiguous in the forward nodes.
    """

    table: Table

    def solve(self) -> float:
        """Return the least load."""
        forward = [node["id"] for node in self.table["nodes"] if not node["isBackwardNode"]]
        edges = [(edge["sourceId"], edge["destId"]) for edge in self.table["edges"]]
        sets = list_down_sets(forward, [(a, b) for a, b in edges if a in self._forward and b in self._forward])
        accelerators, processors = self.table["maxFPGAs"], self.table["maxCPUs"]
        least: dict[tuple[int, int, int], float] = {
            (len(sets) - 1, a, c): 0.0 for a in range(accelerators + 1) for c in range(processors + 1)
        }
        for i in range(len(sets) - 2, -1, -1):
            groups = [(j, *self._loads(sets[j] - sets[i])) for j in range(i + 1, len(sets)) if sets[i] < sets[j]]
            for a in range(accelerators + 1):
                for c in range(processors + 1):
                    options = [max(load, least[j, a - 1, c]) for j, load, _ in groups if a]
                    options += [max(load, least[j, a, c - 1]) for j, _, load in groups if c]
                    least[i, a, c] = min(options, default=math.inf)
        return least[0, accelerators, processors]

    @cached_property
    def _forward(self) -> frozenset[int]:
        return frozenset(node["id"] for node in self.table["nodes"] if not node["isBackwardNode"])

    @cached_property
    def _by_colour(self) -> Mapping[int, list[Table]]:
        """The nodes of each colour."""
        nodes = defaultdict(list)
        for node in self.table["nodes"]:
            nodes[node["colorClass"]].append(node)
        return nodes

    @cached_property
    def _colour(self) -> dict[int, int]:
        return {node["id"]: node["colorClass"] for node in self.table["nodes"]}

    def _loads(self, inside: frozenset[int]) -> tuple[float, float]:
        """Return the load of an accelerator and of a processor with some forward nodes and all of their colours."""
        colours = {self._colour[node] for node in inside}
        nodes = [node for colour in colours for node in self._by_colour[colour]]
        here = {node["id"] for node in nodes}
        if not here & self._forward <= inside:
            return math.inf, math.inf
        crossing = {
            (edge["sourceId"], edge["cost"])
            for edge in self.table["edges"]
            if (edge["sourceId"] in here) != (edge["destId"] in here)
        }
        fits = sum(node["size"] for node in nodes) <= self.table["maxSizePerFPGA"]
        can_run = fits and all(node["supportedOnFpga"] for node in nodes)
        work = sum(node["fpgaLatency"] for node in nodes) + sum(cost for _, cost in crossing)
        return work if can_run else math.inf, sum(node["cpuLatency"] for node in nodes)


def run_contests(folder: Path) -> Iterator[Table]:
    """Yield a row for each published figure: theirs, ours, and the CPU seconds of both searches."""
    published = json.loads((folder / "piper_results.json").read_text())
    table = read_table(folder / published["input"])
    for row in published["rows"]:
        sizes = published["bandwidth_bytes_per_s"], published["microbatches_in_batch"], published["memory_bytes"]
        question = Piper(table, row["devices"], *sizes)
        yield _contest("piper", f"{published['input']}, {row['devices']} devices", row["seconds_per_sample"], question)
    for row in json.loads((folder / "dnnp_results.json").read_text())["rows"]:
        placement = Placement(read_table(folder / f"{row['graph']}.json.gz"))
        theirs = row["best_contiguous_load"]
        yield _contest("dnn-partitioning", row["graph"], theirs, placement) | {"their_s": row["solver_seconds"]}


def _contest(tool: str, case: str, theirs: float, question: Piper | Placement) -> Table:
    began = time.process_time()
    try:
        ours: float | None = question.solve()
    except TooManyDownSets:
        ours = None
    cpu_s = round(time.process_time() - began, 2)
    return {"tool": tool, "case": case, "their_cost": theirs, "our_cost": ours, "our_cpu_s": cpu_s}


def read_table(path: Path) -> Table:
    """Return a table, gzipped or not."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    table: Table = json.loads(text)
    return table


def is_not_above(row: Table) -> bool:
    """Return whether our cost is at most theirs, at the digits that theirs is printed with."""
    digits = len(f"{row['their_cost']}".partition(".")[2])
    return bool(round(row["our_cost"], digits) <= row["their_cost"])


def main() -> None:
    """Run all contests and write the result."""
    rows = list(run_contests(Path(sys.argv[1])))
    solved = [row for row in rows if row["our_cost"] is not None]
    counts = {"solved": len(solved), "left_out": len(rows) - len(solved)}
    write("pipeline_contests", {"rows": rows, **counts, "not_above": sum(map(is_not_above, solved))})


if __name__ == "__main__":
    main()
