"""Laws of the passes on random programs: the same results, no higher cost, and termination.

Every program is run on all its devices; the counted bytes must equal the predicted ones. Prices are those of profiles,
one of them without launches and latencies, so that bytes and flops decide; and one price that takes every rewrite.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache, partial
from time import process_time

import pytest

from planner.choose.cost import CostModel
from planner.choose.hardware import Hardware, load_profile
from planner.choose.hardware.network import Link
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.judge.analysis import Analysis, price_instruction
from planner.rewrite.optimize import PASSES, Price, optimize, zero_price
from planner.run.validate import validate
from tests.testing.programs import Lines
from tests.testing.random_programs import random_program
from tests.testing.seeds import seeds

ALONE, TOGETHER, FREE = seeds(300), seeds(160, 300), seeds(40, 900)
# Of these it is known that every pass finds work in them.
VARIED = range(300)
GROUPS = 5
PROFILES = ["h100-sxm", "cpu", "without launches"]
SECONDS_PER_OP = 2e-3


@cache
def hardware(name: str) -> Hardware:
    if name in PROFILES[:2]:
        return load_profile(name)
    known = load_profile("cpu")
    links = {key: Link(0.0, link.bandwidth) for key, link in known.links.items()}
    return replace(known, launch_s=0.0, links=links)


def model(program: Program, seed: int) -> CostModel:
    return CostModel(program.mesh, hardware(PROFILES[seed % len(PROFILES)]))


def is_right(program: Program) -> bool:
    """Results equal the graph's; bytes and peaks counted are those predicted, on every device."""
    return validate(program, shrinking="none").verdict == "equal"


def check(program: Program, seed: int, price: Price, alone: bool) -> None:
    """All passes together, and each alone; every program that they make is run once."""
    costs = model(program, seed)
    known, before = {program.instructions}, Analysis(program, costs).step_ps
    for improve in (*(PASSES if alone else ()), optimize):
        after, name = improve(program, price), f"seed {seed}, {improve.__name__}"
        if after.instructions not in known:
            assert is_right(after), name
            known.add(after.instructions)
        assert price is zero_price or Analysis(after, costs).step_ps <= before, name
        assert improve is not optimize or optimize(after, price) is after, f"{name}: no fixed point"


# conformance 83
@pytest.mark.parametrize("group", range(GROUPS))
def test_each_pass_keeps_the_result_and_never_raises_the_cost(group: int) -> None:
    for seed in ALONE[group::GROUPS]:
        program = random_program(seed)
        check(program, seed, partial(price_instruction, model(program, seed)), alone=True)


@pytest.mark.parametrize("group", range(GROUPS))
def test_all_passes_keep_the_result_and_never_raise_the_cost(group: int) -> None:
    for seed in TOGETHER[group::GROUPS]:
        program = random_program(seed)
        check(program, seed, partial(price_instruction, model(program, seed)), alone=False)


@pytest.mark.parametrize("group", range(GROUPS))
def test_passes_that_take_every_rewrite_are_right_too(group: int) -> None:
    for seed in FREE[group::GROUPS]:
        check(random_program(seed), seed, zero_price, alone=True)


def test_every_pass_finds_work_in_random_programs() -> None:
    found = Counter[str]()
    for seed in VARIED:
        program = random_program(seed)
        price = partial(price_instruction, model(program, seed))
        found.update(improve.__name__ for improve in PASSES if improve(program, price) is not program)
    assert all(found[improve.__name__] >= 10 for improve in PASSES), found


def chain(ops: int) -> Program:
    """Sums of matrix products, each brought whole and cut again."""
    p = Lines("2x2")
    value = p.argument((8, 8), (0,), (1,))
    weight = p.argument((8, 8), (1,), ())
    for _ in range(ops // 4):
        one, other = (p.run("matmul", [value, weight], (8, 8), {"m": (0,), "k": (1,)}) for _ in range(2))
        made = p.run("add", [p.move("all_reduce", v, (1,)) for v in (one, other)], (8, 8), {"_1": (0,)})
        value = p.move("all_slice", p.run("relu", [made], (8, 8), {"_1": (0,)}), (1,), 1)
    return p.program(value)


def seconds(ops: int, price: Price) -> float:
    program = chain(ops)
    start = process_time()
    optimize(program, price)
    return process_time() - start


@pytest.mark.slow
def test_time_grows_with_the_ops_and_not_with_their_square() -> None:
    price = partial(price_instruction, CostModel(Mesh.parse("2x2"), load_profile("h100-sxm")))
    seconds(40, price)
    small, large = seconds(200, price), seconds(1600, price)
    assert large <= 8 * 3 * small, f"{small:.3f} s for 200 ops, {large:.3f} s for 1,600"
    assert large <= 1600 * SECONDS_PER_OP
