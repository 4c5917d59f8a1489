"""A planned program as columns that a page draws: ops, values, collectives, and when each runs.

Columns are lists of equal length; text that recurs (types, shardings, rules, scopes) stands once in `strings` and is
named by its position there. An op reads each operand as [value, sharding, moves...]: the value of the graph, the
sharding in which the op wants it, and the collectives that bring it there, in order; a graph output likewise. It makes
the values named by their positions. Times are whole picoseconds, so that they add up; bytes are those of the device
that has most.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
from planner.usecases.explain import PlanExplanation

ReadPath = tuple[int, tuple[int, ...]]
OPTIONS = 3
"""Other options told of every op."""


class _StringTable(dict[str, int]):
    """Every text once: text -> its position."""

    def __missing__(self, text: str) -> int:
        return self.setdefault(text, len(self))


def dump_report_graph(found: PlanExplanation) -> dict[str, Any]:
    """The columns of a plan's program, with the best other options of every op."""
    strings, analysis = _StringTable(), found.analysis
    others = find_alternatives(found.question, found.strategies, OPTIONS)
    ways = _read_paths(analysis.program)
    drawn = {
        "values": _dump_values(analysis, strings),
        "collectives": _dump_moves(analysis, strings),
        "ops": _dump_ops(analysis, ways, others, strings=strings),
        "outputs": [_dump_read(name, analysis.program, ways, strings=strings) for name in analysis.program.outputs],
        "schedule": _dump_schedule(analysis, found.limit_bytes),
    }
    return {"strings": list(strings), **drawn}


def _dump_values(analysis: Analysis, strings: _StringTable) -> dict[str, list[Any]]:
    """Values of the graph as they are made: inputs first, `kind` and `name` being theirs, then results of ops."""
    program, graph = analysis.program, analysis.program.graph
    listed = list(graph.types)
    held = [program.values[value] for value in listed]
    return {
        "id": listed,
        "kind": [strings[entry.kind] for entry in graph.inputs],
        "name": [entry.name for entry in graph.inputs],
        "type": [strings[str(each.type)] for each in held],
        "sharding": [strings[each.sharding.format_axes(program.mesh)] for each in held],
        "local": [strings[str(list(shard_shape(each.sharding, each.type.shape, program.mesh)))] for each in held],
        "bytes": [int(analysis.accounting.value_bytes[value].max()) for value in listed],
    }


def _dump_moves(analysis: Analysis, strings: _StringTable) -> dict[str, list[Any]]:
    """The collectives, in the order in which they run."""
    program, names = analysis.program, analysis.program.mesh.names
    listed = zip(program.instructions, analysis.times_ps, analysis.received, strict=True)
    moves = [(done, time, int(received.max())) for done, time, received in listed if isinstance(done, Reshard)]
    return {
        "collective": [strings[done.collective.kind.value] for done, _, _ in moves],
        "axes": [strings[",".join(names[axis] for axis in done.collective.axes)] for done, _, _ in moves],
        "sharding": [strings[program.values[done.result].sharding.format_axes(program.mesh)] for done, _, _ in moves],
        "time_ps": [time for _, time, _ in moves],
        "bytes": [size for _, _, size in moves],
    }


def _dump_ops(
    analysis: Analysis,
    ways: Mapping[str, ReadPath],
    others: Mapping[str, Sequence[Alternative]],
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
        "results": [[ways[name][0] for name in run.results] for run, _ in runs],
        "time_ps": [time for _, time in runs],
        "operands": [[_dump_read(name, program, ways, strings=strings) for name in run.operands] for run, _ in runs],
        "alternatives": [
            [
                [strings[_dump_split(run.op, each.option, program.mesh)], each.compute_ps, each.reshards_ps]
                for each in others.get(run.op.id, ())
            ]
            for run, _ in runs
        ],
    }


def _dump_split(op: Op, option: Option, mesh: Mesh) -> str:
    """`b:dp, n:tp`: the loops that are split, each over its mesh axes."""
    pairs = zip(op.rule.loops, option, strict=True)
    return ", ".join(f"{loop.name}:{'/'.join(mesh.names[axis] for axis in axes)}" for loop, axes in pairs if axes)


def _read_paths(program: Program) -> dict[str, ReadPath]:
    """Of every value of the program: the graph's value that it is, by its place, and the moves that led there."""
    place = {value: number for number, value in enumerate(program.graph.types)}
    ways: dict[str, ReadPath] = {name: (place[name], ()) for name, _ in program.arguments}
    moves = 0
    for done in program.instructions:
        if isinstance(done, Reshard):
            origin, before = ways[done.operand]
            ways[done.result] = origin, (*before, moves)
            moves += 1
        else:
            ways |= {name: (place[value], ()) for name, value in zip(done.results, done.op.values, strict=True)}
    return ways


def _dump_read(name: str, program: Program, ways: Mapping[str, ReadPath], *, strings: _StringTable) -> list[int]:
    value, moves = ways[name]
    return [value, strings[program.values[name].sharding.format_axes(program.mesh)], *moves]


def _dump_schedule(analysis: Analysis, limit_bytes: int) -> dict[str, Any]:
    """Every instruction's stream, start and end, ops counted up and moves counted down: op k is k, move k is -1 - k."""
    found = schedule_overlap(analysis, limit_bytes).schedule
    ends = np.cumsum(analysis.times_ps).tolist() if found is None else list(found.ends)
    starts = [end - time for end, time in zip(ends, analysis.times_ps, strict=True)] if found is None else found.starts
    listed = [str(stream) for stream in assign_streams(analysis.program, analysis.model)]
    names = list(dict.fromkeys([COMPUTE, *listed]))
    count = {True: 0, False: 0}
    done = []
    for instruction in analysis.program.instructions:
        is_run = isinstance(instruction, OpCall)
        done.append(count[is_run] if is_run else -1 - count[is_run])
        count[is_run] += 1
    return {
        "serial": found is None,
        "streams": names,
        "instruction": done,
        "stream": [names.index(stream) for stream in listed],
        "start_ps": list(starts),
        "end_ps": ends,
    }
