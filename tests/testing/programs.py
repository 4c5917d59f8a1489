"""Programs for tests, built line by line, and the documents' MLPs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.ir.collectives import Collective, Kind
from planner.ir.mesh import Mesh
from planner.ir.program import Instruction, OpCall, Program, Reshard, ShardedValue, infer_results
from planner.ir.sharding import Axes, Sharding
from planner.run.validate import validate
from tests.testing.graphs import Sketch

Shape = tuple[int, ...]


class Lines:
    """A program under construction; each line returns the name of its result."""

    def __init__(self, mesh: str) -> None:
        self.mesh = Mesh.parse(mesh)
        self.sketch = Sketch()
        self.arguments: list[tuple[str, Sharding]] = []
        self.instructions: list[Instruction] = []
        self.values: dict[str, ShardedValue] = {}
        self.origin: dict[str, str] = {}

    def argument(self, shape: Shape, *split: Axes) -> str:
        name = self.sketch.input(*shape)
        self.arguments.append((name, Sharding(split or ((),) * len(shape))))
        self.values[name] = ShardedValue(self.sketch.types[name], self.arguments[-1][1])
        return name

    def run(
        self, op: str, operands: Sequence[str], shape: Shape, split: Mapping[str, Axes] | None = None, **attrs: Any
    ) -> str:
        """Add an op with mesh axes on some of its loops, which are given by name."""
        sources = [self.origin.get(name, name) for name in operands]
        name = self.sketch.op(op, sources, shape, **attrs)
        made_by = self.sketch.ops[-1]
        chosen = split or {}
        assert set(chosen) <= {loop.name for loop in made_by.rule.loops}, made_by.rule.loops
        option = tuple(chosen.get(loop.name, ()) for loop in made_by.rule.loops)
        return self._write(OpCall(made_by, option, tuple(operands), made_by.values), name)

    def move(self, kind: str, operand: str, axes: Axes, dim: int | None = None, source_dim: int | None = None) -> str:
        return self.moved(operand, Collective(Kind(kind), axes, dim, source_dim))

    def moved(self, operand: str, collective: Collective) -> str:
        root = self.origin.get(operand, operand)
        name = f"{root}.{sum(other == root for other in self.origin.values()) + 1}"
        self.origin[name] = root
        return self._write(Reshard(collective, operand, name), name)

    def program(self, *outputs: str) -> Program:
        graph = self.sketch.graph(*(self.origin.get(name, name) for name in outputs))
        return Program(graph, self.mesh, tuple(self.arguments), tuple(self.instructions), outputs)

    def _write(self, done: Instruction, name: str) -> str:
        self.instructions.append(done)
        self.values |= infer_results(done, self.values, self.mesh)
        return name


def line(done: Instruction) -> str:
    """Return a short form of an instruction: the collective, or the op's name."""
    return str(done.collective) if isinstance(done, Reshard) else done.op.op


def lines_of(program: Program) -> list[str]:
    return [line(done) for done in program.instructions]


def partial(p: Lines, axes: Axes = (0,), kind: str = "sum", columns: int = 8) -> str:
    """Add a value of `columns` elements that is partial over these axes."""
    return p.run(kind, [p.argument((8, columns), axes, ())], (columns,), {"d0": axes}, dims=[0])


def check(before: Program, after: Program, wanted: list[str]) -> None:
    """Assert that a program has the wanted lines and gives the same results as the one before it."""
    assert lines_of(after) == wanted
    assert validate(after, shrinking="none").verdict == "equal"
    assert validate(before, shrinking="none").verdict == "equal"


def mlp_1d() -> Program:
    """Return the RFC's MLP on a mesh of 2, materialised: x 2x4x8, w1 8x32, w2 32x8."""
    p = Lines("2")
    x = p.move("all_gather", p.argument((2, 4, 8), (), (), (0,)), (0,), 2)
    hidden = p.run("matmul", [x, p.argument((8, 32), (), (0,))], (2, 4, 32), {"n": (0,)})
    zero = p.move("all_slice", p.run("full", [], (2, 4, 32), value=0.0), (0,), 2)
    large = p.run("maximum", [hidden, zero], (2, 4, 32), {"_0": (0,)})
    out = p.run("matmul", [large, p.argument((32, 8), (0,), ())], (2, 4, 8), {"k": (0,)})
    return p.program(p.move("reduce_scatter", out, (0,), 2))


def mlp_2d() -> Program:
    """Return the slides' MLP on a mesh of 2x2x2, materialised."""
    p = Lines("2x2x2")
    x = p.move("all_gather", p.argument((2, 4, 8), (), (), (0, 1, 2)), (1, 2), 2)
    hidden = p.run("matmul", [x, p.argument((8, 32), (0,), (1, 2))], (2, 4, 32), {"k": (0,), "n": (1, 2)})
    hidden = p.move("all_reduce", hidden, (0,))
    zero = p.move("all_slice", p.run("full", [], (2, 4, 32), value=0.0), (1, 2), 2)
    large = p.run("maximum", [hidden, zero], (2, 4, 32), {"_0": (1, 2)})
    out = p.run("matmul", [large, p.argument((32, 8), (1, 2), (0,))], (2, 4, 8), {"k": (1, 2), "n": (0,)})
    return p.program(p.move("reduce_scatter", out, (1, 2), 2))
