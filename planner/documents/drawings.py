"""A planned program as columns that a page draws: ops, values, collectives, and when each runs.

Columns are lists of equal length; text that recurs (types, shardings, rules, scopes) stands once in `words` and is
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

from planner.explaining import Explained
from planner.judge.alternatives import Alternative, alternatives
from planner.judge.analysis import Analysis
from planner.judge.overlap import overlap, streams
from planner.judge.schedule import COMPUTE
from planner.model.accounts import value_bytes
from planner.model.graph import Op
from planner.model.indexing import Option
from planner.model.mesh import Mesh
from planner.model.program import Move, Program, Run
from planner.model.sharding import shard_shape

Way = tuple[int, tuple[int, ...]]
OPTIONS = 3
"""Other options told of every op."""


class _Words(dict[str, int]):
    """Every text once: text -> its position."""

    def __missing__(self, text: str) -> int:
        return self.setdefault(text, len(self))


def drawing(found: Explained) -> dict[str, Any]:
    """The columns of a plan's program, with the best other options of every op."""
    words, analysis = _Words(), found.analysis
    others = alternatives(found.question, found.strategies, OPTIONS)
    ways = _ways(analysis.program)
    drawn = {
        "values": _values(analysis.program, words),
        "moves": _moves(analysis, words),
        "ops": _ops(analysis, ways, others, words),
        "outputs": [_read(name, analysis.program, ways, words) for name in analysis.program.outputs],
        "schedule": _schedule(analysis, found.limit_bytes),
    }
    return {"words": list(words), **drawn}


def _values(program: Program, words: _Words) -> dict[str, list[Any]]:
    """Values of the graph as they are made: inputs first, `kind` and `name` being theirs, then results of ops."""
    graph = program.graph
    listed = list(graph.types)
    held = [program.values[value] for value in listed]
    return {
        "id": listed,
        "kind": [words[entry.kind] for entry in graph.inputs],
        "name": [entry.name for entry in graph.inputs],
        "type": [words[str(each.type)] for each in held],
        "sharding": [words[each.sharding.named(program.mesh)] for each in held],
        "local": [words[str(list(shard_shape(each.sharding, each.type.shape, program.mesh)))] for each in held],
        "bytes": [int(value_bytes(program, value).max()) for value in listed],
    }


def _moves(analysis: Analysis, words: _Words) -> dict[str, list[Any]]:
    """The collectives, in the order in which they run."""
    program, names = analysis.program, analysis.program.mesh.names
    listed = zip(program.instructions, analysis.times_ps, analysis.received, strict=True)
    moves = [(done, time, int(received.max())) for done, time, received in listed if isinstance(done, Move)]
    return {
        "collective": [words[done.collective.kind.value] for done, _, _ in moves],
        "axes": [words[",".join(names[axis] for axis in done.collective.axes)] for done, _, _ in moves],
        "sharding": [words[program.values[done.result].sharding.named(program.mesh)] for done, _, _ in moves],
        "time_ps": [time for _, time, _ in moves],
        "bytes": [size for _, _, size in moves],
    }


def _ops(
    analysis: Analysis, ways: Mapping[str, Way], others: Mapping[str, Sequence[Alternative]], words: _Words
) -> dict[str, list[Any]]:
    program = analysis.program
    pairs = zip(program.instructions, analysis.times_ps, strict=True)
    runs = [(done, time) for done, time in pairs if isinstance(done, Run)]
    return {
        "id": [run.op.id for run, _ in runs],
        "op": [words[run.op.op] for run, _ in runs],
        "scope": [words[run.op.scope] for run, _ in runs],
        "phase": [words[run.op.phase] for run, _ in runs],
        "rule": [words[str(run.op.rule.pattern)] for run, _ in runs],
        "attrs": [words[json.dumps(dict(run.op.attrs), default=str)] for run, _ in runs],
        "split": [words[_split(run.op, run.option, program.mesh)] for run, _ in runs],
        "again": [run.op.again for run, _ in runs],
        "makes": [[ways[name][0] for name in run.results] for run, _ in runs],
        "time_ps": [time for _, time in runs],
        "reads": [[_read(name, program, ways, words) for name in run.operands] for run, _ in runs],
        "others": [
            [
                [words[_split(run.op, each.option, program.mesh)], each.compute_ps, each.reshards_ps]
                for each in others.get(run.op.id, ())
            ]
            for run, _ in runs
        ],
    }


def _split(op: Op, option: Option, mesh: Mesh) -> str:
    """`b:dp, n:tp`: the loops that are split, each over its mesh axes."""
    pairs = zip(op.rule.loops, option, strict=True)
    return ", ".join(f"{loop.name}:{'/'.join(mesh.names[axis] for axis in axes)}" for loop, axes in pairs if axes)


def _ways(program: Program) -> dict[str, Way]:
    """Of every value of the program: the graph's value that it is, by its place, and the moves that led there."""
    place = {value: number for number, value in enumerate(program.graph.types)}
    ways: dict[str, Way] = {name: (place[name], ()) for name, _ in program.arguments}
    moves = 0
    for done in program.instructions:
        if isinstance(done, Move):
            origin, before = ways[done.operand]
            ways[done.result] = origin, (*before, moves)
            moves += 1
        else:
            ways |= {name: (place[value], ()) for name, value in zip(done.results, done.op.values, strict=True)}
    return ways


def _read(name: str, program: Program, ways: Mapping[str, Way], words: _Words) -> list[int]:
    value, moves = ways[name]
    return [value, words[program.values[name].sharding.named(program.mesh)], *moves]


def _schedule(analysis: Analysis, limit_bytes: int) -> dict[str, Any]:
    """Every instruction's stream, start and end, ops counted up and moves counted down: op k is k, move k is -1 - k."""
    found = overlap(analysis, limit_bytes).schedule
    ends = np.cumsum(analysis.times_ps).tolist() if found is None else list(found.ends)
    starts = [end - time for end, time in zip(ends, analysis.times_ps, strict=True)] if found is None else found.starts
    listed = [str(stream) for stream in streams(analysis.program, analysis.model)]
    names = list(dict.fromkeys([COMPUTE, *listed]))
    count = {True: 0, False: 0}
    done = []
    for instruction in analysis.program.instructions:
        is_run = isinstance(instruction, Run)
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
