"""The computation graph: inputs, ops in an order that respects their uses, and outputs.

A value is named by the id of the input or op that makes it; result k > 0 of op n is `n:k`. The graph is also kept as
a frozen networkx MultiDiGraph, because an op may read one value twice; an edge's `operand` is the position.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import networkx as nx

from planner.errors import InvalidGraph, InvalidSharding
from planner.ir.dtypes import DTYPE_BYTES
from planner.ir.dynamic_dims import DYNAMIC_DIM, static_sizes
from planner.ir.in_flight import ALONE, InFlight
from planner.ir.indexing import Option, Rule
from planner.ir.sharding import Shape, Sharding

INPUT_KINDS = ("parameter", "buffer", "input", "constant", "optimizer_state")
PHASES = ("forward", "backward", "update")
MAX_DIM = 1 << 40
MAX_ELEMENTS = 1 << 50
MAX_RANK = 16
OUTPUTS = "return"
"""The user that stands for the outputs of the graph in an annotation, unless a node of this id reads the value."""


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape and element type of a tensor.

    A dim may be DYNAMIC_DIM. Raises InvalidGraph for a negative dim, a rank above 16, and an unknown dtype.
    """

    shape: Shape
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_BYTES:
            raise InvalidGraph("unknown dtype", got=self.dtype, wanted=f"one of {', '.join(DTYPE_BYTES)}")
        if len(self.shape) > MAX_RANK:
            raise InvalidGraph("rank too high", got=len(self.shape), wanted=f"at most {MAX_RANK}")
        for dim in static_sizes(self.shape):
            if not 0 <= dim <= MAX_DIM:
                raise InvalidGraph("dim out of range", got=dim, wanted=f"0 to {MAX_DIM}")
        if math.prod(static_sizes(self.shape)) > MAX_ELEMENTS:
            raise InvalidGraph("tensor too large", got=list(self.shape), wanted=f"at most {MAX_ELEMENTS} elements")

    @property
    def is_sized(self) -> bool:
        return DYNAMIC_DIM not in self.shape

    @property
    def itemsize(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Input:
    """A value that comes from outside; `name` is what the framework calls it.

    `next` is the output that takes its place in the next run of the graph, as an updated parameter does. That output
    leaves the program in the sharding in which the input is expected.
    """

    id: str
    kind: str
    name: str
    type: TensorType
    next: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One operation with its rule bound to its shapes.

    `notation` is the rule that its document gave, if any. `option` is the sharding option requested for the op itself,
    mesh axes per loop of its rule; annotations of values cannot express it. `recompute_of` names the op whose work this
    one repeats (`planner.ir.rematerialization`). An op that `accumulates` adds up what all micro-batches compute. The
    `values` are the ids of the results.
    """

    id: str
    op: str
    inputs: tuple[str, ...]
    results: tuple[TensorType, ...]
    rule: Rule
    attrs: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    scope: str = ""
    phase: str = "forward"
    notation: str | None = None
    option: Option | None = None
    recompute_of: str | None = None
    accumulates: bool = False
    values: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(value_id(self.id, k) for k in range(len(self.results))))


@dataclass(frozen=True, slots=True)
class Annotation:
    """A requested sharding: of a value where it is defined, or of its use by `user`.

    A user that reads the value several times is given that sharding each time, or only as operand number `operand`.
    """

    value: str
    sharding: Sharding
    required: bool = True
    user: str | None = None
    operand: int | None = None

    @property
    def where(self) -> str:
        user = f" for {self.user!r}" if self.user is not None else ""
        return f"annotation of {self.value!r}{user}" + (f" operand {self.operand}" if self.operand is not None else "")


def value_id(op: str, result: int) -> str:
    return f"{op}:{result}" if result else op


@dataclass(frozen=True, eq=False)
class Graph:
    """A valid computation graph.

    Ops are kept in topological order: the document's, if it is one. Before the update they run once for each of the
    `microbatches`; `in_flight` are others at the same time. `free` ops and their reads take no time in bounds of parts.
    `sent` outputs leave at the end of the pass that computes them, in a layout that is there. Raises InvalidGraph.
    """

    name: str
    inputs: tuple[Input, ...]
    ops: tuple[Op, ...]
    outputs: tuple[str, ...]
    annotations: tuple[Annotation, ...] = ()
    producer: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    microbatches: int = 1
    in_flight: InFlight = ALONE
    free: frozenset[str] = frozenset()
    sent: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.ops and not self.inputs:
            raise InvalidGraph("empty graph", where=self.name, wanted="at least one input or node")
        reads = [(value, f"node {op.id!r}") for op in self.ops for value in op.inputs]
        for value, where in (*reads, *((value, "outputs") for value in self.outputs)):
            _check_value(value, self.types, where)
        _check_next(self)
        _check_annotations(self)
        if not self.outputs:
            raise InvalidGraph("no outputs", where=self.name, wanted="at least one output")
        object.__setattr__(self, "ops", tuple(_order_ops(self)))

    @cached_property
    def state_outputs(self) -> dict[int, str]:
        """Output number -> the input whose place the output takes in the next run."""
        followed = {entry.next: entry.id for entry in self.inputs if entry.next is not None}
        return {number: followed[value] for number, value in enumerate(self.outputs) if value in followed}

    def count_runs(self, op: Op) -> int:
        """Return how often a step takes the time of an op."""
        return 0 if op.id in self.free else 1 if op.phase == "update" else self.microbatches

    @cached_property
    def data(self) -> frozenset[str]:
        """The inputs that differ from micro-batch to micro-batch: those of the kind `input` that one reads or sends."""
        read = {value for op in self.ops if op.phase != "update" for value in op.inputs} | self.sent
        return frozenset(entry.id for entry in self.inputs if entry.kind == "input" and entry.id in read)

    @cached_property
    def types(self) -> dict[str, TensorType]:
        """The type of every value."""
        types: dict[str, TensorType] = {}
        made = ((value, kind) for op in self.ops for value, kind in zip(op.values, op.results, strict=True))
        for value, kind in (*((entry.id, entry.type) for entry in self.inputs), *made):
            if value in types:
                raise InvalidGraph("id used twice", where=f"id {value!r}", wanted="unique ids")
            types[value] = kind
        return types

    @cached_property
    def dag(self) -> nx.MultiDiGraph:
        """Inputs and ops as nodes, uses as edges with their value and operand; frozen."""
        dag = nx.MultiDiGraph()
        dag.add_nodes_from(i.id for i in self.inputs)
        dag.add_nodes_from(op.id for op in self.ops)
        maker = {value: op.id for op in self.ops for value in op.values}
        for op in self.ops:
            for operand, value in enumerate(op.inputs):
                dag.add_edge(maker.get(value, value), op.id, value=value, operand=operand)
        return nx.freeze(dag)


def check_sizes(graph: Graph) -> None:
    """Check that all sizes are known. Raises InvalidGraph, naming the value, where one is not."""
    for value, kind in graph.types.items():
        if not kind.is_sized:
            raise InvalidGraph("dim of unknown size", where=f"value {value!r}", got=str(kind), wanted="numbers")


def _check_next(graph: Graph) -> None:
    """Check that every `next` is an output of the input's type that replaces no other input."""
    next_counts, output_counts = Counter(entry.next for entry in graph.inputs), Counter(graph.outputs)
    for entry in graph.inputs:
        if entry.next is None:
            continue
        where = f"input {entry.id!r}"
        if entry.next not in output_counts:
            raise InvalidGraph("next value is no output", where=where, got=entry.next, wanted="an output of the graph")
        if graph.types[entry.next] != entry.type:
            raise InvalidGraph("next value", where=where, got=str(graph.types[entry.next]), wanted=str(entry.type))
        if next_counts[entry.next] > 1 or output_counts[entry.next] > 1:
            raise InvalidGraph("next value of several inputs", where=where, got=entry.next, wanted="one of its own")


def _check_annotations(graph: Graph) -> None:
    """Check that values, users and operands exist, ranks fit and required shardings do not contradict one another."""
    reads = _find_reads(graph) if graph.annotations else {}
    required: dict[tuple[str, str | None, int | None], Annotation] = {}
    for one in graph.annotations:
        _check_value(one.value, graph.types, "annotations")
        if (lists := len(one.sharding.split_axes)) > (rank := len(graph.types[one.value].shape)):
            wanted = f"at most {rank} (the rank)"
            raise InvalidSharding("more lists than dims", where=one.where, got=lists, wanted=wanted)
        for operand in _operands(one, reads):
            other = required.setdefault((one.value, one.user, operand), one) if one.required else one
            if other.sharding != one.sharding:
                shown = str(one.sharding), str(other.sharding)
                raise InvalidGraph("contradicts another annotation", where=one.where, got=shown[0], wanted=shown[1])


def _find_reads(graph: Graph) -> dict[tuple[str, str], list[int]]:
    """Return the operands as which each user reads each value.

    `return` reads the outputs, unless a node of this id reads the value.
    """
    reads: dict[tuple[str, str], list[int]] = {}
    for op in graph.ops:
        for operand, value in enumerate(op.inputs):
            reads.setdefault((value, op.id), []).append(operand)
    returned: dict[tuple[str, str], list[int]] = {}
    for number, value in enumerate(graph.outputs):
        returned.setdefault((value, OUTPUTS), []).append(number)
    return returned | reads


def _operands(one: Annotation, reads: Mapping[tuple[str, str], Sequence[int]]) -> Sequence[int | None]:
    """Return the operands that an annotation is for; None stands for the definition."""
    if one.user is None:
        if one.operand is not None:
            raise InvalidGraph("operand of no user", where=one.where, got=one.operand, wanted="a user that reads it")
        return [None]
    operands = reads.get((one.value, one.user), [])
    if not operands:
        wanted = f"a node that does, or {OUTPUTS}"
        raise InvalidGraph("user does not read the value", where=one.where, got=one.user, wanted=wanted)
    if one.operand is not None and one.operand not in operands:
        what = "user does not read the value as this operand"
        raise InvalidGraph(what, where=one.where, got=one.operand, wanted=f"one of {operands}")
    return operands if one.operand is None else [one.operand]


def _check_value(value: str, types: Mapping[str, TensorType], where: str) -> None:
    if value not in types:
        raise InvalidGraph("use of an undefined value", where=where, got=value, wanted="a known id")


def _order_ops(graph: Graph) -> Sequence[Op]:
    """Return the ops as they are where each only reads earlier values, otherwise sorted topologically."""
    defined = {entry.id for entry in graph.inputs}
    for op in graph.ops:
        if not defined.issuperset(op.inputs):
            return _sort_topologically(graph.dag, graph.ops)
        defined.update(op.values)
    return graph.ops


def _sort_topologically(dag: nx.MultiDiGraph, ops: Sequence[Op]) -> Sequence[Op]:
    position = {op.id: place for place, op in enumerate(ops)}
    try:
        order = list(nx.lexicographical_topological_sort(dag, key=lambda node: position.get(node, -1)))
    except nx.NetworkXUnfeasible:
        cycle = " -> ".join(edge[0] for edge in nx.find_cycle(dag))
        raise InvalidGraph("the graph has a cycle", where=f"node {cycle.split(' ')[0]!r}", got=cycle) from None
    return [ops[position[node]] for node in order if node in position]
