"""Writes a program anew, instruction by instruction, and decides which rewrites are kept.

A pass sweeps once over a program. It takes each instruction in turn and either writes it as it is or offers others in
its place; instructions that nobody reads any more are dropped. The offer is kept when every collective in it is exact
and its price is no higher than what it replaces. The price of a program is the sum over its instructions, so no pass
raises it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from planner.ir.basis_moves import is_exact
from planner.ir.collectives import Collective, Kind
from planner.ir.indexing import Option
from planner.ir.program import Instruction, Program, Reshard, ShardedValue, infer_results
from planner.ir.sharding import Axes

Price = Callable[[Instruction, Mapping[str, ShardedValue]], int]
"""Time of an instruction; the mapping holds the values it reads."""


def zero_price(done: Instruction, values: Mapping[str, ShardedValue]) -> int:
    """Return 0, so that every rewrite is kept."""
    return 0


@dataclass
class ProgramRewriter:
    """The program written so far.

    `reads` counts the readers of a value, written or yet to come, but without the current instruction; `pending` counts
    those yet to come. `names` maps a value of the old program to what its readers read now.
    """

    program: Program
    price: Price
    values: dict[str, ShardedValue] = field(init=False)
    reads: Counter[str] = field(init=False)
    pending: Counter[str] = field(init=False)
    emitted: dict[int, Instruction] = field(default_factory=dict)
    maker: dict[str, int] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    root: dict[str, str] = field(default_factory=dict)
    copies: Counter[str] = field(default_factory=Counter)
    count: int = 0
    changed: bool = False

    def __post_init__(self) -> None:
        program = self.program
        self.values = dict(program.values)
        self.reads = Counter(name for done in program.instructions for name in done.operands)
        self.reads.update(program.outputs)
        self.pending = self.reads.copy()
        for done in program.instructions:
            if isinstance(done, Reshard):
                self.root[done.result] = self.root.get(done.operand, done.operand)

    def rename_operands(self, done: Instruction) -> Instruction:
        """The next instruction, with the names its operands have now."""
        operands = tuple(map(self.current_name, done.operands))
        # The current instruction may be replaced, so its own reads do not keep its operands alive.
        self.pending.subtract(operands)
        self.reads.subtract(operands)
        if operands == done.operands:
            return done
        return replace(done, operand=operands[0]) if isinstance(done, Reshard) else replace(done, operands=operands)

    def current_name(self, name: str) -> str:
        """Return the name that a value of the old program has in the new one."""
        while name in self.names:
            name = self.names[name]
        return name

    def emit(self, done: Instruction) -> None:
        self.emitted[self.count] = done
        self.maker |= dict.fromkeys(done.results, self.count)
        self.reads.update(done.operands)
        self.count += 1

    def fresh_name(self, value: str) -> str:
        """Return a new name for what a move makes of a value: `%v.1`, `%v.2`, ..."""
        root = self.root.get(value, value)
        while (name := f"{root}.{self.copies[root] + 1}") in self.values or name in self.root:
            self.copies[root] += 1
        self.root[name] = root
        return name

    def make_chain(self, source: str, collectives: Sequence[Collective], last: str | None = None) -> list[Reshard]:
        """Return moves one after the other; the last one makes `last`, or a fresh name."""
        moves: list[Reshard] = []
        for number, collective in enumerate(collectives, 1):
            result = last if last and number == len(collectives) else self.fresh_name(source)
            moves.append(Reshard(collective, source, result))
            source = result
        return moves

    def find_move(self, name: str, kind: Kind) -> Reshard | None:
        """Return the move of a kind that made a value, None for any other. Halos and offsets do not count."""
        done = self.emitted.get(self.maker.get(name, -1))
        if not isinstance(done, Reshard) or done.collective.kind is not kind:
            return None
        sharding = self.values[done.operand].sharding
        return None if sharding.halo_sizes or sharding.sharded_dims_offsets else done

    def cost(self, added: Iterable[Instruction]) -> tuple[int, dict[str, ShardedValue]] | None:
        """Return the price of instructions in a row, and the values they make.

        Return None where one is not exact or cannot read an operand.
        """
        values = dict[str, ShardedValue]()
        total = 0
        for done in added:
            operand_values = {name: values.get(name) or self.values[name] for name in done.operands}
            if not self._is_possible(done, operand_values):
                return None
            values |= infer_results(done, operand_values, self.program.mesh)
            total += self.price(done, operand_values)
        return total, values

    def _is_possible(self, done: Instruction, operand_values: Mapping[str, ShardedValue]) -> bool:
        if isinstance(done, Reshard):
            value = operand_values[done.operand]
            target = done.collective.target(value.sharding)
            return is_exact(done.collective, value.sharding, target, shape=value.type.shape, mesh=self.program.mesh)
        mesh = self.program.mesh
        return done.op.rule.is_allowed(done.option, mesh) and all(
            operand_values[name].sharding == done.operand_sharding(i, mesh) for i, name in enumerate(done.operands)
        )

    def replace(self, done: Instruction, added: Sequence[Instruction], names: Mapping[str, str] | None = None) -> bool:
        """Write `added` in place of the current instruction; later readers of `names` read what they map to.

        Return False, and change nothing, where that is not possible or costs more.
        """
        offer, names = self.cost(added), names or {}
        dead = self._find_unread(done, added, names)
        if offer is None or offer[0] > sum(self.price(gone, self.values) for gone in (done, *dead)):
            return False
        # Readers rely on type and sharding: a new value may only take the place of one that has both.
        if any((offer[1].get(new) or self.values[new]) != self.values[old] for old, new in names.items()):
            return False
        for gone in dead:
            del self.emitted[self.maker[gone.results[0]]]
            self.reads.subtract(gone.operands)
        self.values |= offer[1]
        for one in added:
            self.emit(one)
        for old, new in names.items():
            self._rename(old, new)
        self.changed = True
        return True

    def _find_unread(
        self, done: Instruction, added: Sequence[Instruction], names: Mapping[str, str]
    ) -> list[Instruction]:
        """Return what is dead once `added` replaces the current instruction."""
        new_reads = Counter(name for one in added for name in one.operands)
        remade = {name for one in added for name in one.results}
        new_reads.update({new: self.pending[old] for old, new in names.items() if new not in remade})
        dead: dict[str, Instruction] = {}
        waiting = list(done.operands)
        while waiting:
            maker = self.emitted.get(self.maker.get(waiting.pop(), -1))
            if maker is None or maker.results[0] in dead:
                continue
            if all(self.reads[name] + new_reads[name] <= 0 for name in maker.results):
                dead[maker.results[0]] = maker
                new_reads.subtract(maker.operands)
                waiting += maker.operands
        return list(dead.values())

    def _rename(self, old: str, new: str) -> None:
        left = self.pending.pop(old, 0)
        self.pending[new] += left
        self.reads[new] += left
        self.reads[old] -= left
        self.names[old] = new

    def finish(self) -> Program:
        if not self.changed:
            return self.program
        outputs = tuple(map(self.current_name, self.program.outputs))
        return replace(self.program, instructions=tuple(self.emitted.values()), outputs=outputs)


def rewrite_once(program: Program, price: Price, rewrite: Callable[[ProgramRewriter, Instruction], bool]) -> Program:
    """Return the program after offering every instruction to `rewrite`, which returns whether it has replaced it."""
    draft = ProgramRewriter(program, price)
    for done in program.instructions:
        current = draft.rename_operands(done)
        if not rewrite(draft, current):
            draft.emit(current)
    return draft.finish()


def widen_option(option: Option, loop: int, axes: Axes) -> Option:
    """Return the option with axes appended to those of a loop."""
    return (*option[:loop], (*option[loop], *axes), *option[loop + 1 :])


def used_axes(option: Option) -> frozenset[int]:
    return frozenset(axis for axes in option for axis in axes)
