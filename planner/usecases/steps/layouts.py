"""The layouts of published training steps: an option per op, a sharding per input, and the program they give.

    data      inputs are split over `fsdp` by batch; the ops follow
    fsdp      every parameter is also stored split over `fsdp`, along its first dim that no other axis splits and that
              divides evenly, and gathered for each pass; its gradient ends in the same layout
    tp        Megatron: products are column and row parallel over `tp`, embedding and head by vocabulary
    sequence  between them, norms and residual sums are split along the sequence over `tp` (Korthikanti et al., 2022)

A sum whose terms are all partial stays partial. A value with several readers is resharded once, to the sharding from
which all readers together are reached at the least cost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from planner.choose.cost import CostModel
from planner.ir.collectives import Collective
from planner.ir.execution_order import find_readers
from planner.ir.graph import Graph, Op, TensorType
from planner.ir.indexing import LoopKind, Option, can_split
from planner.ir.notation import Term
from planner.ir.program import Program
from planner.ir.sharding import Axes, Reduction, Sharding
from planner.reshard.all_pairs import AllPairsResharding
from planner.rewrite.materialize import materialize

COLUMN = ("q", "k", "v", "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "c_fc", "lm_head")
ROW = ("c_proj", "o_proj", "down_proj")
EMBEDDINGS = ("wte", "embed_tokens")
NORMS = ("layer_norm", "rms_norm")


@dataclass(frozen=True)
class Layout:
    """A graph on a mesh whose axes are named by their role."""

    graph: Graph
    model: CostModel
    fsdp: Axes
    tp: Axes
    sequence: bool

    @cached_property
    def program(self) -> Program:
        options, inputs = self.options, self.inputs
        made = self._list_shardings(options)
        wanted = self._wanted(options)
        outputs = tuple(self._left(n, value, made) for n, value in enumerate(self.graph.outputs))
        shared = {}
        for value, who in find_readers(self.graph).items():
            if len(who) > 1:
                ends = [outputs[r.operand] if r.op is None else wanted[r.op][r.operand] for r in who]
                shared[value] = self._cheapest(value, made[value], ends)

        def route(value: str, source: Sharding, target: Sharding) -> list[Collective]:
            return self._table(self.graph.types[value]).shortest_path(source, target)

        return materialize(
            self.graph, self.model.mesh, inputs, options=options, shared=shared, outputs=outputs, route=route
        )

    @cached_property
    def inputs(self) -> dict[str, Sharding]:
        return {entry.id: self._input(entry.id, entry.kind, entry.type) for entry in self.graph.inputs}

    def _input(self, name: str, kind: str, of: TensorType) -> Sharding:
        rank = len(of.shape)
        if kind != "parameter":
            return Sharding((self.fsdp if kind == "input" and rank else (), *((),) * (rank - 1)) if rank else ())
        split = list(self._by_tp(name, rank))
        parts = self.model.mesh.group_size(self.fsdp)
        free = [dim for dim in range(rank) if not split[dim] and of.shape[dim] % parts == 0]
        if free:
            split[free[0]] = self.fsdp
        return Sharding(tuple(split))

    def _by_tp(self, name: str, rank: int) -> list[Axes]:
        """Return how `tp` splits a parameter."""
        *_, part, what = ("", *name.split("."))
        split: list[Axes] = [()] * rank
        stored_in_out = f"{name.removesuffix('weight')}bias" in self._parameters
        if part in EMBEDDINGS or (part in COLUMN and (what == "bias" or not stored_in_out)):
            split[0] = self.tp
        elif part in COLUMN or (part in ROW and what == "weight" and not stored_in_out):
            split[1] = self.tp
        elif part in ROW and what == "weight":
            split[0] = self.tp
        return split

    @cached_property
    def _parameters(self) -> dict[str, int]:
        """Return the rank of each parameter."""
        return {entry.id: len(entry.type.shape) for entry in self.graph.inputs if entry.kind == "parameter"}

    @cached_property
    def _cast_of(self) -> dict[str, str]:
        """Return the parameter that each cast before a pass reads."""
        casts = (op for op in self.graph.ops if op.op == "cast" and op.inputs[0] in self._parameters)
        return {op.id: op.inputs[0] for op in casts}

    @cached_property
    def _given(self) -> dict[str, dict[str, Axes]]:
        """Return the splits given by `tp`: products follow their parameters, gradients follow these."""
        given: dict[str, dict[str, Axes]] = defaultdict(dict)
        makers = {value: op for op in self.graph.ops for value in op.values}
        for op in self.graph.ops if self.tp else ():
            for term, value in zip(op.rule.operands, op.inputs, strict=True):
                if (name := self._cast_of.get(value, value)) in self._parameters:
                    given[op.id] |= _loops(term, self._by_tp(name, len(term)))
        for value, name in zip(self.graph.outputs[1:], self._parameters, strict=True):
            waiting = [makers[value]] if self.tp else []
            for op in waiting:
                if op.phase == "backward" or op.op == "cast":
                    given[op.id] |= _loops(op.rule.results[0], self._by_tp(name, len(op.rule.results[0])))
                    waiting += [makers[each] for each in op.inputs if op.op in ("cast", "add")]
        if self.sequence:
            first = next(op for op in self.graph.ops if op.op in ("add", *NORMS))
            given[first.id] |= {first.rule.results[0][1].loops[0]: self.tp}
        return given

    @cached_property
    def options(self) -> dict[str, Option]:
        """Return each op's option, in order: the given splits, then those of its operands on free axes."""
        found: dict[str, Option] = {}
        layouts = dict(self.inputs)
        for op in self.graph.ops:
            plain = self._stored_cast(op) or self._flowing(op, layouts)
            found[op.id] = self._passing(op, plain, layouts) or plain
            layouts |= {v: op.rule.result_sharding(k, found[op.id]) for k, v in enumerate(op.values)}
        return found

    def _flowing(self, op: Op, layouts: Mapping[str, Sharding]) -> Option:
        taken = dict(self._given.get(op.id, {}))
        loops, mesh = {loop.name: loop for loop in op.rule.loops}, self.model.mesh
        for term, value in zip(op.rule.operands, op.inputs, strict=True):
            if self._cast_of.get(value, value) in self._parameters:
                continue
            for loop, axes in _loops(term, layouts[value].split_axes).items():
                used = {axis for others in taken.values() for axis in others}
                free = not taken.get(loop) and not used & set(axes)
                if free and can_split(loops[loop], mesh.group_size(axes)):
                    taken[loop] = axes
        return tuple(taken.get(loop.name, ()) for loop in op.rule.loops)

    def _stored_cast(self, op: Op) -> Option | None:
        """Return the option of a cast of a stored parameter: it is sharded as it is stored."""
        if op.id not in self._cast_of:
            return None
        split = self.inputs[op.inputs[0]].split_axes
        loops = {dim.loops[0]: axes for dim, axes in zip(op.rule.results[0], split, strict=True) if dim.loops}
        return tuple(loops.get(loop.name, ()) for loop in op.rule.loops)

    def _passing(self, op: Op, option: Option, layouts: Mapping[str, Sharding]) -> Option | None:
        """Return the option that passes on partial sums, where all operands of a linear group are partial."""
        for place, loop in enumerate(op.rule.loops):
            if loop.kind is not LoopKind.LINEAR or loop.reduction is not Reduction.SUM or not loop.operands:
                continue
            terms = [layouts[op.inputs[operand]] for operand in loop.operands]
            partial = {each.partial if each.reduction is Reduction.SUM else () for each in terms}
            if len(loop.operands) == len(op.inputs) and len(partial) == 1 and (axes := partial.pop()):
                kept = [tuple(a for a in each if a not in axes) for each in option]
                return tuple(axes if at == place else each for at, each in enumerate(kept))
        return None

    def _list_shardings(self, options: Mapping[str, Option]) -> dict[str, Sharding]:
        made = dict(self.inputs)
        for op in self.graph.ops:
            made |= {v: op.rule.result_sharding(k, options[op.id]) for k, v in enumerate(op.values)}
        return made

    def _wanted(self, options: Mapping[str, Option]) -> list[list[Sharding]]:
        mesh = self.model.mesh
        return [
            [op.rule.read_sharding(k, options[op.id], mesh) for k in range(len(op.inputs))] for op in self.graph.ops
        ]

    def _left(self, number: int, value: str, made: Mapping[str, Sharding]) -> Sharding:
        """Return an output's sharding: output 0 is the loss, the others are gradients, sharded as their parameters."""
        parameters = [entry.id for entry in self.graph.inputs if entry.kind == "parameter"]
        if number:
            return self.inputs[parameters[number - 1]]
        return Sharding(((),) * len(self.graph.types[value].shape))

    def _cheapest(self, value: str, made: Sharding, ends: list[Sharding]) -> Sharding:
        table = self._table(self.graph.types[value])
        known = [state for state in dict.fromkeys([made, *ends]) if state in table.index]

        def price(state: Sharding) -> int:
            at = table.index[state]
            return int(table.time[table.index[made], at] + sum(table.time[at, table.index[end]] for end in ends))

        return min(known, key=price)

    def _table(self, kind: TensorType) -> AllPairsResharding:
        if kind not in self._tables:
            self._tables[kind] = AllPairsResharding.of(kind, {Reduction.SUM, Reduction.MAX}, self.model)
        return self._tables[kind]

    @cached_property
    def _tables(self) -> dict[TensorType, AllPairsResharding]:
        return {}


def _loops(term: Term, split: Sequence[Axes]) -> dict[str, Axes]:
    """Return the loops of a term's dims, with the axes that split them."""
    dims = zip(term, split, strict=True)
    return {dim.loops[0]: axes for dim, axes in dims if axes and dim.loops and not dim.joined}
