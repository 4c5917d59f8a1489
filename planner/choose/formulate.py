"""Formulate planning as an assignment problem, and decode assignments. A strategy of `solvers` is an option here.

There is one node per variable. An edge connects the producer of a value, or its shared copy, with each reader, and
costs the cheapest reshard. Costs are picoseconds, so that the objective is the time of the program.

Time steps are those of `planner.ir.execution_order`, and a last one for the finished program. A value uses memory from
the step that computes it to the step that reads it last:
    one reader      node [produced, read); edge: the peak of the reshard at the read, then the copy until the reader has
                    run
    several         node [produced, shared); shared copy [shared + 1, last read); the edge of the last reader as above,
                    those of the others in addition to the shared copy, and without a copy where nothing changes
    shrunk          (with another op between its own and its first reader) node [produced, shrunk); edge: from there to
                    the read the bytes of source or target, whichever are fewer, and the peak of the reshard at one end
    graph input     lives throughout; only copies use further memory
The count is exact except for two conservative cases: where the last op reads a shared value twice, and where a graph
input is shared, the shared copy counts until that op has run.

In a step of several micro-batches (`planner.rewrite.accumulate`) costs before the update count once for each. An
accumulator uses memory from the first time step, and what the update reads of it is paid once. What passes leave for
other micro-batches in flight is held throughout the loop (`planner.choose.left_usages`).

With recomputation (`planner.choose.rematerialization`) there is a node per clone of an op, with an additional strategy
not to run, at no cost; its edges then cost and use nothing. The shared copy decides which reader is the last (its
lifetime), and edges forbid contradictions: reading after the last reader, being the last reader and not running, and
reading a value that is not there. For a value that may be recomputed,
    kept            its shared copy lives until that of its clone begins, in the same sharding: an edge connects the two
    recomputed      its shared copy lives until its last early reader; the clone runs and is shared like any value
so that memory is exact in both cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from planner.choose.axis_units import AxisUnits
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
    """A decoded assignment: a sharding per graph input, output and shared value, and an option per op that runs."""

    inputs: dict[str, Sharding]
    options: dict[str, Option]
    shared: dict[str, Sharding]
    outputs: tuple[Sharding, ...]


@dataclass(frozen=True)
class Formulation:
    """The assignment problem of a graph, with the meaning of its numbers; `distances` are the reshards by value."""

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
        """The graph with a clone of each op that may be recomputed."""
        return self.with_clones.graph

    def producer(self, value: str) -> tuple[Op, int] | None:
        """Return the op that computes a value, and as which of its results; None for a graph input."""
        return self._producers.get(value)

    @cached_property
    def _producers(self) -> dict[str, tuple[Op, int]]:
        return {value: (op, k) for op in self.graph.ops for k, value in enumerate(op.values)}

    @cached_property
    def index(self) -> dict[tuple[Role, str], int]:
        return {(variable.role, variable.name): i for i, variable in enumerate(self.variables)}

    def decode(self, strategies: Sequence[int]) -> Choice:
        """Decode an assignment of the solver."""
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
    graph: Graph | GraphWithClones,
    model: CostModel,
    limit: int | None = None,
    *,
    late: Mapping[str, int] | None = None,
    units: AxisUnits | None = None,
    on_built: Callable[[int], None] = lambda done: None,
) -> Formulation:
    """Formulate the assignment problem of a graph on the model's mesh, under a limit of bytes per device.

    `late` contains the ops that may be recomputed, each with the position of the op before which it would be. The size
    is linear in ops; an op has up to (dims + 2)^axes options, and an edge the square of that.

    `units`: the mesh axes that options put on loops as one; None: those of the mesh. `on_built` is called with the
    number of values whose reshards are priced, which takes most of the time; what it raises ends the work.
    """
    with_clones = graph if isinstance(graph, GraphWithClones) else GraphWithClones.of(graph, late)
    liveness = Liveness(with_clones)
    units = units or AxisUnits.of(model.mesh)
    variables = list_variables(liveness, model, units, tick=partial(on_built, 0))
    matrices = EdgeMatrices(liveness, model, variables, units, on_built)
    builder = ProblemBuilder(liveness, variables, matrices)
    problem = Problem(builder.nodes(), builder.edges(), limit)
    return Formulation(liveness, model, tuple(variables), problem, matrices.by_value)
