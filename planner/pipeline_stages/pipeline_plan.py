"""The plan of a pipeline: a plan for each stage, the schedule in time, and what is proven of the whole."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from planner.choose.cost import PICO, CostModel
from planner.choose.hardware import Hardware
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.ir.sharding import Sharding
from planner.judge.analysis import Analysis
from planner.judge.analyzed_plan import AnalyzedPlan
from planner.judge.mfu import model_flops, utilisation
from planner.pipeline_stages.cuts import Tie
from planner.pipeline_stages.schedules import PipelineSchedule
from planner.pipeline_stages.simulate import StageTimes, SumExchange, Timeline, simulate
from planner.pipeline_stages.stage_graph import StageGraph
from planner.planning.plan_types import Plan, Request
from planner.reshard.cross_mesh import PlacedSharding
from planner.reshard.cross_mesh_cost import CrossMeshReshard
from planner.run.pipeline import PipelineVerdict


@dataclass(frozen=True)
class PlannedStage:
    """A stage with its plan; the plan's graph is that of all micro-batches and the update."""

    stage: StageGraph
    plan: Plan

    @property
    def analysis(self) -> Analysis:
        assert self.plan.analysis is not None, "stages of a plan are feasible"
        return self.plan.analysis

    def sum_passes(self, times: Sequence[int]) -> StageTimes:
        """Return the times of the passes of one micro-batch and of the update, without sends, from those of the
        instructions in ps."""
        program = self.analysis.program
        forward, backward = program.pass_ends
        count = program.graph.microbatches
        parts = (times[:forward], times[forward:backward], times[backward : program.loop_end])
        passes = [sum(part) // count for part in parts]
        return StageTimes(passes[0], passes[1], passes[2], sum(times[program.loop_end :]))

    def sum_exchanged(self, times: Sequence[int]) -> tuple[int, int]:
        """Return what the update takes until it has computed all that is exchanged, and from where it reads what
        arrives, from the times of the instructions in ps."""
        program = self.analysis.program
        sent = {program.outputs[program.graph.outputs.index(value)] for value in self.stage.sent_sums}
        listed = list(enumerate(program.instructions))
        ready = max((place + 1 for place, done in listed if not sent.isdisjoint(done.results)), default=0)
        arrived = set(self.stage.received_sums)
        needed = min((place for place, done in listed if not arrived.isdisjoint(done.operands)), default=len(listed))
        return sum(times[program.loop_end : ready]), sum(times[needed:])

    def received_as(self, value: str) -> Sharding:
        """Return the layout in which a value is received."""
        return dict(self.analysis.program.arguments)[value]

    def sent_as(self, value: str) -> Sharding:
        """Return the layout in which a value is sent."""
        program = self.analysis.program
        return program.values[program.outputs[program.graph.outputs.index(value)]].sharding


@dataclass(frozen=True)
class Send:
    """A value that stage `source` sends to stage `target`: to a neighbour in every micro-batch, or once in a step.

    The second are gradients of tied parameters. `reshard` may be that of two other ranks that are placed alike.
    """

    value: str
    source: int
    target: int
    reshard: CrossMeshReshard

    @property
    def received_bytes(self) -> int:
        """What all devices of the target receive each time."""
        return int(self.reshard.received.sum())


@dataclass(frozen=True)
class PipelineCertificate:
    """What is proven of a pipeline: with the request's schedules and numbers of stages, no step is below `bound_s`.

    For a request that leaves the number of stages open, this is about steps times stages: `bound_s` is that of a step
    with as many stages as the plan has.
    """

    status: str
    objective_s: float | None
    bound_s: float
    gap: float | None
    wall_s: float
    reason: str


@dataclass(frozen=True)
class PipelinePlan:
    """A training step in stages. An infeasible one has no stages and no schedule."""

    graph: Graph
    model: CostModel
    request: Request
    certificate: PipelineCertificate
    schedule: PipelineSchedule | None
    stages: tuple[PlannedStage, ...]
    ties: tuple[Tie, ...] = ()
    verdict: PipelineVerdict | None = None

    @property
    def devices(self) -> int:
        return sum(mesh.devices for mesh in self.meshes)

    @property
    def meshes(self) -> tuple[Mesh, ...]:
        """The mesh of each rank."""
        return list_meshes(self.stages, self.schedule.ranks) if self.schedule else ()

    @cached_property
    def sends(self) -> tuple[Send, ...]:
        return list_sends(self.stages, self.schedule.ranks) if self.schedule else ()

    @cached_property
    def exchanges(self) -> tuple[Send, ...]:
        """What the stages of tied parameters send each other once in a step."""
        return list_exchanges(self.stages, self.schedule.ranks) if self.schedule else ()

    @property
    def sent_bytes(self) -> int:
        """What all devices receive of other stages in a step."""
        count = self.schedule.microbatches if self.schedule else 0
        return count * sum(s.received_bytes for s in self.sends) + sum(s.received_bytes for s in self.exchanges)

    @cached_property
    def timeline(self) -> Timeline:
        assert self.schedule is not None, "an infeasible plan has no timeline"
        return simulate_stages(self.schedule, self.stages, sends=self.sends, exchanges=self.exchanges)

    @property
    def programs(self) -> list[tuple[StageGraph, Program]]:
        """Each stage's graph and program."""
        return [(one.stage, one.analysis.program) for one in self.stages]

    @cached_property
    def analyzed(self) -> AnalyzedPlan:
        """The stages as they are compared with another plan."""
        assert self.schedule is not None, "an infeasible plan has no figures"
        parts = tuple(one.analysis for one in self.stages)
        return AnalyzedPlan(parts, self.timeline.step_ps, self.schedule.ranks, self.graph.outputs)

    @property
    def step_s(self) -> float:
        return self.timeline.step_ps * PICO

    @property
    def mfu(self) -> float:
        """The share of all devices' peak rate that the model itself uses (`planner.judge.mfu`)."""
        assert self.schedule is not None
        flops = {dtype: count * self.schedule.microbatches for dtype, count in model_flops(self.graph).items()}
        return utilisation(flops, self.model.hardware, self.devices, step_s=self.step_s)

    def peak_bytes(self, rank: int) -> int:
        """Return the most bytes that a device of a rank holds; several stages of a rank count as if at once."""
        assert self.schedule is not None
        return sum(one.analysis.peak_bytes for one in self.stages[rank :: self.schedule.ranks])


def simulate_stages(
    schedule: PipelineSchedule,
    stages: Sequence[PlannedStage],
    *,
    times: Sequence[Sequence[int]] | None = None,
    slower_sends: float = 1.0,
    sends: Sequence[Send] | None = None,
    exchanges: Sequence[Send] | None = None,
) -> Timeline:
    """Return when each task of planned stages runs, with the sends between them.

    times         of the instructions of each stage in ps; None: as predicted
    slower_sends  how many times as long as predicted a send takes
    sends         those of `list_sends`, where they are known; `exchanges` alike
    """
    times = times or [stage.analysis.times_ps for stage in stages]
    sends = list_sends(stages, schedule.ranks) if sends is None else sends
    exchanges = list_exchanges(stages, schedule.ranks) if exchanges is None else exchanges
    sent: dict[tuple[int, int], int] = defaultdict(int)
    for each in sends:
        sent[each.source, each.target] += round(each.reshard.time_ps * slower_sends)
    passes = [
        replace(
            stage.sum_passes(own),
            send_forward_ps=sent.get((number, number + 1), 0),
            send_backward_ps=sent.get((number, number - 1), 0),
        )
        for number, (stage, own) in enumerate(zip(stages, times, strict=True))
    ]
    ends = [stage.sum_exchanged(own) for stage, own in zip(stages, times, strict=True)]
    sums = [
        SumExchange(
            each.source,
            each.target,
            ends[each.source][0],
            round(each.reshard.time_ps * slower_sends),
            ends[each.target][1],
        )
        for each in exchanges
    ]
    return simulate(schedule, passes, sums)


def list_sends(stages: Sequence[PlannedStage], ranks: int, *, among: Container[int] | None = None) -> tuple[Send, ...]:
    """Return what neighbouring stages send: values up, gradients down; `among`: only from or to these stages."""
    listed = [(value, (number, number + 1)) for number, one in enumerate(stages) for value in one.stage.sent]
    listed += [(value, (number, number - 1)) for number, one in enumerate(stages) for value in one.stage.sent_gradients]
    wanted = [(value, ends) for value, ends in listed if among is None or any(end in among for end in ends)]
    table = _SendTable(stages, list_meshes(stages, ranks))
    return tuple(table.make_send(value, ends) for value, ends in wanted)


def list_exchanges(stages: Sequence[PlannedStage], ranks: int) -> tuple[Send, ...]:
    """Return what stages that hold copies of a parameter send each other once in a step."""
    target = {value: number for number, one in enumerate(stages) for value in one.stage.received_sums}
    table = _SendTable(stages, list_meshes(stages, ranks))
    return tuple(
        table.make_send(value, (number, target[value]))
        for number, one in enumerate(stages)
        for value in one.stage.sent_sums
    )


def join_cuts(stages: Sequence[PlannedStage]) -> tuple[int, ...]:
    """Return where stages that follow each other begin and end."""
    return 0, *(one.stage.last for one in stages)


def list_meshes(stages: Sequence[PlannedStage], ranks: int) -> tuple[Mesh, ...]:
    """Return the mesh of each rank, which is that of its stages."""
    return tuple(one.plan.model.mesh for one in stages[:ranks])


@dataclass(frozen=True)
class _SendTable:
    """Sends between stages, with one reshard for all of equal types and layouts between ranks that are placed alike.

    meshes  of the ranks
    """

    stages: Sequence[PlannedStage]
    meshes: Sequence[Mesh]
    known: dict[object, CrossMeshReshard] = field(default_factory=dict)

    @property
    def hardware(self) -> Hardware:
        return self.stages[0].plan.model.hardware

    def make_send(self, value: str, ends: tuple[int, int]) -> Send:
        """Return the send of a value from one stage to another."""
        source, target = (self.stages[number] for number in ends)
        kind, layouts = source.stage.graph.types[value], (source.sent_as(value), target.received_as(value))
        placed = self._place_alike([end % len(self.meshes) for end in ends])
        key = kind, layouts, placed
        if key not in self.known:
            source_place, target_place = (
                PlacedSharding(layout, mesh, tuple(range(first, first + mesh.devices)))
                for layout, (mesh, first) in zip(layouts, placed, strict=True)
            )
            self.known[key] = CrossMeshReshard(source_place, target_place, kind, self.hardware)
        return Send(value, *ends, self.known[key])

    def _place_alike(self, ranks: Sequence[int]) -> tuple[tuple[Mesh, int], ...]:
        """Return the meshes of two ranks, each with its first device where the network joins them as it does theirs."""
        first = [count_devices_before(self.meshes, rank) for rank in ranks]
        period = math.lcm(*(tier.devices for tier in self.hardware.tiers if tier.devices))
        before = min(first) // period * period
        return tuple((self.meshes[rank], number - before) for rank, number in zip(ranks, first, strict=True))


def number_devices(meshes: Sequence[Mesh], rank: int) -> tuple[int, ...]:
    """Return the numbers of a rank's devices: ranks follow each other, each in the order of its mesh."""
    first = count_devices_before(meshes, rank)
    return tuple(range(first, first + meshes[rank].devices))


def count_devices_before(meshes: Sequence[Mesh], rank: int) -> int:
    """Return the number of devices of the ranks before one."""
    return sum(mesh.devices for mesh in meshes[:rank])
