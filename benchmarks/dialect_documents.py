"""Measures every code block that the documents of the dialect print: read, run, or refused by a decision.

    python -m benchmarks.dialect_documents FILE...      results/dialect_documents.json

The files are the documents themselves, in which blocks stand between lines of three backquotes; in .mlir files they are
parted by `// -----`. The dialect's page is made of MeshOps.td and MeshBase.td (mlir 19: package libmlir-19-dev) and of
ShardOps.td (libmlir-22-dev); the RFC's programs are ByteIR's tests (compiler/test/Dialect/Mesh), and upstream's are in
mlir/test/Dialect/Mesh. They are not in this repository; a block is known by its document, its number and a digest.

Blocks are taken as they are printed. What the documents leave out is put back: `...`, a function around lines of its
body, the mesh declared by an earlier block, a return. A figure before a collective's result and one after it are the
data that it is run on and the data that every shown device must hold then.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import write
from planner.errors import ShardplanError
from planner.frontends.mlir import holds_collectives, read_mlir, read_spmd
from planner.run.spmd_executor import run_spmd
from planner.spmd import SpmdBuilder, SpmdCall, SpmdProgram
from planner.spmd.types import LocalType

BLOCK = re.compile(r"^[ ]*```(?:mlir)?\n(.*?)^[ ]*```", re.MULTILINE | re.DOTALL)
FUNCTION = re.compile(r"func\.func (?:private )?@(\w+)(?=[^{]*\{)")
MESH = re.compile(r"^\s*((?:mesh\.mesh|shard\.grid) @(\w+)\(shape = [\dx?]+\))", re.MULTILINE)
DECISIONS = {
    "number of operands": "misprints: an operand of `shift`",
    "wanted a value of the sharding type": "misprints: an operand of `shift`",
    "(got $": "misprints: an operand of `shift`",
    "dim 0 of the result (got 1; wanted ? (dynamic))": "reduce_scatter of 3 over 2",
    "neighbors_linear_indices": "`neighbors_linear_indices`",
    "annotated": "four usages of annotations are undefined",
    "mesh axis out of range": "axes 1 and 2 of a mesh of one axis",
    "undefined mesh": "a mesh that is not declared",
    "no mesh is named": "a mesh that is not declared",
    "got generic": "a tensor that is partial by `generic`",
    "argument that is no tensor": "an argument that is a number",
    "control flow": "branches and loops",
}
"""What a refusal says -> words of the row of docs/mesh-dialect.md that decides it, the first that fits."""
ERRATA = {
    "shift on": "shift %0 on",
    "tensor<3x4xf32> -> tensor<1x4xf64>": "tensor<2x2xf32> -> tensor<1x2xf64>",
}
"""Corrections of what is refused, so that its figures can be run."""


@dataclass
class Document:
    """The blocks of a document, and the meshes that it has declared so far."""

    name: str
    meshes: dict[str, str]
    call: tuple[SpmdProgram, SpmdCall] | None = None
    figure: dict[tuple[int, ...], NDArray[np.int64]] | None = None

    def judge(self, block: str) -> tuple[str, str]:
        """Return a verdict on a block and what there is to say of it."""
        if "+--" in block:
            return self.judge_figure(block)
        self.meshes = {name: text for text, name in MESH.findall(block)} | self.meshes
        self.call = self.figure = None
        said = [self.read(text, name) for text, name in self.repair(block)]
        refused = list(filter(None, said))
        if "expected-error" in block:
            by_blocks = "not divisible" in block
            read = "read by decision" if by_blocks else "read though it says not"
            return ("refused as it says", refused[0]) if refused else (read, "a dim that does not divide" * by_blocks)
        if not refused:
            return "read", f"functions: {len(said)}"
        corrected = block
        for wrong, right in ERRATA.items():
            corrected = corrected.replace(wrong, right)
        for text, name in self.repair(corrected):
            self.read(text, name)
        if open_refusals := [each for each in refused if _decide(each) is None]:
            return "refused", open_refusals[0]
        return "refused by decision", f"{_decide(refused[0])}: {refused[0]}"

    def read(self, text: str, name: str | None) -> str:
        """Read one function and return its refusal, if any; remember a collective for the figures that follow."""
        try:
            if not holds_collectives(text, name):
                read_mlir(text, name)
                return ""
            program = read_spmd(text, name)
        except ShardplanError as error:
            return str(error)
        calls = [done for done in program.instructions if isinstance(done, SpmdCall)]
        self.call = (program, calls[-1]) if calls else None
        return ""

    def repair(self, block: str) -> Iterator[tuple[str, str | None]]:
        """Yield whole texts, with the name of the function to read, from what a block prints."""
        if names := FUNCTION.findall(block) if "..." not in block else []:
            yield from ((block, name) for name in names)
            return
        text = re.sub(r'("op\d"\(%\w+\)) : \.\.\.', r"\1 : (tensor<4x8xf32>) -> ()", block)
        text = re.sub(r"^\s*\.\.\.\s*$", "", text, flags=re.MULTILINE)
        names = FUNCTION.findall(text)
        used = dict.fromkeys(re.findall(r"@(\w+)", MESH.sub("", text)))
        declared = {name for _, name in MESH.findall(text)}
        first = next(iter(self.meshes.values()), "")
        missing = [name for name in used if name not in declared and name not in names and name not in ("mlir",)]
        head = "\n".join(self.meshes.get(name, first.replace(_symbol(first), name)) for name in missing)
        if names:
            for name in names:
                yield f"{head}\n" + re.sub(r"^(\s*)\}\s*$", r"\1return }", text, flags=re.MULTILINE), name
            return
        lines = MESH.sub("", text)
        lines = re.sub(r"^\s*#mesh\.shard<(.*)>\s*$", self._as_annotation, lines, flags=re.MULTILINE)
        head = "\n".join([head, *(declaration for declaration, _ in MESH.findall(text))])
        mesh = f"attributes {{mesh_cluster = @{_symbol(head)}}}" if _symbol(head) else ""
        yield f"{head}\nfunc.func @f({self._arguments(lines)}) {mesh} {{\n{lines}\nreturn }}", None

    def _as_annotation(self, found: re.Match[str]) -> str:
        """Put an attribute that stands alone into an annotation of its own value."""
        count = found.start()
        return f"%s{count} = mesh.shard %free{count} to <{found[1]}> : tensor<4x8xf32>"

    def _arguments(self, lines: str) -> str:
        """Declare the values that the lines read but do not make, with the types at which they read them."""
        code = re.sub(r"//[^\n]*", "", lines)
        made, read = set(re.findall(r"%(\w+)(?=[\w, %]*=)", code)), dict.fromkeys(re.findall(r"%(\w+)", code))
        kinds = {}
        for name in read:
            line = re.search(rf"%{name}\b(?!\w*\s*=)[^:=]*(?:=[^:]*)*:\s*\(?(tensor<[^>]*>)", code)
            kinds[name] = line[1] if line else "tensor<4x8xf32>"
        return ", ".join(f"%{name}: {kinds[name]}" for name in read if name not in made) or "%x: tensor<1xf32>"

    def judge_figure(self, block: str) -> tuple[str, str]:
        """Read a figure; the second behind a collective must be what the collective makes of the first."""
        if self.call is None:
            return "figure of a refused block", ""
        program, call = self.call
        mesh = program.meshes[program.mesh_name(call)]
        figure = parse_figure(block, len(mesh.axes))
        if self.figure is None:
            self.figure = figure
            return "figure of data", f"{len(figure)} devices"
        if run_figure(self.call, self.figure, figure, {}):
            return "gives what the document says", ""
        if "reduction" in call.attrs and run_figure(self.call, self.figure, figure, {"reduction": "sum"}):
            return "refused by decision", "the figure's sums: reduce_scatter of 3 over 2, `max` beside a figure of sums"
        return "gives something else", str(call)


def _symbol(declaration: str) -> str:
    found = re.search(r"@(\w+)", declaration)
    return found[1] if found else ""


def _decide(refusal: str) -> str | None:
    return next((row for words, row in DECISIONS.items() if words in refusal), None)


def parse_figure(block: str, rank: int) -> dict[tuple[int, ...], NDArray[np.int64]]:
    """Return the tensor of every device that a figure shows; a cell without numbers is left out."""
    regions: list[tuple[list[int], list[str]]] = []
    for line in block.splitlines():
        if "+--" in line:
            regions.append(([place for place, letter in enumerate(line) if letter == "+"], []))
        elif regions:
            regions[-1][1].append(line)
    shown: dict[tuple[int, ...], NDArray[np.int64]] = {}
    for row, (columns, lines) in enumerate(each for each in regions if any("|" in line for line in each[1])):
        for column, (start, stop) in enumerate(pairwise(columns)):
            cells = [re.findall(r"\d+", line[start + 1 : stop]) for line in lines if "|" in line[: stop + 1]]
            values = [list(map(int, cell)) for cell in cells if cell]
            if len(columns) == 2:
                outside = " ".join(line[:start] + line[stop + 1 :] for line in lines)
                places = [tuple(map(int, each.split(", "))) for each in re.findall(r"\((\d(?:, \d)*)\)", outside)]
            else:
                places = [(column,) if rank == 1 else (row, column)]
            shown |= {place: np.array(values) for place in places if values}
    return shown


def run_figure(
    asked: tuple[SpmdProgram, SpmdCall],
    before: dict[tuple[int, ...], NDArray[np.int64]],
    after: dict[tuple[int, ...], NDArray[np.int64]],
    attrs: dict[str, object],
) -> bool:
    """Run a call on the data of a figure; return whether every device of the second figure holds what it shows."""
    program, call = asked
    name = program.mesh_name(call)
    mesh, given = program.meshes[name], next(iter(before.values()))
    dtype = program.values[call.operands[0]].type.dtype
    rank = program.values[call.operands[0]].type.rank
    given = given.reshape(given.shape[-rank:])
    build = SpmdBuilder({name: program.clusters[name]}, name)
    build.argument("x", LocalType(given.shape, dtype))
    kept: dict[str, Any] = {**{key: value for key, value in call.attrs.items() if key != "mesh"}, **attrs}
    (result,) = build.call(call.op, "x", **kept)
    places = [tuple(map(int, place)) for place in mesh.coordinates]
    held = [before.get(place, np.zeros(given.shape)).reshape(given.shape) for place in places]
    numbers = np.float32 if dtype.startswith("f") else np.int8
    run = run_spmd(build.program([result]), {"x": [np.asarray(each, numbers) for each in held]})
    got = dict(zip(places, run.outputs[0], strict=True))
    return all(np.array_equal(got[place].array.reshape(value.shape), value) for place, value in after.items())


def judge_documents(paths: list[Path]) -> dict[str, Any]:
    """Return the verdicts on all blocks, by document."""
    found, counts = {}, Counter[str]()
    for path in paths:
        document, rows = Document(path.name, {}), []
        text = path.read_text()
        blocks = re.split(r"^// -----\n", text, flags=re.MULTILINE) if path.suffix == ".mlir" else BLOCK.findall(text)
        for number, block in enumerate(blocks):
            verdict, detail = document.judge(block)
            counts[verdict] += 1
            digest = hashlib.sha256(block.encode()).hexdigest()[:12]
            rows.append({"block": number, "digest": digest, "verdict": verdict, "detail": detail[:200]})
        found["/".join(path.parts[-2:])] = rows
    return {"blocks": sum(counts.values()), "verdicts": dict(sorted(counts.items())), "documents": found}


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    rows = [f"| {verdict} | {count} |" for verdict, count in result["verdicts"].items()]
    return "\n".join([f"| verdict on {result['blocks']} printed blocks | blocks |", "|---|---|", *rows])


if __name__ == "__main__":
    write("dialect_documents", judge_documents([Path(name) for name in sys.argv[1:]]))
