"""Shardy's sharding rules of StableHLO ops, in the letters of `tests.testing.op_placements`.

Shardy writes a rule for every op of a module (`sdy-populate-op-sharding-rules`), in a process of its own, because bad
input ends the process. A factor is a letter of the rule; one that a result lacks is a reduction, and one that needs
replication or permutes is whole.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests.testing.op_case import Case
from tests.testing.op_placements import SIZE, way

POPULATE = """
import sys
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, sdy, stablehlo
from jaxlib.mlir.passmanager import PassManager
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
with ir.Context() as context:
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    sdy.register_dialect(context)
    stablehlo.register_dialect(context)
    module = ir.Module.parse(sys.stdin.read())
    PassManager.parse("builtin.module(func.func(sdy-populate-op-sharding-rules))").run(module.operation)
    print(module)
"""


@dataclass(frozen=True)
class Pair:
    """A StableHLO op of operands %0, %1, ... (types as MLIR has them), and the row that stands for it.

    `order`: which of them the row reads.
    """

    text: str
    operands: str
    results: str
    case: Case
    order: tuple[int, ...] | None = None

    def function(self, name: str) -> str:
        types = [f"tensor<{each.strip()}>" for each in self.operands.split(",")]
        made = [f"tensor<{each.strip()}>" for each in self.results.split(",")]
        arguments = ", ".join(f"%{i}: {kind}" for i, kind in enumerate(types))
        count = f":{len(made)}" if len(made) > 1 else ""
        returned = ", ".join(f"%r#{i}" for i in range(len(made))) if count else "%r"
        signature = f"({', '.join(types)}) -> ({', '.join(made)})"
        body = f"%r{count} = {self.text} : {signature}"
        return (
            f"func.func @{name}({arguments}) -> ({', '.join(made)}) {{ {body} return {returned} : {', '.join(made)} }}"
        )

    @property
    def reads(self) -> tuple[int, ...]:
        return tuple(range(len(self.operands.split(",")))) if self.order is None else self.order


def populated(pairs: Sequence[Pair]) -> list[str]:
    """Return Shardy's rule for the op of each pair."""
    module = "\n".join(pair.function(f"f{number}") for number, pair in enumerate(pairs))
    done = subprocess.run(
        [sys.executable, "-c", POPULATE], input=module, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    functions = re.split(r"func\.func @f\d+", done.stdout)[1:]
    return [re.findall(r"#sdy\.op_sharding_rule<(\(.*)>\}", text)[-1] for text in functions]


def _factors(rule: str) -> tuple[list[list[list[str]]], list[list[list[str]]], dict[str, int], set[str]]:
    """Return the factors of each dim of operands and results, their sizes, and those that need replication."""
    sides = re.match(r"\((.*)\)->\((.*?)\) \{(.*?)\}(.*)", rule)
    assert sides, rule
    terms = [
        [
            [re.findall(r"[a-z](?:_\d+)?", dim) for dim in term.split(",") if dim.strip()]
            for term in re.findall(r"\[(.*?)\]", side)
        ]
        for side in sides.groups()[:2]
    ]
    sizes = {name: int(size) for name, size in re.findall(r"([a-z](?:_\d+)?)=(\d+)", sides[3])}
    whole = re.findall(r"(?:need_replication|permutation)=\{(.*?)\}", sides[4])
    return terms[0], terms[1], sizes, {name.strip() for names in whole for name in names.split(",")}


def shardy_ways(rule: str, pair: Pair) -> set[str]:
    """Return one placement per factor that can be split: it splits the dims in which it is the major-most factor."""
    read, made, sizes, whole = _factors(rule)
    found = set()
    for name in sorted(set(sizes) - whole):
        placed = [_placement(term, name) for term in (*(read[i] for i in pair.reads), *made)]
        if sizes[name] >= SIZE and "minor" not in placed:
            operands, results = placed[: len(pair.reads)], placed[len(pair.reads) :]
            reduced = all(place == "R" for place in results)
            found.add(way(operands, ["P"] * len(results) if reduced else results))
    return found


def _placement(term: list[list[str]], name: str) -> str:
    """Return a term's placement. Rules omit factors of size one, so the first factor of a dim is its major-most."""
    for position, dim in enumerate(term):
        if name in dim:
            return f"S{position}" if dim[0] == name else "minor"
    return "R"
