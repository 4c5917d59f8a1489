"""Annotated graphs as linalg text for mlir-opt-19 (mesh dialect) and mlir-opt-22 (shard), and a reader of their output.

Minimal on purpose: every op is a linalg.generic over its rule's loops, with an argument as its init.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field

from planner.ir.execution_order import Reader
from planner.ir.graph import Graph, Op
from planner.ir.indexing import LoopKind
from planner.ir.notation import Term
from planner.ir.sharding import Reduction, Shape, Sharding
from planner.rewrite.annotations import Notes

TOOLS = {19: "mlir-opt-19", 22: "mlir-opt-22"}
SPLIT = "// -----\n"


def missing_tool(version: int) -> bool:
    return shutil.which(TOOLS[version]) is None


def propagate_upstream(version: int, texts: list[str], traversal: str | None = None) -> list[str | None]:
    """Run upstream's sharding-propagation on modules; None where it crashed.

    Modules share a process until one of them crashes it.
    """
    option = f"{{traversal={traversal}}}" if traversal else ""
    done = subprocess.run(
        [
            TOOLS[version],
            "--split-input-file",
            f"--pass-pipeline=builtin.module(func.func(sharding-propagation{option}))",
        ],
        input=SPLIT.join(texts),
        capture_output=True,
        text=True,
        env={**os.environ, "LLVM_DISABLE_SYMBOLIZATION": "1"},
        timeout=60,
        check=False,
    )
    if done.returncode == 0:
        return list(done.stdout.split(SPLIT))
    assert "error:" not in done.stderr, done.stderr[:2000]
    if len(texts) == 1:
        return [None]
    size = -(-len(texts) // 20)
    pieces = [texts[start : start + size] for start in range(0, len(texts), size)]
    return [answer for piece in pieces for answer in propagate_upstream(version, piece, traversal)]


def print_graph_text(graph: Graph, notes: Notes, mesh: str, version: int) -> str:
    """Write an annotated graph as MLIR text with all types f32."""
    return _Printer(graph, notes, mesh, version).text()


@dataclass
class _Printer:
    graph: Graph
    notes: Notes
    mesh: str
    version: int
    lines: list[str] = field(default_factory=list)
    count: int = 0

    def text(self) -> str:
        graph = self.graph
        arguments = [f"%{i.id}: {_type(i.type.shape)}" for i in graph.inputs]
        arguments += [f"%o{place}: {_type(op.results[0].shape)}" for place, op in enumerate(graph.ops)]
        made = ", ".join(_type(graph.types[value].shape) for value in graph.outputs)
        self.names = {i.id: self.defined(i.id) for i in graph.inputs}
        for place, op in enumerate(graph.ops):
            self.generic(place, op)
        outputs = ", ".join(self.read(value, Reader(None, number)) for number, value in enumerate(graph.outputs))
        declared = f"shard.grid @m(shape = {self.mesh})" if self.version == 22 else f"mesh.mesh @m(shape = {self.mesh})"
        head = f"func.func @f({', '.join(arguments)}) -> ({made}) {{"
        return "\n".join([declared, head, *self.lines, f"return {outputs} : {made}", "}\n"])

    def shard(self, value: str, source: str, sharding: Sharding, users: bool) -> str:
        self.count += 1
        name, kind = f"%s{self.count}", _type(self.graph.types[value].shape)
        entries, partial = _written(sharding)
        suffix = f"{' annotate_for_users' if users else ''} : {kind}"
        if self.version == 22:
            self.lines.append(f"{name}s = shard.sharding @m split_axes = {entries} : !shard.sharding")
            self.lines.append(f"{name} = shard.shard {source} to {name}s{suffix}")
        else:
            self.lines.append(f"{name} = mesh.shard {source} to <@m, {entries}{partial}>{suffix}")
        return name

    def defined(self, value: str) -> str:
        note = self.notes.definitions.get(value)
        return self.shard(value, f"%{value}", note.sharding, users=False) if note else f"%{value}"

    def read(self, value: str, reader: Reader) -> str:
        note = self.notes.uses.get(reader)
        return self.shard(value, self.names[value], note.sharding, users=True) if note else self.names[value]

    def generic(self, place: int, op: Op) -> None:
        loops = [loop for loop in op.rule.loops if loop.kind is not LoopKind.LINEAR]
        order = {loop.name: f"d{number}" for number, loop in enumerate(loops)}
        maps = [_map(term, order) for term in (*op.rule.operands, *op.rule.results)]
        kinds = ", ".join(f'"{loop.kind}"' for loop in loops)
        names = ", ".join(self.read(value, Reader(place, operand)) for operand, value in enumerate(op.inputs))
        types = ", ".join(_type(self.graph.types[value].shape) for value in op.inputs)
        made = _type(op.results[0].shape)
        inside = ", ".join(f"%x{i}: f32" for i in range(len(op.inputs)))
        self.lines += [
            f"%{op.id} = linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{kinds}]}} "
            f"ins({names} : {types}) outs(%o{place} : {made}) {{",
            f"^bb0({inside}, %z: f32):",
            *_body(op),
            f"linalg.yield %r : f32 }} -> {made}",
        ]
        self.names[op.id] = self.defined(op.id)


def _body(op: Op) -> list[str]:
    match op.op:
        case "negate" | "transpose" | "tanh" | "abs":  # one operand, whatever it computes
            return ["%r = arith.negf %x0 : f32"]
        case "matmul":
            return ["%p = arith.mulf %x0, %x1 : f32", "%r = arith.addf %z, %p : f32"]
        case "sum":
            return ["%r = arith.addf %z, %x0 : f32"]
        case "max":
            return ["%r = arith.maximumf %z, %x0 : f32"]
        case _:
            return ["%r = arith.addf %x0, %x1 : f32"]


def _map(term: Term, order: dict[str, str]) -> str:
    return f"affine_map<({', '.join(order.values())}) -> ({', '.join(order[dim.loops[0]] for dim in term)})>"


def _type(shape: Shape) -> str:
    return f"tensor<{'x'.join(map(str, (*shape, 'f32')))}>"


def _written(sharding: Sharding) -> tuple[str, str]:
    entries = ", ".join(f"[{', '.join(map(str, axes))}]" for axes in found(sharding)[0]) or "[]"
    axes = ", ".join(map(str, sharding.partial))
    return f"[{entries}]", f", partial = {sharding.reduction}[{axes}]" if sharding.partial else ""


Found = tuple[tuple[tuple[int, ...], ...], tuple[int, ...], str]
"""Split axes without trailing empty lists, partial axes, and the reduction."""


def found(sharding: Sharding) -> Found:
    lists = list(sharding.split_axes)
    while lists and not lists[-1]:
        lists.pop()
    return tuple(lists), sharding.partial, sharding.reduction.value


@dataclass
class Upstream:
    """What the printed result says: per op in order what it reads its operands in and leaves its result in; outputs
    and arguments alike. None is bare."""

    operands: list[list[Found | None]] = field(default_factory=list)
    results: dict[str, Found] = field(default_factory=dict)
    outputs: list[Found | None] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)


_SHARDING = re.compile(r"(%\w+) = shard\.sharding @m split_axes = (\[.*\]) :")
_SHARD = re.compile(
    r"(%\w+) = (?:mesh|shard)\.shard (%\w+) to (?:<@m, (\[.*?\])(?:, partial = (\w+)\s?\[([\d, ]*)\])?>|(%\w+))"
    r"( annotate_for_users)? :"
)
_GENERIC = re.compile(r"(%\w+) = linalg\.generic .* ins\(([^:]*) :")


def parse_upstream(text: str) -> Upstream:
    """Parse the module that upstream printed."""
    result = Upstream()
    named: dict[str, Found] = {}
    shards: dict[str, tuple[str, Found, bool]] = {}

    def use(name: str) -> Found | None:
        return shards[name][1] if name in shards and shards[name][2] else None

    for line in map(str.strip, text.splitlines()):
        if match := _SHARDING.match(line):
            named[match[1]] = _lists(match[2], "", "sum")
        elif match := _SHARD.match(line):
            state = named[match[6]] if match[6] else _lists(match[3], match[5] or "", match[4] or "sum")
            shards[match[1]] = (match[2], state, bool(match[7]))
            if match[2] not in shards and not match[7]:
                assert result.results.setdefault(match[2], state) == state
        elif match := _GENERIC.match(line):
            result.ops.append(match[1])
            result.operands.append([use(name.strip()) for name in match[2].split(",")])
        elif line.startswith("return "):
            result.outputs = [use(name.strip()) for name in line[7:].split(" : ")[0].split(",")]
    return result


def _lists(entries: str, axes: str, kind: str) -> Found:
    lists = tuple(tuple(int(n) for n in part.split(",") if n.strip()) for part in re.findall(r"\[([\d, ]*)\]", entries))
    partial = tuple(sorted(int(n) for n in axes.split(",") if n.strip()))
    return found(Sharding(lists, partial, Reduction(kind)))
