"""Compare a run in PyTorch with its plan: bytes of every collective, memory of every process, times by class and scope.

Bytes are summed over all processes: where a block does not divide by the ring, the formulas' shares of a process are no
whole numbers, but their sum is. `parallelize` leaves the update to the optimizer: collectives of the update do not run,
but for those that bring a parameter into the layout in which the next step reads it, which run first in forward, under
the parameter's name. Memory is compared for what the functions are given: under `parallelize` without optimizer states,
and with parameters also as they are updated, and sums of results beside those of a micro-batch; with the data of all
micro-batches, where the plan counts those of one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.choose.cost import PICO, CostModel
from planner.documents.hardware import load_planned_hardware
from planner.documents.profiler_trace import ProfiledOp
from planner.documents.programs import load_program
from planner.documents.run_trace import RunTraceDocument
from planner.documents.schemas import PlanDocument
from planner.errors import InvalidRequest
from planner.ir.accounting import count_live_bytes, count_received_bytes, count_value_bytes
from planner.ir.program import OpCall, Program, follow_update
from planner.judge.analysis import Analysis

WHOLE_STEP = "program"
"""The function of an exported program, update included."""
TRAINING_STEP = "step"
"""The function of all micro-batches of a step, without the update."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A plan's program, and the traces of its processes."""

    program: Program
    traces: Sequence[RunTraceDocument]

    @property
    def is_whole_step(self) -> bool:
        return WHOLE_STEP in self.traces[0].functions

    def count_received(self) -> dict[str, int]:
        """Return the bytes that all processes received, by value of the plan."""
        following = {name: self.program.outputs[place] for place, name in self.program.graph.state_outputs.items()}
        totals: dict[str, float] = defaultdict(float)
        for trace in self.traces:
            # Of several micro-batches, forward alone is an evaluation.
            step = trace.functions.get(TRAINING_STEP)
            for function in trace.functions.values() if step is None else [step]:
                for name, size in function.received_bytes.items():
                    totals[following.get(name, name)] += size
        return {name: round(size) for name, size in totals.items()}


def compare_run(
    plan: PlanDocument, traces: Sequence[RunTraceDocument], profile: Sequence[ProfiledOp] | None = None
) -> dict[str, Any]:
    """Return where run and plan differ, as a document. Raises InvalidRequest for a run of another plan."""
    program = load_program(plan)
    first = traces[0]
    if first.ranks != program.mesh.devices:
        wanted = f"{program.mesh.devices}, as planned"
        raise InvalidRequest("run of another plan", where="trace", got=f"{first.ranks} processes", wanted=wanted)
    run = _Run(program, traces)
    collectives = _compare_collectives(run)
    document = {
        "verdict": "equal"
        if all(row["counted_bytes"] == row["predicted_bytes"] for row in collectives)
        else "different",
        "counted_bytes": sum(row["counted_bytes"] for row in collectives),
        "predicted_bytes": sum(row["predicted_bytes"] for row in collectives),
        "collectives": collectives,
        "memory": _compare_memory(run),
    }
    if profile is None:
        return document
    analysis = Analysis(program, CostModel(program.mesh, load_planned_hardware(plan)))
    return document | {"times": compare_times(analysis, profile)}


def compare_times(analysis: Analysis, profile: Iterable[ProfiledOp]) -> dict[str, Any]:
    """Return predicted and measured seconds of a step by class of op or collective, and by scope."""
    totals: dict[str, float] = defaultdict(float)
    runs: dict[str, int] = defaultdict(int)
    for row in profile:
        if row.depth == 0:
            totals[row.scope] += row.time_s
            runs[row.scope] = max(runs[row.scope], row.run + 1)
    measured = {name: seconds / runs[name] for name, seconds in totals.items()}
    by_class, by_scope = _Times(), _Times()
    for done, time in zip(analysis.program.instructions, analysis.times_ps, strict=True):
        name = done.op.id if isinstance(done, OpCall) else done.result
        if name in measured:
            by_class.add(done.op.op if isinstance(done, OpCall) else done.collective.kind.value, time, measured[name])
            by_scope.add(f"{done.op.phase} {done.op.scope}" if isinstance(done, OpCall) else "", time, measured[name])
    return {"by_class": by_class.rows(), "by_scope": by_scope.rows()}


def _compare_collectives(run: _Run) -> list[dict[str, Any]]:
    """Return the collectives that run, those first whose bytes differ; and bytes of values that have none."""
    program, counted = run.program, run.count_received()
    predicted = count_received_bytes(program).sum(axis=1).tolist()
    rows = []
    for place, (done, size) in enumerate(zip(program.instructions, predicted, strict=True)):
        name = done.results[0]
        found = counted.pop(name, 0)
        is_left = not run.is_whole_step and place >= program.loop_end and not found
        if isinstance(done, OpCall) or is_left or not (size or found):
            continue
        kind, axes = done.collective.kind.value, [program.mesh.names[axis] for axis in done.collective.axes]
        rows.append({"value": name, "collective": kind, "axes": axes, "counted_bytes": found, "predicted_bytes": size})
    rows += [
        {"value": name, "collective": None, "axes": [], "counted_bytes": size, "predicted_bytes": 0}
        for name, size in counted.items()
    ]
    return sorted(rows, key=lambda row: row["counted_bytes"] == row["predicted_bytes"])


def _compare_memory(run: _Run) -> list[dict[str, Any]]:
    """Return, for every process, the most held between instructions, with temporaries, and as predicted."""
    peaks = _predict_held(run).max(axis=0).tolist()
    rows = []
    for trace, predicted in zip(run.traces, peaks, strict=True):
        most = max(trace.functions.values(), key=lambda each: each.peak_bytes)
        held = max(each.held_bytes for each in trace.functions.values())
        rows.append(
            {
                "rank": trace.rank,
                "held_bytes": held,
                "predicted_bytes": predicted,
                "peak_bytes": most.peak_bytes,
                "peak_at": most.peak_at,
            }
        )
    return rows


def _predict_held(run: _Run) -> NDArray[np.int64]:
    """Return the bytes `[instructions, devices]` of a step that the functions hold."""
    program, graph = run.program, run.program.graph
    live = count_live_bytes(program)
    for name in program.stacked:
        live = live + (graph.microbatches - 1) * count_value_bytes(program, name)
    if run.is_whole_step:
        return live
    live = live[: program.loop_end]
    for entry in graph.inputs:
        live = live - (count_value_bytes(program, entry.id) if entry.kind == "optimizer_state" else 0)
    for name in graph.state_outputs.values():
        for move in follow_update(program, name)[:1]:
            live = live + count_value_bytes(program, move.operand)
    if graph.microbatches > 1:
        results = (value for number, value in enumerate(program.outputs) if number not in graph.state_outputs)
        live = live + sum(count_value_bytes(program, value) for value in results)
    return live


class _Times:
    """Predicted and measured time by a key."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}

    def add(self, key: str, predicted_ps: int, measured_s: float) -> None:
        times = self.times.setdefault(key, [0, 0.0, 0.0])
        for place, each in enumerate((1, predicted_ps * PICO, measured_s)):
            times[place] += each

    def rows(self) -> list[Mapping[str, Any]]:
        """Return the rows, the longest measured first."""
        listed = sorted(self.times.items(), key=lambda entry: -entry[1][2])
        return [
            {"name": name, "count": int(count), "predicted_s": predicted, "measured_s": measured}
            for name, (count, predicted, measured) in listed
        ]
