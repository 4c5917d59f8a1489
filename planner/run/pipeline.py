"""Runs all stages of a pipeline in the order of its schedule, and compares them with the graph run whole.

Every stage has logical devices of its own (`planner.run.stage_executor`). What stages send each other is exchanged
between their devices, and counted. Outputs, bytes and peaks are those of all micro-batches and the update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from planner.errors import RunFailed
from planner.ir.accounting import Accounting
from planner.ir.graph import Graph
from planner.ir.program import Program
from planner.ir.rematerialization import drop_all_clones
from planner.ir.sharding import held_bounds
from planner.ops import OPS
from planner.reshard.cross_mesh import PlacedSharding, plan_cross_mesh_transfers
from planner.run.collectives import Reducer
from planner.run.compare import measure_output_error
from planner.run.executor import Progress, run_whole
from planner.run.inputs import random_inputs, random_later_data
from planner.run.memory_check import check_memory
from planner.run.redistribution import PlacedArrays, exchange_cells
from planner.run.stage_executor import Shards, StageExecutor
from planner.run.transport import Communicator
from planner.run.undef import poison_value
from planner.run.validate import rounding_tolerance

Array = Any
PRECISION = "f64"


@dataclass(frozen=True, slots=True)
class RunTask:
    """A pass of a micro-batch through a stage; `kind` is forward, backward or weight."""

    kind: str
    stage: int
    microbatch: int


@dataclass(frozen=True, slots=True)
class StageProgram:
    """A stage to run: its program, its rank and the devices of that, and what it sends up, down and in the update."""

    program: Program
    rank: int
    devices: tuple[int, ...]
    sent: tuple[str, ...]
    sent_gradients: tuple[str, ...]
    received: tuple[str, ...]
    received_gradients: tuple[str, ...]
    sent_sums: tuple[str, ...] = ()
    received_sums: tuple[str, ...] = ()

    def place(self, name: str) -> PlacedSharding:
        return PlacedSharding(self.program.values[name].sharding, self.program.mesh, self.devices)


@dataclass(frozen=True, slots=True)
class StageCounts:
    """What a stage's busiest device received in collectives and held at its peak: counted, and predicted."""

    counted_bytes: int
    predicted_bytes: int
    counted_peak_bytes: int
    predicted_peak_bytes: int

    @property
    def agree(self) -> bool:
        return self.counted_bytes == self.predicted_bytes and self.counted_peak_bytes == self.predicted_peak_bytes


@dataclass(frozen=True, slots=True)
class PipelineVerdict:
    """`verdict` is equal or different: to the graph run whole, and of counted and predicted bytes."""

    verdict: str
    max_relative_error: float
    counted_sent_bytes: int
    predicted_sent_bytes: int
    devices: int
    stages: tuple[StageCounts, ...]


@dataclass
class PipelineRun:
    """A run of all stages.

    `sent`: shards on the way, by value and micro-batch, with the number of the stage that laid them out. What is
    exchanged once in a step is that of micro-batch 0.
    """

    stages: Sequence[StageProgram]
    executors: Sequence[StageExecutor]
    batches: Sequence[Mapping[str, Array]]
    sent: dict[tuple[str, int], tuple[int, Shards]] = field(default_factory=dict)
    sent_bytes: int = 0

    def run(self, tasks: Iterable[RunTask]) -> None:
        for task in tasks:
            self._run_task(task)
        pairs = list(zip(self.stages, self.executors, strict=True))
        done = [executor.run_update_until(stage.sent_sums) for stage, executor in pairs]
        for number, (stage, executor) in enumerate(pairs):
            self.sent |= {(value, 0): (number, executor.shards_of(value)) for value in stage.sent_sums}
        for number, (stage, executor) in enumerate(pairs):
            executor.run_update(done[number], dict(self._receive(number, stage.received_sums, 0)))

    def _run_task(self, task: RunTask) -> None:
        stage, executor, number = self.stages[task.stage], self.executors[task.stage], task.microbatch
        given = dict(self._receive(task.stage, self._wanted(stage, task.kind), number))
        given |= self._load_data(task.stage, task.kind, number)
        executor.run_pass(task.kind, number, given)
        for value in self._list_produced(stage, task.kind):
            self.sent[value, number] = task.stage, executor.shards_of(value, number)

    def _wanted(self, stage: StageProgram, kind: str) -> tuple[str, ...]:
        return {"forward": stage.received, "backward": stage.received_gradients}.get(kind, ())

    def _list_produced(self, stage: StageProgram, kind: str) -> tuple[str, ...]:
        return {"forward": stage.sent, "backward": stage.sent_gradients}.get(kind, ())

    def _load_data(self, number: int, kind: str, microbatch: int) -> dict[str, Shards]:
        """Return the data of a micro-batch that a pass is the first to read."""
        program, data = self.stages[number].program, self.batches[microbatch]
        wanted = self.executors[number].read_first[kind]
        return {name: _cut(program, name, data[name]) for name in wanted if name in data}

    def _receive(self, number: int, values: Iterable[str], microbatch: int) -> Iterator[tuple[str, Shards]]:
        """Yield the shards of values that were sent, exchanged between the devices of two stages."""
        for value in values:
            source, shards = self.sent.pop((value, microbatch))
            sender, receiver = self.stages[source], self.stages[number]
            name = sender.program.outputs[sender.program.graph.outputs.index(value)]
            ends = sender.place(name), receiver.place(value)
            kind = receiver.program.graph.types[value]
            targets, received = _exchange(ends, shards, kind.shape)
            self.sent_bytes += received * kind.itemsize
            yield value, targets


@dataclass
class _WatchedTasks:
    """Tasks in order, that report how many of them have run."""

    tasks: Sequence[RunTask]
    on_progress: Progress
    done: int = 0

    def __iter__(self) -> Iterator[RunTask]:
        for number, task in enumerate(self.tasks):
            self.done = number
            yield task

    def report(self, *_ops: int) -> None:
        self.on_progress(self.done, len(self.tasks))


def validate_stages(
    graph: Graph,
    stages: Sequence[StageProgram],
    tasks: Sequence[RunTask],
    *,
    copies: Mapping[str, str] = MappingProxyType({}),
    seed: int = 0,
    on_progress: Progress | None = None,
) -> PipelineVerdict:
    """Run a pipeline's tasks in order and compare with the graph of the whole step, which has all micro-batches.

    copies       the original of inputs and values that stages have and the graph has not
    on_progress  called with how many tasks have run, of how many, and before each instruction; it may raise

    Raises RunFailed for ops that are known by their rule alone, and for too much memory.
    """
    for stage in stages:
        check_memory(stage.program, np, PRECISION)
    if unknown := sorted({op.op for op in graph.ops} - OPS.keys()):
        raise RunFailed("ops known by their rule alone", got=", ".join(unknown), wanted="ops of the table")
    watched = _WatchedTasks(tasks, on_progress or (lambda _done, _total: None))
    arrays = random_inputs(graph, np, PRECISION, seed=seed, on_input=watched.report)
    arrays |= {copy: arrays[original] for copy, original in copies.items() if original in arrays}
    later = random_later_data(graph, np, PRECISION, seed=seed, on_input=watched.report)
    with np.errstate(all="ignore"):
        whole = run_whole(
            drop_all_clones(graph), arrays, np, precision=PRECISION, later=later, on_progress=watched.report
        )
        whole |= {copy: whole[original] for copy, original in copies.items() if original in whole}
        batches = [{name: arrays[name] for name in graph.data}, *later]
        run = run_tasks(stages, watched, arrays=arrays, batches=batches, on_instruction=watched.report)
        pairs = list(zip(stages, run.executors, strict=True))
        error = max(_largest_error(stage.program, executor, whole) for stage, executor in pairs)
    counts = tuple(_count(stage.program, executor) for stage, executor in pairs)
    predicted = predict_sent_bytes(stages, graph.microbatches)
    is_equal = error <= rounding_tolerance(graph, PRECISION) and run.sent_bytes == predicted
    verdict = "equal" if is_equal and all(each.agree for each in counts) else "different"
    devices = len({device for each in stages for device in each.devices})
    return PipelineVerdict(verdict, error, run.sent_bytes, predicted, devices, counts)


def run_tasks(
    stages: Sequence[StageProgram],
    tasks: Iterable[RunTask],
    *,
    arrays: Mapping[str, Array],
    batches: Sequence[Mapping[str, Array]],
    on_instruction: Callable[[], None] = lambda: None,
) -> PipelineRun:
    """Run all tasks and the update.

    arrays          the inputs of all stages
    batches         the data of each micro-batch
    on_instruction  called before each argument is loaded and each instruction runs; what it raises ends the run
    """
    executors = [
        StageExecutor(each.program, _first_inputs(each.program, arrays), np, PRECISION, on_instruction=on_instruction)
        for each in stages
    ]
    run = PipelineRun(stages, executors, batches)
    run.run(tasks)
    return run


def predict_sent_bytes(stages: Sequence[StageProgram], microbatches: int) -> int:
    """Return the bytes that all stages send each other in a step."""
    passed, once = 0, 0
    other = {value: stage for stage in stages for value in stage.received_sums}
    for number, stage in enumerate(stages):
        passed += sum(_count_sent(stage, stages[number + 1], value) for value in stage.sent)
        passed += sum(_count_sent(stage, stages[number - 1], value) for value in stage.sent_gradients)
        once += sum(_count_sent(stage, other[value], value) for value in stage.sent_sums)
    return passed * microbatches + once


def _count_sent(source: StageProgram, target: StageProgram, value: str) -> int:
    """Return the bytes that all devices of a stage receive of a value of another."""
    name, kind = source.program.outputs[source.program.graph.outputs.index(value)], source.program.graph.types[value]
    done = plan_cross_mesh_transfers(source.place(name), target.place(value), kind.shape)
    return int(done.received.sum()) * kind.itemsize


def _first_inputs(program: Program, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the inputs of a stage; received values are zero until they are received."""
    types = program.graph.types
    return {name: arrays[name] if name in arrays else np.zeros(types[name].shape) for name, _ in program.arguments}


def _count(program: Program, executor: StageExecutor) -> StageCounts:
    account = Accounting(program)
    received = int(executor.received.sum(axis=0).max(initial=0)), int(account.received.sum(axis=0).max(initial=0))
    return StageCounts(*received, int(executor.peak.max()), int(account.live.max()))


def _largest_error(program: Program, executor: StageExecutor, whole: Mapping[str, Array]) -> float:
    errors = [0.0]
    for number, value in enumerate(program.graph.outputs):
        if value not in whole:
            continue  # a part of a gradient, which the updated parameter shows
        shards = executor.shards_of(value)
        errors.append(measure_output_error(program, number, whole[value], shards=list(shards.values()), xp=np))
    return max(errors)


def _cut(program: Program, name: str, whole: Array) -> Shards:
    """Return each device's part of a whole array."""
    bounds = held_bounds(program.values[name].sharding, whole.shape, program.mesh)
    return {device: whole[tuple(slice(*ends) for ends in box)].copy() for device, box in enumerate(bounds.tolist())}


def _exchange(
    ends: tuple[PlacedSharding, PlacedSharding], shards: Shards, shape: tuple[int, ...]
) -> tuple[Shards, int]:
    """Return what the target's devices receive, and how many elements all of them do."""
    source, target = ends
    done = plan_cross_mesh_transfers(source, target, shape)
    dtype = next(iter(shards.values())).dtype
    bounds = held_bounds(target.sharding, shape, target.mesh)
    sizes = (bounds[..., 1] - bounds[..., 0]).tolist()
    targets = {device: np.full(size, poison_value(np, dtype), dtype) for device, size in enumerate(sizes)}
    wire, reducer = Communicator(done.devices), Reducer.of(np, source.sharding.reduction)
    pairs = zip(ends, (shards, targets), strict=True)
    placed = [_number(place, held, done.devices, shape=shape) for place, held in pairs]
    exchange_cells(np, wire, reducer, done=done, held=placed[0], wanted=placed[1])
    return targets, sum(wire.received)


def _number(place: PlacedSharding, shards: Shards, devices: int, *, shape: tuple[int, ...]) -> PlacedArrays:
    arrays: list[Array] = [None] * devices
    for device, array in shards.items():
        arrays[place.devices[device]] = array
    origins = held_bounds(place.sharding, shape, place.mesh)[..., 0]
    return PlacedArrays(arrays, place.scatter_by_number(origins, devices))
