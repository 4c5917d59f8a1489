"""The walk over a program from its arguments: calls are followed, loops unrolled, every op becomes nodes.

If a loop's condition is known in every turn (`lax.scan`, `fori_loop`), its body is walked once per turn, under the
scope `while.0[turn]`. A turn reads a slice of stacked operands; what it stacks is kept row by row and read back
directly. The turns of a loop are thus equal parts of the graph, like the layers of an unrolled network, and the fold
can share decisions among them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from jaxlib.mlir import ir

from planner.errors import InvalidGraph, ShardplanError, UnsupportedOp
from planner.frontends.graph_builder import DocumentValue
from planner.frontends.stablehlo import random_bits, shardings
from planner.frontends.stablehlo.complex_parts import ComplexCall, ComplexParts, Value
from planner.frontends.stablehlo.complex_rules import translate_complex
from planner.frontends.stablehlo.locations import format_location, phase_of
from planner.frontends.stablehlo.op_call import RowResult, StablehloOpCall, has_no_elements, is_complex, part_type
from planner.frontends.stablehlo.op_table import OP_TABLE
from planner.frontends.stablehlo.symbol_builder import SymbolBuilder
from planner.frontends.stablehlo.symbolic_values import NO_ELEMENTS, KnownNumbers, Symbol, TensorSymbol
from planner.frontends.uncovered_ops import NotCovered
from planner.ir.graph import TensorType

MAX_ITERATIONS = 1 << 12
MAX_DEPTH = 64
MAX_STEPS = 1 << 22
"""The most ops walked, including those that emit no node."""
PASSING_OPS = ("func.call", "stablehlo.composite", "stablehlo.while", "stablehlo.optimization_barrier")
"""Ops whose operands may be anything, such as arrays without elements and complex numbers."""
CONTROL_FLOW = (*PASSING_OPS, "stablehlo.case", "stablehlo.if")
Environment = dict[ir.Value, Value]


class StablehloTranslation:
    """The walk over the functions of a module; `builder` and `annotations` collect the document."""

    def __init__(self, functions: dict[str, ir.Operation], builder: SymbolBuilder, where: str) -> None:
        self.builder = builder
        self.annotations = shardings.StablehloAnnotations(builder)
        self._functions = functions
        self._where = where
        self._types: dict[ir.Type, TensorType] = {}
        self._generators: dict[str, bool] = {}
        self._scopes: list[str] = []
        self._loops = self._steps = 0

    def call(self, name: str, operands: Sequence[Value]) -> list[Value]:
        """Walk a function and return its results."""
        if name not in self._functions:
            raise InvalidGraph("call of an undefined function", where=self._where, got=name)
        block = self._functions[name].regions[0].blocks[0]
        return self._block(block, {}, operands)

    def type(self, kind: ir.Type) -> TensorType:
        """Return a tensor's type, or that of a complex one's parts, from a cache. Raises as `part_type` does."""
        if kind not in self._types:
            self._types[kind] = part_type(kind)
        return self._types[kind]

    def _block(self, block: ir.Block, known: Environment, operands: Sequence[Value]) -> list[Value]:
        """Walk a block and return its results; `known` maps SSA values to symbols and is extended."""
        known.update(zip(block.arguments, operands, strict=True))
        for each in block.operations:
            op = each.operation
            if op.name in ("func.return", "stablehlo.return"):
                return [known[value] for value in op.operands]
            try:
                read = self._read_operands(op, known)
                results = self._translate_op(op, read, known)
            except ShardplanError as error:
                raise (error if error.where.startswith(self._where) else self._locate(error, op)) from None
            known.update(zip(op.results, results, strict=True))
        raise InvalidGraph("block without a return", where=self._where)

    def _locate(self, error: ShardplanError, op: ir.Operation) -> ShardplanError:
        place = f"{self._where}: {format_location(op)}: {op.name}"
        return error if op.name in error.where else error.at(place)

    def _translate_op(self, op: ir.Operation, read: tuple[Value, ...], known: Environment) -> Sequence[Value]:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise UnsupportedOp("program too long", got=f"more than {MAX_STEPS} steps", wanted="fewer turns and calls")
        before = self.builder.phase
        self.builder.phase = before if before == "backward" else phase_of(op) or before
        try:
            if op.results and all(has_no_elements(each.type) for each in op.results):
                return [NO_ELEMENTS] * len(op.results)
            if op.name in CONTROL_FLOW:
                return self._follow_control_flow(op, read, known)
            real = tuple(each for each in read if not isinstance(each, ComplexParts))
            if len(real) < len(read) or any(is_complex(each.type) for each in op.results):
                return [self._translate_complex(op, read)]
            if op.name in OP_TABLE:
                return self._apply_row(op.name, op, real, kinds=[self.type(each.type) for each in op.results])
            if op.name == "sdy.sharding_constraint":
                return [self.annotations.annotate_symbol(real[0], op.attributes["sharding"])]
            return self._replicate(op, real)
        finally:
            self.builder.phase = before

    def _translate_complex(self, op: ir.Operation, read: tuple[Value, ...]) -> Value:
        def run_row(name: str, operands: Sequence[Symbol], kind: TensorType) -> Symbol:
            return self._apply_row(name, op, operands, kinds=[kind])[0]

        kind = self.type(op.results[0].type)
        return translate_complex(ComplexCall(op, read, kind, builder=self.builder, run_row=run_row))

    def _read_operands(self, op: ir.Operation, known: Environment) -> tuple[Value, ...]:
        """Return the operands of an op.

        Arrays without elements are left out of concatenations. Raises UnsupportedOp where another op reads one.
        """
        read = tuple(known[value] for value in op.operands)
        if op.name in (*PASSING_OPS, "stablehlo.scatter") or not any(each is NO_ELEMENTS for each in read):
            return read
        if op.name == "stablehlo.concatenate":
            return tuple(each for each in read if each is not NO_ELEMENTS)
        if all(has_no_elements(each.type) for each in op.results):
            return read
        raise UnsupportedOp("operand without elements", got=op.name, wanted="arrays of at least one element")

    def _apply_row(
        self, name: str, op: ir.Operation, operands: Sequence[Symbol], *, kinds: Sequence[TensorType]
    ) -> list[Symbol]:
        """Apply the row `name` to an op; emit an op that is planned replicated where the row does not cover it."""
        call = StablehloOpCall("", tuple(kinds), self.builder, op, tuple(operands))
        results: RowResult | Sequence[RowResult]
        try:
            results = OP_TABLE[name](call)
        except NotCovered as reason:
            self.builder.uncovered.replicated[f"{op.name} ({reason})"].append(format_location(op))
            results = call.emit_all(op.name, *call.wholes())
        listed = results if isinstance(results, Sequence) else [results]
        return [TensorSymbol.of(each) if isinstance(each, DocumentValue) else each for each in listed]

    def _follow_control_flow(self, op: ir.Operation, read: tuple[Value, ...], known: Environment) -> Sequence[Value]:
        """Walk calls and control flow, and ops that only pass values on."""
        match op.name:
            case "func.call" | "stablehlo.composite":
                callee = op.attributes["callee" if op.name == "func.call" else "decomposition"].value
                return self._call(callee, read)
            case "stablehlo.while":
                return self._loop(op, read, known)
            case "stablehlo.case" | "stablehlo.if":
                return self._branch(op, read, known)
            case _:
                return read

    def _replicate(self, op: ir.Operation, read: tuple[Symbol, ...]) -> Sequence[Symbol]:
        """Emit an op outside the table, which is planned replicated. Raises UnsupportedOp for one with side effects."""
        name = op.name
        if name == "stablehlo.custom_call":
            name = f"{name} {op.attributes['call_target_name'].value}"
            effects = op.attributes["has_side_effect"].value if "has_side_effect" in op.attributes else False
            if effects or "callback" in name:
                wanted = "a step without callbacks and jax.debug: return the values, and handle them outside"
                raise UnsupportedOp("custom call with side effects", got=name.partition(" ")[2], wanted=wanted)
        types = [self.type(each.type) for each in op.results]
        self.builder.uncovered.replicated[name].append(format_location(op))
        made = self.builder.emit_all(name.replace(" ", "."), list(map(self.builder.whole, read)), types, attrs={})
        return list(map(TensorSymbol.of, made))

    def _call(self, callee: str, read: tuple[Value, ...]) -> Sequence[Value]:
        """Walk a function; JAX's random generator is an op of its own unless its key and counters are known."""
        with self._within(callee):
            real = tuple(each for each in read if not isinstance(each, ComplexParts))
            known = all(isinstance(each, KnownNumbers) for each in read)
            if not known and len(real) == len(read) and self._is_threefry(callee, real):
                return random_bits.draw_words(self.builder, real)
            return self.call(callee, read)

    def _is_threefry(self, callee: str, read: tuple[Symbol, ...]) -> bool:
        if callee not in self._generators:
            walk = partial(self.call, callee)
            self._generators[callee] = random_bits.is_threefry(callee, [each.type for each in read], walk)
        return self._generators[callee]

    def _loop(self, op: ir.Operation, carried: Sequence[Value], known: Environment) -> Sequence[Value]:
        condition, body = (region.blocks[0] for region in op.regions)
        number, self._loops = self._loops, self._loops + 1
        for turn in range(MAX_ITERATIONS):
            (holds,) = self._block(condition, known, carried)
            if not isinstance(holds, KnownNumbers):
                wanted = "a loop whose turns are known: lax.scan, or fori_loop with numbers as bounds"
                raise UnsupportedOp("data-dependent while loop", got=f"turn {turn}", wanted=wanted)
            if not holds.number:
                return carried
            with self._within(f"while.{number}[{turn}]"):
                carried = self._block(body, known, carried)
        raise UnsupportedOp("loop too long", got=f"more than {MAX_ITERATIONS} turns", wanted="fewer")

    def _branch(self, op: ir.Operation, read: tuple[Value, ...], known: Environment) -> Sequence[Value]:
        (chosen,) = read
        if not isinstance(chosen, KnownNumbers):
            raise UnsupportedOp("data-dependent branch", got=op.name, wanted="jnp.where, or a known condition")
        if op.name == "stablehlo.if":
            region = 0 if chosen.number else 1
        else:
            region = int(chosen.number) if 0 <= chosen.number < len(op.regions) else len(op.regions) - 1
        with self._within(op.name.partition(".")[2]):
            return self._block(op.regions[region].blocks[0], known, ())

    @contextmanager
    def _within(self, name: str) -> Iterator[None]:
        if len(self._scopes) >= MAX_DEPTH:
            raise UnsupportedOp("calls nested too deeply", got=name, wanted=f"at most {MAX_DEPTH}")
        self._scopes.append(name)
        before, self.builder.scope = self.builder.scope, ".".join(self._scopes)
        try:
            yield
        finally:
            self._scopes.pop()
            self.builder.scope = before
