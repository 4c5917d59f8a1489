"""A generator of problems like the planner's: the training step of a stack of transformer layers on a mesh.

Every op is a rule over letters; a strategy gives each mesh axis a letter to split, nothing (R), or a linear operand
group to leave partial (P). Reshards cost per axis, with the bytes that are local at that moment; a value
with several users passes through a shared copy, whose edge uses memory only where it makes a copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import permutations, product

import numpy as np

from solvers import IMPOSSIBLE, Edge, EdgeUsage, Node, Problem

State = tuple[str, ...]
SIZES = {"b": 16, "s": 1024, "t": 1024, "f": 4096, "h": 4096, "m": 11008, "v": 32000}
FLOPS, MEMORY, LAUNCH = 593e12, 2.68e12, 5e-6


@dataclass(frozen=True)
class Mesh:
    sizes: tuple[int, ...]
    bandwidth: tuple[float, ...]
    latency: float = 3e-6
    through: bool = True


TWO_BY_FOUR = Mesh((2, 4), (90e9, 360e9))
CUBE = Mesh((2, 2, 2), (90e9, 90e9, 90e9), through=False)


@dataclass
class Op:
    name: str
    operands: list[tuple[int, str]]
    result: str
    linear: tuple[int, ...] = ()
    joint: bool = False
    kind: str = "op"


@dataclass
class Graph:
    ops: list[Op] = field(default_factory=list)

    def add(self, name: str, operands: list[tuple[int, str]], result: str, **how: object) -> int:
        self.ops.append(Op(name, operands, result, **how))  # type: ignore[arg-type]
        return len(self.ops) - 1


def training_step(layers: int) -> Graph:  # noqa: C901
    """Return forward pass, backward pass and update of `layers` layers with a head."""
    graph = Graph()
    parameters: list[int] = []
    tape: list[tuple[int, list[int], list[str], str, tuple[int, ...]]] = []

    def parameter(letters: str) -> int:
        parameters.append(graph.add("parameter", [], letters, kind="parameter"))
        return parameters[-1]

    def op(name: str, operands: list[tuple[int, str]], result: str, linear: tuple[int, ...] = ()) -> int:
        joint = name == "add"
        made = graph.add(name, operands, result, linear=linear, joint=joint)
        tape.append((made, [o for o, _ in operands], [letters for _, letters in operands], result, linear))
        return made

    x = graph.add("input", [], "bsf", kind="input")
    stream = x
    for _ in range(layers):
        normed = _norm(op, stream)
        q, k, v = (op("linear", [(normed, "bsf"), (parameter("fh"), "fh")], "bsh", (0, 1)) for _ in range(3))
        q, k = op("rope", [(q, "bsh")], "bsh", (0,)), op("rope", [(k, "bsh")], "bsh", (0,))
        mixed = op("attention", [(q, "bsh"), (k, "bth"), (v, "bth")], "bsh")
        out = op("linear", [(mixed, "bsh"), (parameter("hf"), "hf")], "bsf", (0, 1))
        stream = op("add", [(stream, "bsf"), (out, "bsf")], "bsf", (0, 1))
        normed = _norm(op, stream)
        gate, up = (op("linear", [(normed, "bsf"), (parameter("fm"), "fm")], "bsm", (0, 1)) for _ in range(2))
        hidden = op("mul", [(op("silu", [(gate, "bsm")], "bsm"), "bsm"), (up, "bsm")], "bsm", (0, 1))
        down = op("linear", [(hidden, "bsm"), (parameter("mf"), "mf")], "bsf", (0, 1))
        stream = op("add", [(stream, "bsf"), (down, "bsf")], "bsf", (0, 1))
    logits = op("linear", [(_norm(op, stream), "bsf"), (parameter("fv"), "fv")], "bsv", (0, 1))
    gradient = {logits: graph.add("loss", [(logits, "bsv")], "bsv")}
    for made, sources, words, result, linear in reversed(tape):
        for position, source in enumerate(sources):
            if source == x:
                continue
            others = [(s, w) for q, (s, w) in enumerate(zip(sources, words, strict=True)) if q != position]
            if not linear:
                others.append((source, words[position]))
            if graph.ops[made].joint:
                others = []
            name = f"{graph.ops[made].name}_back"
            both = tuple(range(1 + len(others))) if linear else ()
            part = graph.add(name, [(gradient[made], result), *others], words[position], linear=both)
            own = graph.ops[source].result
            if source in gradient:
                part = graph.add("add", [(gradient[source], own), (part, own)], own, linear=(0, 1), joint=True)
            gradient[source] = part
    for p in parameters:
        letters = graph.ops[p].result
        graph.add("update", [(p, letters), (gradient[p], letters)], letters, kind="update")
    return graph


def _norm(op: Callable[..., int], x: int) -> int:
    square = op("square", [(x, "bsf")], "bs")
    return op("scale", [(x, "bsf"), (square, "bs")], "bsf", (0,))


def problem(layers: int, mesh: Mesh, limit: int | None = None) -> Problem:
    """Return the solver problem of a training step; costs in picoseconds, usages in bytes."""
    return _Formulation(training_step(layers), mesh).problem(limit)


class _Formulation:
    def __init__(self, graph: Graph, mesh: Mesh) -> None:
        self.graph, self.mesh, self.axes = graph, mesh, range(len(mesh.sizes))
        self.nodes: list[Node] = []
        self.edges: list[Edge] = []
        self.states = cache(self._states)
        self.distances = cache(self._distances)
        self.copies = cache(self._copies)

    def bytes(self, letters: str, state: State) -> float:
        size = 2.0 * np.prod([float(SIZES[a]) for a in letters])
        return float(size / np.prod([self.mesh.sizes[a] for a in self.axes if state[a] not in "RP"] or [1]))

    def _states(self, letters: str) -> list[State]:
        return list(product(("R", "P", *range_of(letters)), repeat=len(self.mesh.sizes)))

    def step(self, letters: str, state: State, axis: int, to: str) -> float:
        at, n = state[axis], self.mesh.sizes[axis]
        local = self.bytes(letters, state)
        if to == "P":
            return float("inf")
        factor = {("R", True): 0.0, ("P", False): 2 * (n - 1) / n, ("P", True): (n - 1) / n}.get((at, to != "R"))
        if factor is None:
            factor = float(n - 1) if to == "R" else (n - 1) / n
        return self.mesh.latency * (n - 1) * (factor > 0) + local * factor / self.mesh.bandwidth[axis]

    def _distances(self, letters: str) -> np.ndarray:
        states = self.states(letters)
        table = np.full((len(states), len(states)), IMPOSSIBLE, np.int64)
        for (i, source), (j, target) in product(enumerate(states), repeat=2):
            best = float("inf")
            for order in permutations([a for a in self.axes if source[a] != target[a]]):
                at, total = list(source), 0.0
                for axis in order:
                    total += self.step(letters, tuple(at), axis, target[axis])
                    at[axis] = target[axis]
                best = min(best, total)
            if best < float("inf"):
                table[i, j] = round(best * 1e12)
        return table

    def _copies(self, letters: str) -> np.ndarray:
        states = self.states(letters)
        made = [int(self.bytes(letters, state)) for state in states]
        return np.array([[made[j] * (i != j) for j in range(len(states))] for i in range(len(states))], np.int64)

    def strategies(self, op: Op) -> list[State]:
        loops = dict.fromkeys("".join(w for _, w in op.operands) + op.result)
        if op.name.startswith("attention"):
            loops.pop("t", None)
        choices = ["R", *loops]
        if op.linear and op.joint:
            choices.append("J")
        elif op.linear and self.mesh.through:
            choices += [str(position) for position in op.linear]
        return list(product(choices, repeat=len(self.mesh.sizes)))

    def seen(self, strategy: State, position: int | None, letters: str, result: str) -> State:
        def one(choice: str) -> str:
            if choice == "J":
                return "P"
            if choice.isdigit():
                return "P" if position is None or int(choice) == position else "R"
            if choice == "R" or choice in letters:
                return choice
            return "P" if position is None and choice not in result else "R"

        return tuple(one(choice) for choice in strategy)

    def cost(self, op: Op, strategy: State) -> int:
        split = np.prod([self.mesh.sizes[a] for a in self.axes if strategy[a] != "R"] or [1])
        moved = sum(self.bytes(w, self.seen(strategy, p, w, op.result)) for p, (_, w) in enumerate(op.operands))
        moved += self.bytes(op.result, self.seen(strategy, None, op.result, op.result))
        loops = dict.fromkeys("".join(w for _, w in op.operands) + op.result)
        flops = 2 * math.prod(float(SIZES[a]) for a in loops) / float(split)
        if "linear" not in op.name and "attention" not in op.name:
            flops = 0.0
        return round((max(flops / FLOPS, moved / MEMORY) + LAUNCH) * 1e12) * (op.kind not in ("parameter", "input"))

    def classes(self, states: list[State], letters: str) -> np.ndarray:
        index = {state: i for i, state in enumerate(self.states(letters))}
        return np.array([index[state] for state in states], np.int32)

    def problem(self, limit: int | None) -> Problem:
        ops = self.graph.ops
        users: dict[int, list[tuple[int, int]]] = {i: [] for i in range(len(ops))}
        for u, op in enumerate(ops):
            for position, (source, _) in enumerate(op.operands):
                users[source].append((u, position))
        place, end = {}, len(ops)
        for i, op in enumerate(ops):
            place[i] = self.add_op(i, op, users[i], end)
        for i, op in enumerate(ops):
            self.connect(i, op, users[i], place, end)
        return Problem(self.nodes, self.edges, limit)

    def add_op(self, i: int, op: Op, users: list[tuple[int, int]], end: int) -> tuple[int, list[State]]:
        strategies = self.strategies(op)
        results = [self.seen(x, None, op.result, op.result) for x in strategies]
        weight = {"parameter": 7.0, "update": 0.0}.get(op.kind, 1.0)
        usage = np.array([int(weight * self.bytes(op.result, state)) for state in results], np.int64)
        cost = np.array([self.cost(op, x) for x in strategies], np.int64)
        interval = (0, end) if op.kind == "parameter" else (i, max([u for u, _ in users], default=i) + 1)
        self.nodes.append(Node(f"{op.name}.{i}", cost, usage, interval))
        return len(self.nodes) - 1, strategies

    def connect(
        self, i: int, op: Op, users: list[tuple[int, int]], place: dict[int, tuple[int, list[State]]], end: int
    ) -> None:
        node, strategies = place[i]
        made = [self.seen(x, None, op.result, op.result) for x in strategies]
        if op.kind == "update":
            parameter, theirs = place[op.operands[0][0]]
            self.edge(op.result, (node, made), (parameter, theirs), None)
        last = max([u for u, _ in users], default=i) + 1
        if len(users) > 1:
            states = self.states(op.result)
            hub = Node(f"hub.{i}", np.zeros(len(states), np.int64), np.zeros(len(states), np.int64), (i, last))
            self.nodes.append(hub)
            self.edge(op.result, (node, made), (len(self.nodes) - 1, states), (i, last))
            node, made = len(self.nodes) - 1, states
        for u, position in users:
            target, theirs = place[u]
            letters = self.graph.ops[u].operands[position][1]
            wanted = [self.seen(x, position, letters, self.graph.ops[u].result) for x in theirs]
            wanted = [tuple(op.result[letters.index(c)] if c in letters else c for c in state) for state in wanted]
            self.edge(op.result, (node, made), (target, wanted), (u, u + 1))

    def edge(
        self,
        letters: str,
        source: tuple[int, list[State]],
        target: tuple[int, list[State]],
        live: tuple[int, int] | None,
    ) -> None:
        usages = () if live is None else (EdgeUsage(*live, self.copies(letters)),)
        self.edges.append(
            Edge(
                source[0], target[0], self.classes(source[1], letters), self.classes(target[1], letters),
                self.distances(letters), usages=usages,
            )
        )  # fmt: skip


def range_of(letters: str) -> tuple[str, ...]:
    return tuple(letters)
