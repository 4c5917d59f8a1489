"""Arithmetic with an unknown size: it obeys the laws of numbers, and raises where a known size is needed."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from planner.errors import InvalidGraph, InvalidRule
from planner.ir.binding import bind_rule
from planner.ir.dynamic_dims import DYNAMIC_DIM, sizes_agree
from planner.ir.graph import TensorType

KEPT: list[Callable[[], object]] = [
    lambda: DYNAMIC_DIM * 1,
    lambda: 1 * DYNAMIC_DIM,
    lambda: DYNAMIC_DIM + 0,
    lambda: DYNAMIC_DIM // 1,
    lambda: sum([DYNAMIC_DIM]),
    lambda: math.prod([DYNAMIC_DIM]),
]
ASKED: list[Callable[[], object]] = [
    lambda: DYNAMIC_DIM * 2,
    lambda: 0 * DYNAMIC_DIM,
    lambda: DYNAMIC_DIM + DYNAMIC_DIM,
    lambda: DYNAMIC_DIM - 1,
    lambda: -DYNAMIC_DIM,
    lambda: DYNAMIC_DIM // 2,
    lambda: 8 // DYNAMIC_DIM,
    lambda: DYNAMIC_DIM % 2,
    lambda: 8 % DYNAMIC_DIM,
    lambda: DYNAMIC_DIM < 2,
    lambda: max(2, DYNAMIC_DIM),
    lambda: sorted([3, DYNAMIC_DIM]),
    lambda: int(DYNAMIC_DIM),
    lambda: float(DYNAMIC_DIM),
    lambda: bool(DYNAMIC_DIM),
    lambda: math.prod([4, DYNAMIC_DIM]),
    lambda: np.arange(3) * DYNAMIC_DIM,
    lambda: np.array([DYNAMIC_DIM]),
    lambda: TensorType((DYNAMIC_DIM, 4), "f32").bytes,
]
# rule, operands, results, sizes of the loops
BOUND = [
    (
        "b m k, k n -> b m n",
        [(DYNAMIC_DIM, 4, 8), (8, DYNAMIC_DIM)],
        [(DYNAMIC_DIM, 4, DYNAMIC_DIM)],
        [DYNAMIC_DIM, 4, 8, DYNAMIC_DIM],
    ),
    ("... , ... -> ...", [(DYNAMIC_DIM, 4), (8, 4)], [(DYNAMIC_DIM, 4)], [8, 4]),
    ("... , ... -> ...", [(DYNAMIC_DIM, 4), (1, 4)], [(DYNAMIC_DIM, 4)], [DYNAMIC_DIM, 4]),
    ("b (h d) -> b h d", [(DYNAMIC_DIM, 8)], [(DYNAMIC_DIM, 2, 4)], [DYNAMIC_DIM, 2, 4]),
    ("b (h d) -> b h d", [(4, DYNAMIC_DIM)], [(4, 2, 4)], [4, 2, 4]),
]


@pytest.mark.parametrize("computation", KEPT)
def test_facts_that_hold_for_every_number_hold_for_an_unknown_one(computation: Callable[[], object]) -> None:
    assert computation() is DYNAMIC_DIM


@pytest.mark.parametrize("computation", ASKED)
def test_operations_that_need_a_number_are_refused(computation: Callable[[], object]) -> None:
    with pytest.raises(InvalidGraph, match=r"the size of a dim is unknown \(got \?; wanted a number\)"):
        computation()


def test_an_unknown_size_is_written_as_in_the_dialect() -> None:
    assert (str(DYNAMIC_DIM), f"{DYNAMIC_DIM}x", repr((DYNAMIC_DIM, 4))) == ("?", "?x", "(?, 4)")
    assert str(TensorType((DYNAMIC_DIM, 4), "f32")) == "f32[?,4]"


def test_an_unknown_size_matches_numbers_but_not_a_1_that_broadcasts() -> None:
    assert sizes_agree(DYNAMIC_DIM, DYNAMIC_DIM)
    assert sizes_agree(DYNAMIC_DIM, 8)
    assert sizes_agree(8, DYNAMIC_DIM)
    assert not sizes_agree(DYNAMIC_DIM, 1)
    assert not sizes_agree(4, 8)


@pytest.mark.parametrize(("rule", "operands", "results", "sizes"), BOUND)
def test_a_rule_takes_the_numbers_it_finds(
    rule: str, operands: list[tuple[int, ...]], results: list[tuple[int, ...]], sizes: list[int]
) -> None:
    assert [loop.size for loop in bind_rule(rule, operands, results).loops] == sizes


def test_a_rule_is_not_bound_where_numbers_differ_or_are_missing() -> None:
    with pytest.raises(InvalidRule, match="contradicts"):
        bind_rule("m k -> m", [(DYNAMIC_DIM, 4)], [(1,)])
    with pytest.raises(InvalidRule, match="contradicts"):
        bind_rule("m k, m -> m", [(DYNAMIC_DIM, 4), (3,)], [(5,)])
    with pytest.raises(InvalidGraph, match="the size of a dim is unknown"):
        bind_rule("{p|q} -> p", [(DYNAMIC_DIM,)], [(4,)])
