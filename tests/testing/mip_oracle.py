"""A slow oracle for the planner's own problems: one mixed-integer program (MIP) over all options, with flows on edges.

    python -m tests.testing.mip_oracle

A reshard costs the shortest path between two shardings. So the cost of an edge is that of one unit of flow from the
sharding that is made to the sharding that is read, in the network of all shardings of the value; its arcs are the
reshards that no two others replace at the same cost. This takes a column per arc and a row per sharding, where a column
per pair of strategies would be needed otherwise, and its linear relaxation is the same. Memory depends on pairs and not
on paths: an edge that uses memory while a limit is exceeded gets a column per pair. The program leaves nothing out in
advance, and shares no code with message passing, presolve or search.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

import solvers
from benchmarks.record import timed, write
from planner.choose.cost import CostModel
from planner.choose.formulate import Formulation, formulate
from planner.choose.hardware import load_profile
from planner.choose.variables import Variable
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.execution_order import Read, Share, order_steps
from planner.ir.mesh import Mesh
from planner.reshard.all_pairs import AllPairsResharding
from planner.reshard.resharding_graph import UNREACHABLE
from solvers import IMPOSSIBLE, Edge, evaluate, usage_profile
from solvers.linear_model import LinearModel, MipSolution

Integers = NDArray[np.int64]

# model, sizes, mesh, limits in shares of the free optimum's peak
SIZES: dict[str, Any] = {"width": 256, "heads": 4, "kv_heads": 4, "feed_forward": 1024, "vocabulary": 2048}
CASES: tuple[tuple[str, int, str | None, str, tuple[float | None, ...]], ...] = (
    ("gpt2", 1, None, "8", (None, 0.8)),
    ("llama-7b", 1, None, "2x4", (None,)),
    ("llama-7b", 2, None, "2x4", (None,)),
    ("gpt2", 1, "sgd", "8", (None,)),
    ("llama-7b", 1, "sgd", "2x2", (None,)),
    ("gpt2", 1, None, "8x8", (None,)),
)
ROUNDS, SECONDS = 30, 240.0


@dataclass(frozen=True, slots=True)
class FlowPath:
    """The flow network of an edge: arcs between the value's shardings that generate all distances, and each strategy's
    sharding at both ends."""

    edge: Edge
    states: int
    tails: Integers
    heads: Integers
    time: Integers
    made: Integers
    read: Integers


class FlowProgram:
    """A formulation as a MIP in flow form; a solution above the limit adds rows and pair columns."""

    def __init__(self, question: Formulation) -> None:
        self._problem, self._ways = question.problem, list(flow_paths(question))
        self._paired: set[int] = set()
        self._moments: list[int] = []

    def solve(self, seconds: float = SECONDS, gap: float = 1e-7) -> tuple[tuple[int, ...] | None, MipSolution]:
        """Return the best assignment (None: none found) and the MIP's solution, in the problem's cost units."""
        problem, limit, answer = self._problem, self._problem.limit, MipSolution(None, 0.0, False)
        for _ in range(ROUNDS):
            answer = self._program().solve(None, seconds=seconds, nodes=None, gap=gap, seed=0)
            if answer.values is None:
                break
            starts = problem.arrays.node_start
            choice = tuple(int(answer.values[a:b].argmax()) for a, b in pairwise(starts.tolist()))
            if limit is None or evaluate(problem, choice).feasible:
                return choice, answer
            worst = int(usage_profile(problem, np.array(choice)).argmax())
            if worst in self._moments:
                break
            self._moments.append(worst)
            alive = [e for e, edge in enumerate(problem.edges) if any(u.start <= worst < u.stop for u in edge.usages)]
            self._paired.update(alive)
        return None, answer

    def _program(self) -> LinearModel:
        program, starts = LinearModel(), self._problem.arrays.node_start
        rows = {moment: int(program.add_rows(np.array([-np.inf]), np.array([1.0]))[0]) for moment in self._moments}
        for node in self._problem.nodes:
            possible = node.cost < IMPOSSIBLE
            columns = program.add_columns(np.where(possible, node.cost * node.multiplicity, 0).astype(float), 1.0, True)
            program.upper[-1][~possible] = 0.0
            one = program.add_rows(np.ones(1), np.ones(1))
            program.add_entries(np.repeat(one, columns.size), columns, np.ones(columns.size))
            for moment in self._moments:
                if node.interval[0] <= moment < node.interval[1]:
                    self._use(program, rows[moment], columns, node.usage)
        for e, way in enumerate(self._ways):
            source, target = (
                starts[i] + np.arange(starts[i + 1] - starts[i]) for i in (way.edge.source, way.edge.target)
            )
            if e in self._paired:
                self._add_pairs(program, way.edge, source, target, rows)
            else:
                _add_flow(program, way, source, target)
        return program

    def _use(self, program: LinearModel, row: int, columns: Integers, usage: Integers) -> None:
        program.add_entries(np.full(columns.size, row), columns, usage / max(self._problem.limit or 1, 1))

    def _add_pairs(
        self, program: LinearModel, edge: Edge, source: Integers, target: Integers, rows: dict[int, int]
    ) -> None:
        height, width = edge.shape
        pairs_of_classes = np.arange(height)[:, None], np.arange(width)
        cost = edge.cost(*pairs_of_classes).ravel()
        pairs = program.add_columns(np.where(cost < IMPOSSIBLE, cost, 0).astype(np.float64) * edge.multiplicity, 1.0)
        program.upper[-1][cost >= IMPOSSIBLE] = 0.0
        numbers = np.arange(cost.size)
        for strategies, classes, of_pair, count in (
            (source, edge.source_class, numbers // width, height),
            (target, edge.target_class, numbers % width, width),
        ):
            ends = program.add_rows(np.zeros(count), np.zeros(count))
            program.add_entries(ends[of_pair], pairs, np.ones(pairs.size))
            program.add_entries(ends[classes], strategies, -np.ones(strategies.size))
        for usage in edge.usages:
            for moment in self._moments:
                if usage.start <= moment < usage.stop:
                    self._use(program, rows[moment], pairs, edge.select(usage.matrix, *pairs_of_classes).ravel())


def _add_flow(program: LinearModel, way: FlowPath, source: Integers, target: Integers) -> None:
    """Add flow conservation: a sharding's outflow less its inflow is its producer's strategies less its consumer's."""
    arcs = program.add_columns(way.time.astype(np.float64) * way.edge.multiplicity, np.inf)
    rows = program.add_rows(np.zeros(way.states), np.zeros(way.states))
    program.add_entries(rows[way.tails], arcs, np.ones(arcs.size))
    program.add_entries(rows[way.heads], arcs, -np.ones(arcs.size))
    program.add_entries(rows[way.made], source, -np.ones(source.size))
    program.add_entries(rows[way.read], target, np.ones(target.size))


def flow_paths(question: Formulation) -> Iterator[FlowPath]:
    """Yield the flow network of each edge, in order."""
    variables, arcs = question.variables, dict[int, tuple[Integers, Integers]]()
    values = [step.value for step in order_steps(question.graph) if isinstance(step, Share | Read)]
    for edge, value in zip(question.problem.edges, values, strict=True):
        table = question.distances[value]
        maker, reader = variables[edge.source], variables[edge.target]
        rows, columns = _ends(table, edge, maker, reader)
        tails, heads = arcs.setdefault(id(table), needed(table.time))
        time = table.time[tails, heads]
        yield FlowPath(edge, len(table.states), tails, heads, time, rows[edge.source_class], columns[edge.target_class])


def _ends(table: AllPairsResharding, edge: Edge, maker: Variable, reader: Variable) -> tuple[Integers, Integers]:
    """Return the table's rows for the producer's and for the consumer's strategies, by which the edge is priced."""
    for made, read in product(maker.results, (*reader.operands, *reader.results)):
        if np.array_equal(made.classes, edge.source_class) and np.array_equal(read.classes, edge.target_class):
            rows, columns = (np.array([table.index.get(state, 0) for state in port.states]) for port in (made, read))
            if np.array_equal(
                edge.cost(np.arange(rows.size)[:, None], np.arange(columns.size)), table.time[np.ix_(rows, columns)]
            ):
                return rows, columns
    raise AssertionError(f"edge of {maker.name} and {reader.name}: no ports of theirs")


def needed(time: Integers) -> tuple[Integers, Integers]:
    """Return the arcs (tails, heads) of a metric that are cheaper than any path of two: they generate all distances."""
    detour = np.full(time.shape, UNREACHABLE, np.int64)
    for between in range(len(time)):
        through = time[:, between, None] + time[None, between, :]
        through[between], through[:, between] = UNREACHABLE, UNREACHABLE
        np.minimum(detour, through, out=detour)
    single = (time < detour) & (time < UNREACHABLE)
    np.fill_diagonal(single, False)
    tails, heads = np.nonzero(single)
    return tails, heads


def question_of(name: str, layers: int, train: str | None, mesh_text: str) -> Formulation:
    """Return the formulation of a small model of the family with this many layers."""
    mesh = Mesh.parse(mesh_text)
    document = import_zoo(name, batch=16, seq=64, train=train, layers=layers, **SIZES)
    graph = load_graph(GraphDocument.model_validate(document), mesh)
    return formulate(graph, CostModel(mesh, load_profile("h100-sxm")))


def compared(name: str, layers: int, train: str | None, mesh: str, shares: tuple[float | None, ...]) -> Iterator[Any]:
    """Yield the MIP's optimum and the solver's, for each limit (a share of the free optimum's peak; None: no limit)."""
    question = question_of(name, layers, train, mesh)
    free = solvers.solve(question.problem, time_limit=SECONDS)
    peak = evaluate(question.problem, free.assignment or ()).peak
    for share in shares:
        limit = None if share is None else int(share * peak)
        posed = solvers.Problem(question.problem.nodes, question.problem.edges, limit)
        asked = replace(question, problem=posed)
        row: dict[str, Any] = {"model": name, "layers": layers, "train": train, "mesh": mesh, "limit": limit}
        with timed(row, "solver_s"):
            found = solvers.solve(posed, time_limit=60, gap=1e-6)
        with timed(row, "oracle_s"):
            choice, answer = FlowProgram(asked).solve()
        cost = None if choice is None else evaluate(posed, choice).cost
        yield row | {
            "strategies": int(posed.arrays.node_start[-1]),
            "pairs": int((posed.arrays.height * posed.arrays.width).sum()),
            "cost": found.cost,
            "bound": found.bound,
            "oracle_cost": cost,
            "oracle_bound": answer.bound,
            "finished": answer.is_complete and choice is not None,
        }


def main() -> None:
    write("flow", {"runs": [row for case in CASES for row in compared(*case)]})


if __name__ == "__main__":
    main()
