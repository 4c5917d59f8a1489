"""Traces of runs, a document per process, as `planner.export.torch_program.run_trace` writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from planner.documents.json_reader import read_json
from planner.documents.schemas import validate_document
from planner.documents.strict_model import Id, Name, Size, StrictModel, Version
from planner.errors import InvalidDocument


class FunctionTraceDocument(StrictModel):
    """What one call of a program's function moved and held on one process.

    `received_bytes` are by the value that a collective makes. `held_bytes` is the most that was held when a line of the
    program was done, `peak_bytes` the most ever, within the op `peak_at`.
    """

    calls: Size
    received_bytes: dict[Id, float]
    held_bytes: Size
    peak_bytes: Size
    peak_at: Name


class RunTraceDocument(StrictModel):
    """The trace of one process of a run."""

    format: Literal["shardplan.trace"]
    version: Version
    graph: Name
    torch: Name
    rank: Size
    ranks: Size
    functions: dict[Name, FunctionTraceDocument]


def read_run_trace(folder: Path, graph: str) -> list[RunTraceDocument]:
    """Return the traces of all processes that ran a graph's program, by rank.

    Raises InvalidDocument where one is missing or damaged.
    """
    paths = sorted(folder.glob("*rank-*.json"))
    read = [validate_document(RunTraceDocument, read_json(path), str(path)) for path in paths]
    traces = sorted((each for each in read if each.graph == graph), key=lambda each: each.rank)
    wanted = list(range(traces[0].ranks)) if traces else "those of all processes, as SHARDPLAN_TRACE=1 writes them"
    if (got := [each.rank for each in traces]) != wanted:
        raise InvalidDocument(f"traces of {graph}", where=str(folder), got=f"ranks {got}", wanted=wanted)
    return traces
