"""The planner's question as a choice problem, and the answer back. A strategy of `solvers` is an option here.

A node for every variable; an edge between the maker of a value, or its hub, and each reader, which costs the
cheapest reshard. Costs are picoseconds, so the objective is the program's time.

Moments are the steps of `planner.ir.execution_order` and a last one for the finished program. A value counts from the
step that makes it to the step that last reads it:
    one reader      node [made, read); edge: the chain's peak at read, the copy after it until the reader has run
    several         node [made, shared); hub [shared + 1, last read); the last reader's edge as above, the
                    others' beside the source, with no copy where nothing changed
    graph input     lives throughout; only copies count
The count is exact but for two cautious roundings: where the last op reads a shared value twice, and where a
graph input is shared, the hub counts until that op has run.

With recomputation (`planner.choose.rematerialization`) there is a node for every copy of an op, which may take the
strategy not to run, at no cost; its edges then cost and use nothing. Who reads a value last is the hub's to choose (its
life), and an edge forbids what does not fit: to read after the last reader, to be the last and not to run, to read what
is not there. Of a value that may be made again
    kept            its hub lives until that of its copy does, which takes the same sharding: an edge between the two
    made again      its hub lives until its last early reader, and the copy runs, and is shared as any value is
so that what is held while is exact in either case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from planner.choose.cost import CostModel
from planner.choose.edge_matrices import EdgeMatrices
from planner.choose.liveness import Liveness
from planner.choose.problem_builder import ProblemBuilder
from planner.choose.rematerialization import GraphWithClones
from planner.choose.variables import Role, Variable, list_variables
from planner.ir.graph import Graph, Op
from planner.ir.indexing import Option
from planner.ir.sharding import Sharding
from planner.reshard.all_pairs import AllPairsResharding
from solvers import Problem


@dataclass(frozen=True)
class Choice:
    """What was chosen: a layout per graph input and output, an option per op that runs, a sharding per shared value."""

    inputs: dict[str, Sharding]
    options: dict[str, Option]
    shared: dict[str, Sharding]
    outputs: tuple[Sharding, ...]


@dataclass(frozen=True)
class Formulation:
    """A graph's choice problem with what its numbers mean; `distances` has a table for every value."""

    liveness: Liveness
    model: CostModel
    variables: tuple[Variable, ...]
    problem: Problem
    distances: dict[str, AllPairsResharding]

    @property
    def with_clones(self) -> GraphWithClones:
        return self.liveness.with_clones

    @property
    def graph(self) -> Graph:
        """With a copy of every op that may be done again."""
        return self.with_clones.graph

    def producer(self, value: str) -> tuple[Op, int] | None:
        """The op that makes a value, as which of its results; None for a graph input."""
        return self._producers.get(value)

    @cached_property
    def _producers(self) -> dict[str, tuple[Op, int]]:
        return {value: (op, k) for op in self.graph.ops for k, value in enumerate(op.values)}

    @cached_property
    def index(self) -> dict[tuple[Role, str], int]:
        return {(variable.role, variable.name): i for i, variable in enumerate(self.variables)}

    def decode(self, strategies: Sequence[int]) -> Choice:
        """The planner's choice of the solver's."""
        picked = list(zip(self.variables, strategies, strict=True))

        def shardings_of(role: Role) -> dict[str, Sharding]:
            ports = [(v, (*v.results, *v.operands)[0], s) for v, s in picked if v.role is role]
            there = [(v, port.states, port.classes[s]) for v, port, s in ports]
            return {v.name: states[state] for v, states, state in there if state < len(states)}

        inputs, own = shardings_of(Role.INPUT), shardings_of(Role.OUTPUT)
        replaced = self.graph.state_outputs
        return Choice(
            inputs,
            {v.name: v.options[s] for v, s in picked if v.role is Role.OP and s < len(v.options)},
            shardings_of(Role.SHARED_COPY),
            tuple(inputs[replaced[n]] if n in replaced else own[str(n)] for n in range(len(self.graph.outputs))),
        )


def formulate(
    graph: Graph | GraphWithClones, model: CostModel, limit: int | None = None, *, late: Mapping[str, int] | None = None
) -> Formulation:
    """The choice problem of a graph on the model's mesh, under a limit of bytes per device.

    `late`: the ops that may be done again, each with the position of the op before which it would be.
    Grows linearly in ops; with (dims + 2)^axes options an op has and the square of that for an edge.
    """
    doubled = graph if isinstance(graph, GraphWithClones) else GraphWithClones.of(graph, late)
    time = Liveness(doubled)
    listed = list_variables(time, model)
    tables = EdgeMatrices(time, model, listed)
    writing = ProblemBuilder(time, listed, tables)
    problem = Problem(writing.nodes(), writing.edges(), limit)
    return Formulation(time, model, tuple(listed), problem, tables.by_value)
