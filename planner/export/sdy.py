"""A program in Shardy's dialect: ops with their sharding rules, a sharding for every value, collectives between them.

An op is a stablehlo.custom_call @shardplan.<op> with a sharding rule that says how its dims belong together: a factor
per loop, with reductions and loops that are needed whole marked as such; joined dims and windows have factors of their
own. Its attributes are in backend_config, its id in its location. A collective is Shardy's of the same name, a tile
exchange is sdy.reshard.

Terms of a sum are `unreduced` axes. Shardy has no terms of another reduction. Where such terms are only read by
all_reduces, the op and the all_reduce become one op, because Shardy accepts an op whose result is replicated although
it reduces a split loop. Other terms are refused, and so are halos and offsets: Shardy's shards follow the block rule.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from planner.errors import InvalidSharding
from planner.export.mlir.dialect import quote, symbol_name, tensor_type
from planner.ir.collectives import Kind
from planner.ir.indexing import LoopKind, Rule
from planner.ir.mesh import Mesh
from planner.ir.notation import Term
from planner.ir.program import Instruction, OpCall, Program, Reshard
from planner.ir.sharding import Axes, Reduction, Shape, Sharding

_LETTERS = "ijklmnopqrstuvwxyz"


def print_sdy(program: Program) -> str:
    """Return the module. Raises InvalidSharding, naming the value, for a sharding that Shardy cannot express."""
    return _SdyWriter(program).text()


class _SdyWriter:
    def __init__(self, program: Program) -> None:
        self.program, self.mesh = program, program.mesh
        self.names = {value: f"%n{number}" for number, value in enumerate(program.values)}
        self.reduced = _fused_reductions(program)

    def text(self) -> str:
        program = self.program
        sizes = ", ".join(f"{quote(name)}={size}" for name, size in zip(self.mesh.names, self.mesh.shape, strict=True))
        arguments = ", ".join(f"{self.names[name]}: {self._typed(name)}" for name, _ in program.arguments)
        lines = [line for done in program.instructions for line in self._line(done)]
        names = ", ".join(self.names[name] for name in program.outputs)
        opening = f"func.func @main({arguments}) -> ({', '.join(map(self._typed, program.outputs))}) {{"
        last = f"return {names} : {self._kinds(program.outputs)}"
        body = [f"  {line}" for line in [*lines, last]]
        return "\n".join([f"sdy.mesh @mesh = <[{sizes}]>", opening, *body, "}", ""])

    def _typed(self, value: str) -> str:
        return f"{tensor_type(self.program.values[value].type)} {{sdy.sharding = #sdy.sharding{self._sharding(value)}}}"

    def _kinds(self, values: Iterable[str]) -> str:
        return ", ".join(tensor_type(self.program.values[value].type) for value in values)

    def _sharding(self, value: str) -> str:
        try:
            return format_sharding(self.program.values[self.reduced.get(value, value)].sharding, self.mesh)
        except InvalidSharding as error:
            raise error.at(f"value {value!r}") from None

    def _line(self, done: Instruction) -> list[str]:
        if isinstance(done, OpCall):
            return self._run(done)
        if done.operand in self.reduced:
            self.names[done.result] = self.names[done.operand]
            return []
        return [self._move(done)]

    def _run(self, run: OpCall) -> list[str]:
        """Write one call, or a call per result where these are partial along different axes, which Shardy refuses."""
        run.check_no_ring()
        numbers = range(len(run.results))
        partial = {self.program.values[self.reduced.get(name, name)].sharding.partial for name in run.results}
        return [self._call(run, numbers)] if len(partial) == 1 else [self._call(run, (k,)) for k in numbers]

    def _call(self, run: OpCall, chosen: Sequence[int]) -> str:
        """Write the op, or only one of its results: @shardplan.<op>.<number>."""
        op, results = run.op, [run.results[k] for k in chosen]
        suffix = f".{chosen[0]}" if len(chosen) < len(run.results) else ""
        read = ", ".join(self.names[name] for name in run.operands)
        entries = [
            f"backend_config = {quote(json.dumps(dict(op.attrs), sort_keys=True))}",
            f"sdy.sharding = #sdy.sharding_per_value<[{', '.join(map(self._sharding, results))}]>",
        ]
        if op.inputs:  # Shardy has no rules without operands
            rule = replace(op.rule, results=tuple(op.rule.results[k] for k in chosen))
            text = sharding_rule(rule, [op.results[k].shape for k in chosen])
            entries.append(f"sdy.sharding_rule = #sdy.op_sharding_rule<{text}>")
        name, kinds, count = self.names[results[0]], self._kinds(results), ""
        if len(results) > 1:
            self.names |= {value: f"{name}#{k}" for k, value in enumerate(results)}
            kinds, count = f"({kinds})", f":{len(results)}"
        call = f"stablehlo.custom_call {symbol_name(f'shardplan.{op.op}{suffix}')}({read}) {{{', '.join(entries)}}}"
        return f"{name}{count} = {call} : ({self._kinds(run.operands)}) -> {kinds} loc({quote(op.id)})"

    def _move(self, move: Reshard) -> str:
        name, target = self.names[move.operand], self._sharding(move.result)
        if move.collective.is_exchange or not move.collective.axes:
            return f"{self.names[move.result]} = sdy.reshard {name} {target} : {self._kinds([move.operand])}"
        words = self._words(move)
        kinds = self._kinds([move.operand])
        return f"{self.names[move.result]} = sdy.{move.collective.kind} {words} {name} out_sharding={target} : {kinds}"

    def _words(self, move: Reshard) -> str:
        done, rank = move.collective, len(self.program.values[move.operand].type.shape)
        axes = _format_axes(done.axes, self.mesh)
        if done.dim is None:
            return axes
        if done.source_dim is not None:
            return f"[{axes}: {done.source_dim}->{done.dim}]"
        return f"[{', '.join(axes if dim == done.dim else '{}' for dim in range(rank))}]"


def _fused_reductions(program: Program) -> dict[str, str]:
    """Return the values that are fused with the all_reduces after them, and the results of these.

    Those are values in terms of a reduction other than a sum that only all_reduces of all terms read.
    """
    values, readers = program.values, defaultdict[str, list[Instruction]](list)
    for done in program.instructions:
        for name in done.operands:
            readers[name].append(done)

    def reduces(done: Instruction) -> bool:
        moved = isinstance(done, Reshard) and done.collective.kind is Kind.ALL_REDUCE
        return moved and not values[done.results[0]].sharding.partial

    return {
        name: listed[0].results[0]
        for name, listed in readers.items()
        if values[name].sharding.reduction is not Reduction.SUM
        and name not in (*program.outputs, *(argument for argument, _ in program.arguments))
        and all(map(reduces, listed))
    }


def format_sharding(of: Sharding, mesh: Mesh) -> str:
    """Format a sharding as `<@mesh, [{"dp"}, {}], unreduced={"tp"}>`. Raises InvalidSharding."""
    if of.halo_sizes or of.sharded_dims_offsets:
        raise InvalidSharding("halos and offsets", got=str(of), wanted="blocks, which are all Shardy knows")
    if of.partial and of.reduction is not Reduction.SUM:
        raise InvalidSharding("reduction", got=str(of.reduction), wanted="sum, which is all Shardy knows")
    dims = ", ".join(_format_axes(axes, mesh) for axes in of.split_axes)
    unreduced = f", unreduced={_format_axes(of.partial, mesh)}" if of.partial else ""
    return f"<@mesh, [{dims}]{unreduced}>"


def _format_axes(axes: Axes, mesh: Mesh) -> str:
    return "{" + ", ".join(quote(mesh.names[axis]) for axis in axes) + "}"


def sharding_rule(rule: Rule, results: Sequence[Shape]) -> str:
    """Format a rule as `([i, k], [k, j])->([i, j]) {i=8, j=8, k=16} reduction={k}, custom`."""
    sizes: dict[str, int] = {}
    sides = []
    for terms, shapes in ((rule.operands, rule.shapes), (rule.results, results)):
        dims = (_format_dims(term, shape, rule.sizes, sizes=sizes) for term, shape in zip(terms, shapes, strict=True))
        sides.append(", ".join(f"[{', '.join(each)}]" for each in dims))
    letter = {name: _letter(number) for number, name in enumerate(sizes)}
    operands, result_terms = (_letter_side(side, letter) for side in sides)
    text = f"({operands})->({result_terms}) {{{', '.join(f'{letter[name]}={size}' for name, size in sizes.items())}}}"
    in_results = {loop for term in rule.results for dim in term for loop in dim.loops}
    blocked = [loop.name for loop in rule.loops if loop.kind in (LoopKind.BLOCKED, LoopKind.OPAQUE)]
    may_be_reduced = (LoopKind.REDUCTION, LoopKind.PARALLEL)
    reduced = [loop.name for loop in rule.loops if loop.kind in may_be_reduced and loop.name not in in_results]
    for word, names in (("reduction", reduced), ("need_replication", blocked)):
        if listed := [letter[name] for name in names if name in letter]:
            text += f" {word}={{{', '.join(sorted(listed, key=_LETTERS.find))}}}"
    return f"{text}, custom"


def _format_dims(term: Term, shape: Shape, loops: Mapping[str, int], *, sizes: dict[str, int]) -> list[str]:
    """Return the factors of every dim, in `<>`, and add the new ones to `sizes`."""
    dims = []
    for dim, size in zip(term, shape, strict=True):
        names = list(dim.loops)
        if not names or dim.joined or dim.coefficients:
            names = [f"{len(sizes)}"]
            sizes[names[0]] = size
        sizes |= {name: loops[name] for name in names if name in loops}
        dims.append("".join(f"<{name}>" for name in names))
    return dims


def _letter_side(side: str, letter: Mapping[str, str]) -> str:
    for name, sign in letter.items():
        side = side.replace(f"<{name}>", sign)
    return side


def _letter(number: int) -> str:
    """Return Shardy's name of a factor: i to z, then z_1, z_2, ..."""
    return _LETTERS[number] if number < len(_LETTERS) else f"z_{number - len(_LETTERS) + 1}"
