"""Gains from overlap: schedules worked out by hand, and laws that every schedule obeys."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.choose.hardware.interference import Interference
from planner.ir.accounting import count_value_bytes
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.judge.analysis import Analysis
from planner.judge.overlap import (
    Overlap,
    assign_streams,
    bound_overlapped_s,
    find_serial_cutoff_s,
    is_communication,
    least_paid_share,
    most_work_per_second,
    order_by_schedule,
    schedule_overlap,
)
from planner.judge.overlap_schedule import COMPUTE, Schedule, Stream, simulate_schedule
from planner.run.validate import validate
from tests.testing.programs import Lines, mlp_2d
from tests.testing.random_programs import random_program
from tests.testing.sample_programs import training_step
from tests.testing.seeds import seeds

FAR = 1000


def chained() -> Program:
    """Every line reads the one before: nothing overlaps."""
    p = Lines("2")
    value = p.run("exp", [p.argument((8, 8), (0,), ())], (8, 8), {"_1": (0,)})
    return p.program(p.run("exp", [p.move("all_gather", value, (0,), 0)], (8, 8)))


def apart() -> Program:
    """A weight is gathered while an op runs that does not need it."""
    p = Lines("2")
    busy = p.run("exp", [p.argument((8, 8))], (8, 8))
    weight = p.move("all_gather", p.argument((8, 8), (0,), ()), (0,), 0)
    return p.program(p.run("add", [busy, weight], (8, 8)))


def sliced() -> Program:
    """An all_slice is a copy on the device: it takes the stream of the ops."""
    p = Lines("2")
    busy = p.run("exp", [p.argument((8, 8))], (8, 8))
    return p.program(busy, p.move("all_slice", p.argument((8, 8)), (0,), 0))


def reduced() -> Program:
    """A product whose terms are scattered at the end of the program, after an op that has nothing to do with it."""
    p = Lines("2")
    terms = p.run("sum", [p.argument((8, 8), (0,), ())], (8,), {"d0": (0,)}, dims=[0])
    busy = p.run("exp", [p.argument((8, 8))], (8, 8))
    return p.program(busy, p.move("reduce_scatter", terms, (0,), 0))


# program, times, ops by which a collective that grows is issued early, length
WORKED = [
    (chained(), (5, 7, 3), FAR, 15),
    (apart(), (5, 7, 3), FAR, 10),
    (apart(), (5, 7, 3), 1, 10),
    (apart(), (5, 7, 3), 0, 15),
    (apart(), (9, 7, 3), FAR, 12),
    (sliced(), (5, 2), FAR, 7),
    (reduced(), (2, 9, 4), 0, 11),
]


# Shares by which ops and collectives take longer while the others run, times of op, gather and the op after, length.
SLOWED = [
    ((0.0, 0.0), (5, 7, 3), 10),
    ((1.0, 0.0), (8, 4, 3), 13),  # in 4 ps the op does 2 of its 8: 4 + 6 + 3
    ((1.0, 1.0), (4, 4, 3), 11),  # each at half speed
    ((0.25, 0.5), (8, 6, 3), 13),  # in 9 ps 7.2 of the 8 are done, and the gather: 9 + 0.8 + 3, in whole ps
]


@pytest.mark.parametrize(("shares", "times", "length"), SLOWED)
def test_what_runs_at_the_same_time_slows_down(
    shares: tuple[float, float], times: tuple[int, ...], length: int
) -> None:
    own = {COMPUTE: shares[0], "link": shares[1]}
    program = apart()
    made = simulate_schedule(
        program,
        times,
        two_streams(program),
        ahead=FAR,
        slowdown=lambda stream, running: 1 + own[str(stream)] * (len(running) > 1),
    )
    assert made.length_ps == length


def test_no_schedule_is_shorter_than_its_work_at_the_highest_rate_and_none_counts_that_is_longer_than_the_sum() -> None:
    h100 = load_profile("h100-sxm")
    for seed in seeds(40):
        program = random_program(seed)
        draw = random.Random(seed)
        shares = [
            Interference({"compute": {"collective": draw.random()}, "collective": {"compute": 3 * draw.random()}})
        ]
        slowed = replace(h100, overlap=1.0, interference={"nvlink": shares[0]})
        found = Analysis(program, CostModel(program.mesh, slowed))
        overlap = schedule_overlap(found, 1 << 60)
        assert overlap.floor_ps <= overlap.scheduled_ps <= overlap.serial_ps
        assert overlap.serial_ps / most_work_per_second(found.model) <= overlap.scheduled_ps + 1
        paid_ps = least_paid_share(found.model) * overlap.communication_ps
        assert overlap.compute_ps + paid_ps <= overlap.scheduled_ps + 1
        free = schedule_overlap(Analysis(program, CostModel(program.mesh, replace(slowed, interference={}))), 1 << 60)
        assert free.floor_ps <= free.scheduled_ps


# Shares of overlap that count, shares of slow-down, least seconds of ops, step.
CUTOFFS = [
    (share, slower, least_s, step_s)
    for share in (0.0, 0.4, 1.0)
    for slower in (0.0, 0.3, 5.0)
    for least_s in (0.0, 0.8, 1.0)
    for step_s in (1.0, 1.7)
]


@pytest.mark.parametrize(("share", "slower", "least_s", "step_s"), CUTOFFS)
def test_from_a_sum_of_instructions_on_no_step_with_overlap_is_below_one(
    share: float, slower: float, least_s: float, step_s: float
) -> None:
    shares = {"nvlink": Interference({"compute": {"collective": slower}, "collective": {"compute": slower}})}
    model = CostModel(Mesh.parse("8"), replace(load_profile("h100-sxm"), overlap=share, interference=shares))
    serial_s = find_serial_cutoff_s(model, step_s, least_s)
    assert bound_overlapped_s(model, serial_s, least_s) == pytest.approx(step_s)
    if least_s < step_s:
        assert bound_overlapped_s(model, 0.99 * serial_s, least_s) < step_s


def two_streams(program: Program) -> list[Stream]:
    return ["link" if is_communication(done) else COMPUTE for done in program.instructions]


def analysis(program: Program) -> Analysis:
    return Analysis(program, CostModel(program.mesh, load_profile("h100-sxm")))


# conformance 84
@pytest.mark.parametrize(("program", "times", "ahead", "length"), WORKED)
def test_schedules_end_when_worked_out_by_hand(
    program: Program, times: tuple[int, ...], ahead: int, length: int
) -> None:
    assert simulate_schedule(program, times, two_streams(program), ahead=ahead).length_ps == length


# conformance 84
def test_the_2d_mlp_gains_what_its_constant_takes() -> None:
    """All of it is one chain but for the constant, which is made and cut while hidden is reduced."""
    program = mlp_2d()
    times = (10, 20, 5, 1, 1, 1, 20, 5)
    assert simulate_schedule(program, times, two_streams(program), ahead=FAR).length_ps == 63 - 2


# conformance 84
@pytest.mark.parametrize("ahead", [0, 1, 4, FAR])
def test_every_schedule_lies_between_its_bounds_and_keeps_dependences(ahead: int) -> None:
    for seed in seeds(60):
        found = analysis(random_program(seed))
        program, times = found.program, found.times_ps
        made = simulate_schedule(program, times, assign_streams(program, found.model), ahead=ahead)
        busiest = Overlap(found.compute_ps, (found.step_ps - found.compute_ps,), None)
        ended = {name: made.ends[k] for k, done in enumerate(program.instructions) for name in done.results}
        assert made.length_ps <= found.step_ps == busiest.serial_ps
        for place, done in enumerate(program.instructions):
            assert made.ends[place] - made.starts[place] == times[place]
            assert all(ended.get(name, 0) <= made.starts[place] for name in done.operands)


def test_no_two_instructions_of_a_stream_run_at_once_and_ops_keep_their_order() -> None:
    for seed in seeds(60):
        found = analysis(random_program(seed))
        listed = assign_streams(found.program, found.model)
        made = simulate_schedule(found.program, found.times_ps, listed, ahead=2)
        for stream in dict.fromkeys(listed):
            spans = [(made.starts[k], made.ends[k]) for k, each in enumerate(listed) if each == stream]
            ordered = spans if stream == COMPUTE else sorted(spans)
            assert all(before[1] <= after[0] for before, after in pairwise(ordered))


def test_a_serial_schedule_has_the_memory_of_the_program() -> None:
    """In one stream the schedule is the program, so its peak is that of the program's accounts."""
    for seed in seeds(60):
        found = analysis(random_program(seed))
        listed: list[Stream] = [COMPUTE] * len(found.times_ps)
        made = simulate_schedule(found.program, found.times_ps, listed, ahead=0)
        assert (made.length_ps, made.peak_bytes) == (found.step_ps, found.peak_bytes)


def at_every_moment(found: Analysis, made: Schedule) -> int:
    """The peak of a schedule by looking at every instant at which something starts: slow and obvious."""
    program = found.program
    sizes = {name: int(count_value_bytes(program, name)[0]) for name in program.values}
    born = {name: -1 for name, _ in program.arguments}
    dead = dict.fromkeys([*born, *program.outputs], made.length_ps + 1)
    for place, done in enumerate(program.instructions):
        born |= dict.fromkeys(done.results, made.starts[place])
    for name, start in born.items():
        readers = [k for k, done in enumerate(program.instructions) if name in done.operands]
        maker = [made.ends[k] for k, done in enumerate(program.instructions) if name in done.results]
        dead.setdefault(name, max([*(made.ends[k] for k in readers), *maker, start]))
    return max(
        sum(size for name, size in sizes.items() if born[name] <= moment < dead[name]) for moment in {-1, *made.starts}
    )


def test_the_peak_is_that_counted_at_every_moment() -> None:
    """On the first device of programs in which every instruction takes some time."""
    for seed in seeds(40):
        found = analysis(random_program(seed))
        made = simulate_schedule(
            found.program, [time + 1 for time in found.times_ps], assign_streams(found.program, found.model), ahead=3
        )
        assert made.peak_bytes >= at_every_moment(found, made)


def test_the_schedule_that_counts_fits_the_limit() -> None:
    for seed in seeds(60):
        found = analysis(random_program(seed))
        free, tight = schedule_overlap(found, 1 << 60), schedule_overlap(found, found.peak_bytes)
        assert free.floor_ps <= free.scheduled_ps <= tight.scheduled_ps <= tight.serial_ps == found.step_ps
        assert tight.schedule is None or tight.schedule.peak_bytes <= found.peak_bytes


def test_a_program_in_the_schedules_order_issues_collectives_early_and_computes_the_same() -> None:
    """Weights are gathered while the ops of the layer before run; without overlap nothing is reordered."""
    program = training_step("gpt2", "f32", "dp=4,tp=2")
    profile = replace(load_profile("h100-sxm"), overlap=1.0)
    analysis = Analysis(program, CostModel(program.mesh, profile))
    ordered = order_by_schedule(analysis, analysis.peak_bytes * 4)
    assert ordered.instructions != program.instructions
    assert sorted(map(str, ordered.instructions)) == sorted(map(str, program.instructions))
    place = {done.results: number for number, done in enumerate(program.instructions)}
    moved = [done for number, done in enumerate(ordered.instructions) if number < place[done.results]]
    assert any(is_communication(done) for done in moved)
    verdict = validate(ordered, shrinking="none")
    assert (verdict.verdict, verdict.counted_bytes) == ("equal", verdict.predicted_bytes)
    alone = Analysis(program, CostModel(program.mesh, replace(profile, overlap=0.0)))
    assert order_by_schedule(alone, analysis.peak_bytes * 4) is program
