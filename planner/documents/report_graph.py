"""A planned program as columns that a page draws: ops, values, collectives, and their schedule.

Columns are lists of equal length. Repeated texts (types, shardings, rules, scopes) are stored once in `strings` and
given by their position. An operand of an op, or an output of the graph, is [value, sharding, collectives...]: a value
of the graph, the sharding in which it is read, and the collectives that lead there, in order. `results` are positions
of values. Times are whole picoseconds, so that they add up; bytes are those of the device that has most.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from planner.ir.graph import Op
from planner.ir.indexing import Option
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall, Program, Reshard
from planner.ir.sharding import shard_shape
from planner.judge.alternatives import Alternative, find_alternatives
from planner.judge.analysis import Analysis
from planner.judge.overlap import assign_streams, schedule_overlap
from planner.judge.overlap_schedule import COMPUTE
from planner.planning.deadline import TimeLimitReached
from planner.usecases.explain import PlanExplanation

ReadPath = tuple[int, tuple[int, ...]]
OPTIONS = 3
"""Alternatives listed per op."""


class _StringTable(dict[str, int]):
    """Every text once, with its position."""

    def __missing__(self, text: str) -> int:
        return self.setdefault(text, len(self))


def dump_report_graph(explanation: PlanExplanation) -> dict[str, Any]:
    """Return the columns of a plan's program, with the best alternatives of every op where there is time for them."""
    strings, analysis = _StringTable(), explanation.analysis
    paths = _read_paths(analysis.program)
    columns = {
        "values": _dump_values(analysis, strings),
        "collectives": _dump_moves(analysis, strings),
        "outputs": [_dump_read(name, analysis.program, paths, strings=strings) for name in analysis.program.outputs],
        "schedule": _dump_schedule(analysis, explanation.limit_bytes),
    }
    alternatives: Mapping[str, Sequence[Alternative]] = {}
    with suppress(TimeLimitReached):
        alternatives = find_alternatives(explanation.question, explanation.strategies, OPTIONS)
    columns["ops"] = _dump_ops(analysis, paths, alternatives, strings=strings)
    return {"strings": list(strings), **columns}


def _dump_values(analysis: Analysis, strings: _StringTable) -> dict[str, list[Any]]:
    """Return the values of the graph: inputs first, for which `kind` and `name` are given, then results of ops."""
    program, graph = analysis.program, analysis.program.graph
    names = list(graph.types)
    values = [program.values[value] for value in names]
    return {
        "id": names,
        "kind": [strings[entry.kind] for entry in graph.inputs],
        "name": [entry.name for entry in graph.inputs],
        "type": [strings[str(each.type)] for each in values],
        "sharding": [strings[each.sharding.format_axes(program.mesh)] for each in values],
        "local": [strings[str(list(shard_shape(each.sharding, each.type.shape, program.mesh)))] for each in values],
        "bytes": [int(analysis.accounting.value_bytes[value].max()) for value in names],
    }


def _dump_moves(analysis: Analysis, strings: _StringTable) -> dict[str, list[Any]]:
    """Return the collectives in the order in which they run."""
    program, names = analysis.program, analysis.program.mesh.names
    instructions = zip(program.instructions, analysis.times_ps, analysis.received, strict=True)
    moves = [(done, time, int(received.max())) for done, time, received in instructions if isinstance(done, Reshard)]
    return {
        "collective": [strings[done.collective.kind.value] for done, _, _ in moves],
        "axes": [strings[",".join(names[axis] for axis in done.collective.axes)] for done, _, _ in moves],
        "sharding": [strings[program.values[done.result].sharding.format_axes(program.mesh)] for done, _, _ in moves],
        "time_ps": [time for _, time, _ in moves],
        "bytes": [size for _, _, size in moves],
    }


def _dump_ops(
    analysis: Analysis,
    paths: Mapping[str, ReadPath],
    alternatives: Mapping[str, Sequence[Alternative]],
    *,
    strings: _StringTable,
) -> dict[str, list[Any]]:
    program = analysis.program
    pairs = zip(program.instructions, analysis.times_ps, strict=True)
    runs = [(done, time) for done, time in pairs if isinstance(done, OpCall)]
    return {
        "id": [run.op.id for run, _ in runs],
        "op": [strings[run.op.op] for run, _ in runs],
        "scope": [strings[run.op.scope] for run, _ in runs],
        "phase": [strings[run.op.phase] for run, _ in runs],
        "rule": [strings[str(run.op.rule.pattern)] for run, _ in runs],
        "attrs": [strings[json.dumps(dict(run.op.attrs), default=str)] for run, _ in runs],
        "split": [strings[_dump_split(run.op, run.option, program.mesh)] for run, _ in runs],
        "recompute_of": [run.op.recompute_of for run, _ in runs],
        "results": [[paths[name][0] for name in run.results] for run, _ in runs],
        "time_ps": [time for _, time in runs],
        "operands": [[_dump_read(name, program, paths, strings=strings) for name in run.operands] for run, _ in runs],
        "alternatives": [
            [
                [strings[_dump_split(run.op, each.option, program.mesh)], each.compute_ps, each.reshards_ps]
                for each in alternatives.get(run.op.id, ())
            ]
            for run, _ in runs
        ],
    }


def _dump_split(op: Op, option: Option, mesh: Mesh) -> str:
    """Return the split loops of an op, each with its mesh axes: `b:dp, n:tp`."""
    pairs = zip(op.rule.loops, option, strict=True)
    return ", ".join(f"{loop.name}:{'/'.join(mesh.names[axis] for axis in axes)}" for loop, axes in pairs if axes)


def _read_paths(program: Program) -> dict[str, ReadPath]:
    """Return, for every value of the program, the position of the graph's value and the collectives that lead to it."""
    positions = {value: number for number, value in enumerate(program.graph.types)}
    paths: dict[str, ReadPath] = {name: (positions[name], ()) for name, _ in program.arguments}
    moves = 0
    for done in program.instructions:
        if isinstance(done, Reshard):
            origin, before = paths[done.operand]
            paths[done.result] = origin, (*before, moves)
            moves += 1
        else:
            paths |= {name: (positions[value], ()) for name, value in zip(done.results, done.op.values, strict=True)}
    return paths


def _dump_read(name: str, program: Program, paths: Mapping[str, ReadPath], *, strings: _StringTable) -> list[int]:
    value, moves = paths[name]
    return [value, strings[program.values[name].sharding.format_axes(program.mesh)], *moves]


def _dump_schedule(analysis: Analysis, limit_bytes: int) -> dict[str, Any]:
    """Return the stream, start and end of every instruction; op k has number k, collective k number -1 - k."""
    schedule = schedule_overlap(analysis, limit_bytes).schedule
    ends = np.cumsum(analysis.times_ps).tolist() if schedule is None else list(schedule.ends)
    starts = (
        [end - time for end, time in zip(ends, analysis.times_ps, strict=True)] if schedule is None else schedule.starts
    )
    streams = [str(stream) for stream in assign_streams(analysis.program, analysis.model)]
    names = list(dict.fromkeys([COMPUTE, *streams]))
    count = {True: 0, False: 0}
    numbers = []
    for instruction in analysis.program.instructions:
        is_run = isinstance(instruction, OpCall)
        numbers.append(count[is_run] if is_run else -1 - count[is_run])
        count[is_run] += 1
    return {
        "serial": schedule is None,
        "streams": names,
        "instruction": numbers,
        "stream": [names.index(stream) for stream in streams],
        "start_ps": list(starts),
        "end_ps": ends,
    }
