"""The stages of a pipeline as one Python module for torch.distributed, run by a process for each device of all ranks.

Every process imports the module after `torch.distributed.init_process_group`, or runs it under torchrun. It has the
passes of the stages on its rank, as SPMD programs (`planner.export.torch_program`), and the order of its tasks in the
plan's schedule. Values between stages travel point to point, in a process group for each pair of stages and direction,
so that a backend that keeps messages in order, such as NCCL, never waits in a circle.

`local(arrays)` cuts what a process holds from whole arguments by name, `program(held)` runs a step, `whole(results)`
joins results, and `advance(held, results)` puts new parameters and states in their places.

This is written out rather than run by `torch.distributed.pipelining`: its stages are modules that autograd
differentiates, with one mesh group a rank, gradients that the runtime accumulates, and no update; a plan has a backward
pass of its own, with its own collectives, accumulators that are reduced when the plan says, and the update.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent

from planner.export.torch_program.boundary import JOIN, PART, write_argument, write_result
from planner.export.torch_program.collectives import write_groups
from planner.export.torch_program.exchange import PIECES
from planner.export.torch_program.op_functions import dtype_name
from planner.export.torch_program.programs import GIVEN, ProgramWriter
from planner.ir.program import Program, is_accumulation
from planner.ir.sharding import Axes
from planner.pipeline_stages.export.passes import StagePass, list_passes, output_name
from planner.pipeline_stages.export.sends import EdgeTables, list_edges
from planner.pipeline_stages.export.stage_plan import StagePlan

HEAD = '''"""{stages} pipeline stages on {ranks} ranks of {meshes}, as every process runs them.

Import after torch.distributed.init_process_group, with {world} processes: torchrun --nproc-per-node {world} ...
"""

from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol

GRAPH = {graph!r}
# By rank of the pipeline: the axes of its mesh, and the number of its first process.
AXES = {axes!r}
FIRSTS = {firsts!r}
MICROBATCHES = {microbatches}
if dist.get_world_size() != {world}:
    raise RuntimeError(f"world size: got {{dist.get_world_size()}}, wanted {world}: the devices of all ranks")
STAGE_RANK = max(rank for rank, first in enumerate(FIRSTS) if first <= dist.get_rank())
FIRST = FIRSTS[STAGE_RANK]
RANK = dist.get_rank() - FIRST
aten = torch.ops.aten
# The copies of parameters that two stages hold, with their originals.
COPIES = {copies!r}
# By rank of the pipeline: what it runs, the stage, and the micro-batch.
TASKS = {tasks}
'''
RUNTIME = '''def make_group(groups):
    """This process's group of some lists of processes of a stage."""
    members = next(group for group in groups if RANK in group)
    return GROUPS[tuple(FIRST + each for each in members)]


class Run:
    """A stage in a step: its arguments, what it has accumulated, and what it holds for each micro-batch."""

    def __init__(self, stage, arguments):
        self.stage, self.values, self.flying = stage, dict(arguments), {}
        self.values.update(dict.fromkeys(stage.SUMS))

    def run(self, kind, number=None):
        """Run a pass of a micro-batch, or a part of the update."""
        if kind not in self.stage.PASSES:
            return
        function, reads, makes, dropped, received, sent = self.stage.PASSES[kind]
        own = self.values if number is None else self.flying.setdefault(number, {})
        for value in received:
            own[value] = receive_value(value, self.stage.RECEIVED[value][0], number or 0)
        made = function(*[self.find(name, number) for name in reads])
        for name, array in zip(makes, made):
            (self.values if name in self.stage.SUMS else own)[name] = waited(array)
        for value, name in sent:
            send_value(value, self.stage.SENT[value][0], self.find(name, number), number or 0)
        for name in dropped:
            own.pop(name, None)

    def find(self, name, number):
        held = self.flying.get(MICROBATCHES - 1 if number is None else number, {})
        if name in held:
            return held[name]
        if name in self.stage.DATA:
            return self.values[name][-1 if number is None else number]
        return self.values[name]


def send_value(value, pair, x, number):
    """Send the pieces of a value to the processes of another stage."""
    (pieces_to, group, place), x = SENT[value, pair], x.contiguous()
    if RECEIVED.get((value, pair), (None,) * 5)[3]:
        KEPT[value, pair, number] = x
    for peer, pieces in pieces_to:
        elements = torch.cat([piece_of(x, piece) for piece in pieces]).view(torch.uint8)
        PENDING.append((dist.isend(elements, peer, group=group, tag=number * len(VALUES) + place), elements))


def receive_value(value, pair, number):
    """Return a value that another stage sends, as this process holds it."""
    shape, dtype, pieces_from, copied, group, place = RECEIVED[value, pair]
    made = torch.zeros(shape, dtype=dtype)
    for peer, pieces in pieces_from:
        sizes = [stop - start for _, start, stop in pieces]
        elements = made.new_empty(sum(sizes))
        dist.recv(elements.view(torch.uint8), peer, group=group, tag=number * len(VALUES) + place)
        for piece, each in zip(pieces, elements.split(sizes)):
            put(made, piece, each)
    kept = KEPT.pop((value, pair, number)) if copied else None
    for piece, there in copied:
        put(made, there, piece_of(kept, piece))
    return made


def local(arrays):
    """What this process holds of whole arguments by name, for each of its stages."""
    return [
        {
            name: part_of(arrays[COPIES.get(name, name)], *held[RANK]) for name, held in stage.ARGUMENTS.items()
        }
        for stage in STAGES.values()
    ]


def program(held):
    """Run a step, and return the results of each stage of this process by name."""
    runs = {number: Run(stage, each) for (number, stage), each in zip(STAGES.items(), held)}
    for kind, number, microbatch in TASKS[STAGE_RANK]:
        runs[number].run(kind, microbatch)
    for kind in ("first", "update"):
        for run in runs.values():
            run.run(kind)
    for work, _ in PENDING:
        work.wait()
    PENDING.clear()
    return [{name: run.find(value, None) for name, value in run.stage.OUTPUTS.items()} for run in runs.values()]


def advance(held, results):
    """Return the arguments of the next step, with new parameters and states in the places of the old."""
    return [
        each | {name: made[value] for name, value in stage.NEXT.items()}
        for stage, each, made in zip(STAGES.values(), held, results)
    ]


def whole(results):
    """The whole results of all stages by name, on every process."""
    mine = []
    for (number, stage), made in zip(STAGES.items(), results):
        for name, tensor in made.items():
            flat = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            raw = flat.reshape(-1).view(torch.uint8)
            mine.append(((number, name), raw, flat.dtype, flat.shape, stage.RESULTS[name]))
    shards = [None] * dist.get_world_size()
    dist.all_gather_object(shards, mine)
    found = {}
    for process in shards:
        for key, raw, dtype, shape, held in process:
            found.setdefault(key, ([], held))[0].append(raw.view(dtype).reshape(shape))
    return {name: joined(parts, *held) for (_, name), (parts, held) in found.items()}'''
TAIL = """# Every process makes every group, in this order: those of stages, then one for each pair of stages and way.
GROUPS = {{key: dist.new_group(members) for key, members in {groups}.items()}}
MAKERS = {makers}
STAGES = {{number: make() for number, make in MAKERS[STAGE_RANK].items()}}
VALUES = {values!r}
PENDING, KEPT = [], {{}}
# By value and pair of stages: what this process sends to whom, and what it receives from whom.
SENT, RECEIVED = {{}}, {{}}
for stage in STAGES.values():
    for value, (pair, sent) in stage.SENT.items():
        SENT[value, pair] = sent[RANK], GROUPS["send", *pair], VALUES.index(value)
    for value, (pair, dtype, received) in stage.RECEIVED.items():
        group, place = GROUPS["send", *pair], VALUES.index(value)
        RECEIVED[value, pair] = received[RANK][0], dtype, *received[RANK][1:], group, place
"""


def print_torch_stages(plan: StagePlan) -> str:
    """Return the module. Raises InvalidSharding, naming op or value, for what PyTorch cannot express."""
    edges, listed, groups = list_edges(plan.stages), [], dict[tuple[object, ...], list[int]]()
    for number, stage in enumerate(plan.stages):
        text, axes = _write_stage(plan, number, edges)
        listed.append(text)
        for each in (each for own in sorted(axes) for each in stage.program.mesh.groups(own).tolist()):
            members = [stage.devices[device] for device in sorted(each)]
            groups[tuple(members)] = members
    groups |= {("send", edge.source, edge.target): _list_members(plan, edge) for edge in edges}
    ranks = len(plan.tasks)
    head = HEAD.format(**plan.head_fields)
    helpers = [text for mark, text in GIVEN.items() if text != PIECES and any(mark in each for each in listed)]
    own = [[number for number, stage in enumerate(plan.stages) if stage.rank == rank] for rank in range(ranks)]
    makers = ", ".join("{" + ", ".join(f"{n}: make_stage_{n}" for n in numbers) + "}" for numbers in own)
    tail = TAIL.format(
        makers=f"({makers},)",
        values=tuple(dict.fromkeys(edge.value for edge in edges)),
        groups=groups,
    )
    return "\n\n\n".join([head.rstrip(), *helpers, PIECES.rstrip(), PART, JOIN, RUNTIME, *listed, tail])


def _list_members(plan: StagePlan, edge: EdgeTables) -> list[int]:
    """Return the processes of the two stages between which a value goes."""
    return sorted({device for number in (edge.source, edge.target) for device in plan.stages[number].devices})


def _write_stage(plan: StagePlan, number: int, edges: Sequence[EdgeTables]) -> tuple[str, set[Axes]]:
    """Return the text of the function that makes a stage, and the mesh axes of its groups."""
    stage = plan.stages[number]
    program, writer, passes = stage.program, ProgramWriter(stage.program), list_passes(stage)
    bodies = [writer.function(each.kind, each.reads, each.instructions, results=[*each.makes]) for each in passes]
    received = {*stage.received, *stage.received_gradients, *stage.received_sums}
    given = [name for name, _ in program.arguments if name not in received]
    own = {*stage.sent, *stage.sent_gradients, *stage.sent_sums}
    results = {value: output_name(program, value) for value in program.graph.outputs if value not in own}
    follow = {name: program.graph.outputs[place] for place, name in program.graph.state_outputs.items()}
    sums = tuple(name for done in program.instructions if is_accumulation(done) for name in done.results)
    lines = [
        *write_groups(writer.groups, program.mesh),
        "ARGUMENTS = {",
        *(write_argument(program, name).rstrip() for name in given),
        "}",
        "RESULTS = {",
        *(write_result(program, name, value).rstrip() for value, name in results.items()),
        "}",
        f"SUMS = {sums!r}",
        f"DATA = {tuple(name for name in given if name in program.stacked)!r}",
        f"OUTPUTS = {results!r}",
        f"NEXT = {follow!r}",
        "SENT = {",
        *(_write_sent(edge) for edge in edges if edge.source == number),
        "}",
        "RECEIVED = {",
        *(_write_received(program.graph.types[edge.value].dtype, edge) for edge in edges if edge.target == number),
        "}",
        *(line for text in (*writer.functions.texts, *bodies) for line in ("", *text.rstrip().splitlines())),
        "PASSES = {",
        *(_write_pass(stage_pass, program) for stage_pass in passes),
        "}",
        "return SimpleNamespace(**locals())",
    ]
    return f"def make_stage_{number}():\n" + indent("\n".join(lines), "    "), writer.groups


def _write_sent(edge: EdgeTables) -> str:
    ranks = tuple(tuple((peer, tuple(pieces)) for peer, pieces in own.items()) for own in edge.sent)
    return f"    {edge.value!r}: ({(edge.source, edge.target)!r}, {ranks!r}),"


def _write_received(dtype: str, edge: EdgeTables) -> str:
    columns = zip(edge.shapes, edge.received, edge.copied, strict=True)
    ranks = tuple(
        (shape, tuple((peer, tuple(pieces)) for peer, pieces in own.items()), tuple(copied))
        for shape, own, copied in columns
    )
    return f"    {edge.value!r}: ({(edge.source, edge.target)!r}, torch.{dtype_name(dtype)}, {ranks!r}),"


def _write_pass(each: StagePass, program: Program) -> str:
    sent = tuple((value, output_name(program, value)) for value in each.sent)
    listed = ", ".join(repr(names) for names in (each.reads, each.makes, each.dropped, each.received, sent))
    return f"    {each.kind!r}: ({each.kind}, {listed}),"
