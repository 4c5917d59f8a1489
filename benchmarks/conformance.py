"""Measures conformance to the mesh dialect: items named by tests, random graphs and programs, bad inputs, scaling.

An item counts where the text of a test names it: that shows what the tests mean to check, not that it holds. The other
rows come from runs.

Random annotated graphs are propagated, partitioned (with arguments split, and full), optimised at two prices and run on
every logical device: each result must equal that of the whole graph, and counted bytes the predicted ones. Random SPMD
programs must agree with an oracle that works element by element. Malformed input must end in a designed error that says
what, where, and what was got or wanted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.propagation_scaling import growth
from benchmarks.record import timed, write
from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.errors import ShardplanError
from planner.ir.accounting import count_live_bytes, count_received_bytes
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Program, Reshard
from planner.judge.analysis import price_instruction
from planner.reshard.documented_path import make_documented_path
from planner.rewrite.materialize import materialize_completed
from planner.rewrite.optimize import optimize, zero_price
from planner.rewrite.propagation.propagate import propagate
from planner.run.executor import run_program, run_whole
from planner.run.inputs import random_inputs
from tests.testing import malformed_inputs as malformed
from tests.testing import random_spmd
from tests.testing.layout_oracle import agree, unshard_array
from tests.testing.random_convolutions import random_convolutions
from tests.testing.random_graphs import random_graph

ITEMS = 109
GRAPHS, PROGRAMS = range(1200), range(1000, 2000)
MALFORMED = {"texts": 100, "damaged": 600, "annotations": 60, "programs": 60}
FAULTS = ("accepted though wrong", "refused without what, where, got or wanted", "traceback")
PROFILES = ("h100-sxm", "cpu")
TOLERANCE = 1e-8
PROCESSES = 2


@dataclass
class Outcome:
    """Counts, and a description of every failure that allows to reproduce it."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.counts += other.counts
        self.failures += other.failures

    @contextmanager
    def trying(self, what: str) -> Iterator[None]:
        """Count an AssertionError within the context as a wrong answer, any other exception as a crash."""
        try:
            yield
        except AssertionError as error:
            self.counts["wrong"] += 1
            self.failures.append(f"{what}: wrong: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
            self.counts["crash"] += 1
            self.failures.append(f"{what}: {type(error).__name__}: {error}")

    def result(self, faults: tuple[str, ...] = ("wrong", "crash")) -> dict[str, Any]:
        """Return the counts as a document, faults first; a name `group: key` is counted within its group."""
        found: dict[str, Any] = dict.fromkeys(faults, 0)
        for key, count in sorted(self.counts.items()):
            group, _, name = key.partition(": ")
            (found.setdefault(group, {}) if name else found)[name or key] = count
        return found | {"failures": self.failures[:20]}


def items() -> dict[str, Any]:
    """Items of the specification that comments and docstrings of tests name, whatever these tests assert.

    `conformance 74`, `conformance 41 to 57`; not `conformance 3.3.1`.
    """
    named: set[int] = set()
    for path in (Path(__file__).parents[1] / "tests").rglob("*.py"):
        for first, last in re.findall(r"conformance (\d+)(?!\d|\.\d)(?: to (\d+))?", path.read_text()):
            named |= set(range(int(first), int(last or first) + 1))
    wanted = set(range(1, ITEMS + 1))
    return {"named": len(wanted & named), "of": ITEMS, "missing": sorted(wanted - named)}


def graph_outcome(seed: int, draw: Callable[[int], tuple[Graph, Mesh]] = random_graph) -> Outcome:
    """Try one random graph with both ways of partitioning."""
    outcome, (graph, mesh) = Outcome(), draw(seed)
    counts = outcome.counts
    counts[f"graphs by mesh axes: {len(mesh.axes)}"] += 1
    with outcome.trying(f"graph {seed}"):
        try:
            completed = propagate(graph, mesh)
        except ShardplanError as error:
            counts[f"diagnosed graphs: {message_class(error)}"] += 1
            return outcome
        for full in (False, True):
            try:
                program = materialize_completed(
                    graph, mesh, completed, route=make_documented_path(graph, mesh), full_arguments=full
                )
            except ShardplanError as error:
                counts[f"diagnosed partitions: {message_class(error)}"] += 1
            else:
                check_program(program, seed)
                counts["partitions equal"] += 1
                counts["graphs run"] += not full
                counts.update(contents(program))
    return outcome


def convolution_outcome(seed: int) -> Outcome:
    """Try one random graph with convolutions, halos and offsets together."""
    return graph_outcome(seed, random_convolutions)


def message_class(error: ShardplanError) -> str:
    """Return the error's rule without the names in the message."""
    return re.sub(r"loop \w+$|result \d+$", lambda found: found[0].split()[0], error.what)


def contents(program: Program) -> set[str]:
    """Return the kinds of collectives and the reductions of partial values that occur in a program."""
    kinds = {done.collective.kind for done in program.instructions if isinstance(done, Reshard)}
    held = [(value.type.shape, value.sharding) for value in program.values.values()]
    uneven = any(
        size % program.mesh.group_size(axes)
        for shape, sharding in held
        for size, axes in zip(shape, sharding.split_axes, strict=True)
    )
    partial_by = {sharding.reduction for _, sharding in held if sharding.partial}
    return {
        *(f"partitions with: {kind}" for kind in kinds),
        *(f"partitions partial by: {kind}" for kind in partial_by),
        *(["partitions with: uneven blocks"] if uneven else []),
        *(["partitions with: halos"] if any(sharding.halo_sizes for _, sharding in held) else []),
        *(["partitions with: offsets"] if any(sharding.sharded_dims_offsets for _, sharding in held) else []),
    }


def check_program(program: Program, seed: int) -> None:
    """Check a program against the whole graph: as it is, and optimised with and without a hardware profile."""
    arrays = random_inputs(program.graph, np, "f64", seed=seed)
    with np.errstate(all="ignore"):
        whole = run_whole(program.graph, arrays, np, precision="f64")
    price = partial(price_instruction, CostModel(program.mesh, load_profile(PROFILES[seed % len(PROFILES)])))
    known: list[Program] = []
    for made in (program, optimize(program, zero_price), optimize(program, price)):
        if made not in known:
            known.append(made)
            check_run(made, arrays, whole)


def check_run(program: Program, arrays: dict[str, Any], whole: dict[str, Any]) -> None:
    """Check every output on every device, and the bytes against the prediction."""
    with np.errstate(all="ignore"):
        run = run_program(program, arrays, np, precision="f64")
    for place, (value, name) in enumerate(zip(program.graph.outputs, program.outputs, strict=True)):
        held = program.values[name]
        got = unshard_array([outputs[place] for outputs in run.outputs], held.sharding, held.type.shape, program.mesh)
        assert agree(got, whole[value], TOLERANCE), f"output {value}"
    assert (run.received == count_received_bytes(program)).all(), "bytes received"
    assert (run.peak == count_live_bytes(program).max(axis=0)).all(), "peak bytes"


def spmd_outcome(seed: int) -> Outcome:
    """Try one random SPMD program with collectives, halos, shifts and messages."""
    outcome = Outcome()
    with outcome.trying(f"program {seed}"):
        calls, refused = random_spmd.check(seed, np)
        outcome.counts.update({"equal": 1, "calls refused by design": refused})
        outcome.counts.update(f"calls: {op}" for op in calls)
    return outcome


def malformed_outcome() -> Outcome:
    """Try all malformed inputs."""
    outcome = Outcome()
    for case in malformed.cases(**MALFORMED):
        kind = f"{case.kind}s"
        outcome.counts[f"tried: {kind}"] += 1
        try:
            case.attempt()
        except ShardplanError as error:
            whole = error.what and error.where and (error.got is not None or error.wanted is not None)
            outcome.counts["refused" if whole else FAULTS[1]] += 1
            if not whole:
                outcome.failures.append(f"{case.name}: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
            outcome.counts[FAULTS[2]] += 1
            outcome.failures.append(f"{case.name}: {type(error).__name__}: {error}")
        else:
            outcome.counts["still right" if case.may_be_right else FAULTS[0]] += 1
            if not case.may_be_right:
                outcome.failures.append(f"{case.name}: accepted {case.text[:300]}")
    return outcome


def over(seeds: Iterable[int], one: Callable[[int], Outcome]) -> Outcome:
    """Return the sum of the outcomes of all seeds."""
    total = Outcome()
    with ProcessPoolExecutor(PROCESSES) as pool:
        for outcome in pool.map(one, seeds, chunksize=20):
            total.add(outcome)
    return total


def entry(measured: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return a result with the seconds that it took."""
    seconds: dict[str, Any] = {}
    with timed(seconds, "seconds"):
        result = measured()
    return result | seconds


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    spmd, wrong = result["spmd"], result["malformed"]
    tried = sum(wrong["tried"].values())
    last, grown = result["growth"]["rows"][-1], result["growth"]
    rows = [
        (
            "items of the specification named in some test (whatever it asserts)",
            f"{result['items']['named']} of {result['items']['of']}",
        ),
        ("random annotated graphs, partitioned, optimised and run on all devices", _run(result["graphs"])),
        ("the same graphs with halos or offsets", _run(result["graphs with halos or offsets"])),
        (
            "random SPMD programs against an element-by-element oracle",
            f"{spmd['equal']:,} equal ({sum(spmd['calls'].values()):,} calls), "
            f"{spmd['wrong']} wrong, {spmd['crash']} crashes",
        ),
        (
            "malformed texts, annotations and programs",
            f"{tried:,} tried, {wrong['refused']:,} refused with a designed error, "
            f"{wrong['still right']} still right after the damage, {sum(wrong[fault] for fault in FAULTS)} otherwise",
        ),
        (
            f"propagation + partition of {last['ops']:,} ops",
            f"{last['together_s']:.1f} s, growing as ops^{grown['exponent']:.1f}",
        ),
    ]
    return "\n".join(["| check | result |", "|---|---|", *(f"| {check} | {found} |" for check, found in rows)])


def _run(graphs: dict[str, Any]) -> str:
    diagnosed = sum(graphs["diagnosed graphs"].values())
    return (
        f"{graphs['graphs run']:,} run ({graphs['partitions equal']:,} partitions), {graphs['wrong']} wrong, "
        f"{graphs['crash']} crashes; {diagnosed} with a conflict, diagnosed"
    )


def cut_graphs() -> dict[str, Any]:
    """Try the same graphs with halos and offsets."""
    return {"tried": len(GRAPHS)} | over(
        GRAPHS, partial(graph_outcome, draw=partial(random_graph, halos=True))
    ).result()


def main() -> None:
    """Measure everything and write results/conformance.json."""
    result = {
        "growth": entry(growth),
        "items": items(),
        "graphs": entry(lambda: {"tried": len(GRAPHS)} | over(GRAPHS, graph_outcome).result()),
        "graphs with halos or offsets": entry(cut_graphs),
        "spmd": entry(lambda: {"tried": len(PROGRAMS)} | over(PROGRAMS, spmd_outcome).result()),
        "malformed": entry(lambda: malformed_outcome().result(FAULTS)),
    }
    write("conformance", result)


if __name__ == "__main__":
    main()
