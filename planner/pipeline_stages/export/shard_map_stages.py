"""The stages of a pipeline as one Python module for JAX, each on a mesh of its own of the process's devices.

A stage's passes are functions for `jax.shard_map` (`planner.export.shard_map`). What a pass leaves for later ones stays
as every device holds it, with the devices in a first dim. `jax.device_put` moves values between the stages' meshes.
Tasks run in the order of the plan's schedule on every rank, as far as what they read has arrived.

`local(arrays)` places whole arguments by name, `program(held)` runs a step, `whole(results)` gives whole results, and
`advance(held, results)` puts new parameters and states in their places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from textwrap import indent

from planner.export.shard_map.boundary_layouts import BoundaryLayout
from planner.export.shard_map.op_functions import OpFunctions, jax_dtype
from planner.export.shard_map.programs import GIVEN, held_type, wide_types, write_instructions
from planner.export.shard_map.py_source import format_value
from planner.ir.program import Program, is_accumulation
from planner.pipeline_stages.export.passes import StagePass, list_passes, output_name
from planner.pipeline_stages.export.sends import list_targets
from planner.pipeline_stages.export.stage_plan import StagePlan
from planner.run.pipeline import StageProgram

HEAD = '''"""{stages} pipeline stages on {ranks} ranks of {meshes}, in one process with {world} devices."""

from types import SimpleNamespace

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

GRAPH = {graph!r}
# By rank of the pipeline: the axes of its mesh, and the number of its first device.
AXES = {axes!r}
FIRSTS = {firsts!r}
MICROBATCHES = {microbatches}
# By stage: its rank.
RANKS = {rank_of!r}
if len(jax.devices()) < {world}:
    raise RuntimeError(f"devices: got {{len(jax.devices())}}, wanted {world}: the devices of all ranks")
# The copies of parameters that two stages hold, with their originals.
COPIES = {copies!r}
# By rank of the pipeline: what it runs, the stage, and the micro-batch.
TASKS = {tasks}
'''
RUNTIME = '''def make_mesh(stage):
    """The mesh of a stage: the devices of its rank."""
    axes, first = AXES[RANKS[stage]], FIRSTS[RANKS[stage]]
    sizes = tuple(axes.values())
    devices = np.array(jax.devices()[first : first + int(np.prod(sizes))]).reshape(sizes)
    return Mesh(devices, tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


class Run:
    """A stage in a step: its arguments, what it has accumulated, and what it holds for each micro-batch."""

    def __init__(self, stage, arguments):
        self.stage, self.values, self.flying = stage, dict(arguments), {}
        self.run("begin")

    def is_ready(self, kind, number, mail):
        """Whether what a pass receives has arrived."""
        received = self.stage.PASSES[kind][4] if kind in self.stage.PASSES else ()
        return all((value, self.stage.NUMBER, number) in mail for value in received)

    def run(self, kind, number=None, mail=None):
        """Run a pass of a micro-batch, or a part of the update."""
        if kind not in self.stage.PASSES:
            return
        function, reads, makes, dropped, received, sent = self.stage.PASSES[kind]
        own = self.values if number is None else self.flying.setdefault(number, {})
        for value in received:
            own[value] = self.stage.place(value, mail.pop((value, self.stage.NUMBER, number or 0)))
        made = function(*[self.find(name, number) for name in reads])
        for name, array in zip(makes, made):
            (self.values if name in self.stage.SUMS else own)[name] = array
        for value, name in sent:
            mail[value, self.stage.TARGETS[value], number or 0] = self.stage.ENDS[name][1](self.find(name, number))
        for name in dropped:
            own.pop(name, None)

    def find(self, name, number):
        held = self.flying.get(MICROBATCHES - 1 if number is None else number, {})
        if name in held:
            return held[name]
        if name in self.stage.DATA:
            held[name] = self.stage.place(name, self.values[name][-1 if number is None else number])
            return held[name]
        return self.values[name]


def local(arrays):
    """Whole arguments by name, placed for each stage; data stays as it is until its micro-batch."""
    return [
        {
            name: arrays[name] if name in stage.DATA else stage.place(name, arrays[COPIES.get(name, name)])
            for name in stage.ARGUMENTS
        }
        for stage in STAGES
    ]


def program(held):
    """Run a step, and return the results of each stage by name, as its devices hold them."""
    runs, mail = [Run(stage, each) for stage, each in zip(STAGES, held)], {}
    waiting = [list(tasks) for tasks in TASKS]
    while any(waiting):
        for tasks in waiting:
            while tasks and runs[tasks[0][1]].is_ready(tasks[0][0], tasks[0][2], mail):
                kind, number, microbatch = tasks.pop(0)
                runs[number].run(kind, microbatch, mail)
    for kind in ("first", "update"):
        for run in runs:
            run.run(kind, None, mail)
    return [{name: run.find(value, None) for name, value in run.stage.OUTPUTS.items()} for run in runs]


def advance(held, results):
    """Return the arguments of the next step, with new parameters and states in the places of the old."""
    return [
        each | {name: made[value] for name, value in stage.NEXT.items()}
        for stage, each, made in zip(STAGES, held, results)
    ]


def whole(results):
    """The whole results of all stages by name."""
    return {
        name: stage.ENDS[stage.OUTPUTS[name]][1](array)
        for stage, made in zip(STAGES, results)
        for name, array in made.items()
    }'''


def print_shard_map_stages(plan: StagePlan) -> str:
    """Return the module. Raises InvalidSharding, naming value or op, for what jax.shard_map cannot express."""
    with wide_types():
        pairs = zip(plan.stages, list_targets(plan.stages), strict=True)
        listed = [_write_stage(number, stage, targets) for number, (stage, targets) in enumerate(pairs)]
    head = HEAD.format(rank_of=tuple(stage.rank for stage in plan.stages), **plan.head_fields)
    helpers = [text.rstrip() for name, text in GIVEN.items() if any(f"{name}(" in each for each in listed)]
    made = ", ".join(f"make_stage_{number}()" for number in range(len(plan.stages)))
    return "\n\n\n".join([head.rstrip(), *helpers, RUNTIME, *listed, f"STAGES = [{made}]\n"])


def _write_stage(number: int, stage: StageProgram, targets: Mapping[str, int]) -> str:
    """Return the text of the function that makes a stage. `targets`: which stages receive what it sends."""
    program = stage.program
    once = replace(program, graph=replace(program.graph, microbatches=1))
    arguments = [name for name, _ in program.arguments]
    ends = {name: BoundaryLayout(once, name) for name in dict.fromkeys((*arguments, *program.outputs))}
    writer = _PassWriter(program, ends)
    passes = list_passes(stage)
    bodies = [writer.begin(), *map(writer.function, passes)]
    received = {*stage.received, *stage.received_gradients, *stage.received_sums}
    own = {*stage.sent, *stage.sent_gradients, *stage.sent_sums}
    lines = [
        f"NUMBER, TARGETS, mesh = {number}, {targets!r}, make_mesh({number})",
        f"ARGUMENTS = {tuple(name for name in arguments if name not in received)!r}",
        f"SUMS = {writer.sums!r}",
        f"DATA = {tuple(name for name in arguments if name in program.stacked - received)!r}",
        f"OUTPUTS = { ({v: output_name(program, v) for v in program.graph.outputs if v not in own})!r}",
        f"NEXT = { ({name: program.graph.outputs[k] for k, name in program.graph.state_outputs.items()})!r}",
        "# How values at the ends are laid out, put together, and split.",
        "ENDS = {",
        *(
            f"    {name!r}: (lambda a: {end.laid('a')}, lambda a: {end.whole('a')}, {end.spec}),"
            for name, end in ends.items()
        ),
        "}",
        "",
        "def place(name, array):",
        "    return jax.device_put(ENDS[name][0](array), NamedSharding(mesh, ENDS[name][2]))",
        "",
        "def mapped(function, reads, leaves):",
        "    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=reads, out_specs=leaves, check_vma=False))",
        *(line for text in (*writer.functions.texts, *bodies) for line in ("", *text.rstrip().splitlines())),
        "PASSES = {",
        f"    'begin': ({writer.mapped('begin', (), writer.sums)}, (), {writer.sums!r}, (), (), ()),",
        *(writer.entry(each) for each in passes),
        "}",
        "return SimpleNamespace(**locals())",
    ]
    return f"def make_stage_{number}():\n" + indent("\n".join(lines), "    ")


class _PassWriter:
    """The functions of a stage's passes, as every device runs them."""

    def __init__(self, program: Program, ends: dict[str, BoundaryLayout]) -> None:
        self.program, self.ends, self.functions = program, ends, OpFunctions(program.mesh)
        self.names = {value: f"n{number}" for number, value in enumerate(program.values)}
        self.sums = tuple(name for done in program.instructions if is_accumulation(done) for name in done.results)

    def begin(self) -> str:
        """Return the function of what sums begin with."""
        kinds = [held_type(self.program, name) for name in self.sums]
        lines = [
            f"{self.names[name]} = jnp.zeros({kind.shape!r}, {format_value(jax_dtype(kind.dtype))})"
            for name, kind in zip(self.sums, kinds, strict=True)
        ]
        return self._format("begin", lines, reads=(), makes=self.sums)

    def function(self, each: StagePass) -> str:
        lines = write_instructions(self.program, self.functions, names=self.names, instructions=each.instructions)
        return self._format(each.kind, lines, reads=each.reads, makes=each.makes)

    def _format(self, name: str, lines: Sequence[str], *, reads: Sequence[str], makes: Sequence[str]) -> str:
        entered = [line for value in reads for line in self._enter(value)]
        left = "".join(f"{self._leave(value)}, " for value in makes)
        body = "".join(f"    {line}\n" for line in (*entered, *lines, f"return ({left})"))
        return f"def {name}({', '.join(self.names[value] for value in reads)}):\n{body}"

    def _enter(self, value: str) -> list[str]:
        name = self.names[value]
        return self.ends[value].entered(name) if value in self.ends else [f"{name} = {name}[0]"]

    def _leave(self, value: str) -> str:
        name = self.names[value]
        return self.ends[value].left(name) if value in self.ends else f"{name}[None]"

    def entry(self, each: StagePass) -> str:
        sent = tuple((value, output_name(self.program, value)) for value in each.sent)
        listed = ", ".join(repr(names) for names in (each.reads, each.makes, each.dropped, each.received, sent))
        return f"    {each.kind!r}: ({self.mapped(each.kind, each.reads, each.makes)}, {listed}),"

    def mapped(self, name: str, reads: Sequence[str], makes: Sequence[str]) -> str:
        specs = ["".join(f"{self._spec(value)}, " for value in values) for values in (reads, makes)]
        return f"mapped({name}, ({specs[0]}), ({specs[1]}))"

    def _spec(self, value: str) -> str:
        return self.ends[value].spec if value in self.ends else f"P({self.program.mesh.names!r})"
