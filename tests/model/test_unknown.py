"""An unknown size obeys what every number obeys, and stops whatever asks for more."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from planner.errors import InvalidGraph, InvalidRule
from planner.model.binding import bind
from planner.model.graph import TensorType
from planner.model.unknown import UNKNOWN, agree

KEPT: list[Callable[[], object]] = [
    lambda: UNKNOWN * 1,
    lambda: 1 * UNKNOWN,
    lambda: UNKNOWN + 0,
    lambda: UNKNOWN // 1,
    lambda: sum([UNKNOWN]),
    lambda: math.prod([UNKNOWN]),
]
ASKED: list[Callable[[], object]] = [
    lambda: UNKNOWN * 2,
    lambda: 0 * UNKNOWN,
    lambda: UNKNOWN + UNKNOWN,
    lambda: UNKNOWN - 1,
    lambda: -UNKNOWN,
    lambda: UNKNOWN // 2,
    lambda: 8 // UNKNOWN,
    lambda: UNKNOWN % 2,
    lambda: 8 % UNKNOWN,
    lambda: UNKNOWN < 2,
    lambda: max(2, UNKNOWN),
    lambda: sorted([3, UNKNOWN]),
    lambda: int(UNKNOWN),
    lambda: float(UNKNOWN),
    lambda: bool(UNKNOWN),
    lambda: math.prod([4, UNKNOWN]),
    lambda: np.arange(3) * UNKNOWN,
    lambda: np.array([UNKNOWN]),
    lambda: TensorType((UNKNOWN, 4), "f32").bytes,
]
# rule, operands, results, sizes of the loops
BOUND = [
    ("b m k, k n -> b m n", [(UNKNOWN, 4, 8), (8, UNKNOWN)], [(UNKNOWN, 4, UNKNOWN)], [UNKNOWN, 4, 8, UNKNOWN]),
    ("... , ... -> ...", [(UNKNOWN, 4), (8, 4)], [(UNKNOWN, 4)], [8, 4]),
    ("... , ... -> ...", [(UNKNOWN, 4), (1, 4)], [(UNKNOWN, 4)], [UNKNOWN, 4]),
    ("b (h d) -> b h d", [(UNKNOWN, 8)], [(UNKNOWN, 2, 4)], [UNKNOWN, 2, 4]),
    ("b (h d) -> b h d", [(4, UNKNOWN)], [(4, 2, 4)], [4, 2, 4]),
]


@pytest.mark.parametrize("computation", KEPT)
def test_what_holds_for_every_number_holds(computation: Callable[[], object]) -> None:
    assert computation() is UNKNOWN


@pytest.mark.parametrize("computation", ASKED)
def test_what_asks_for_a_number_is_refused(computation: Callable[[], object]) -> None:
    with pytest.raises(InvalidGraph, match=r"the size of a dim is unknown \(got \?; wanted a number\)"):
        computation()


def test_it_is_written_as_the_dialect_writes_it() -> None:
    assert (str(UNKNOWN), f"{UNKNOWN}x", repr((UNKNOWN, 4))) == ("?", "?x", "(?, 4)")
    assert str(TensorType((UNKNOWN, 4), "f32")) == "f32[?,4]"


def test_it_agrees_with_numbers_but_not_with_a_1_which_broadcasts() -> None:
    assert agree(UNKNOWN, UNKNOWN)
    assert agree(UNKNOWN, 8)
    assert agree(8, UNKNOWN)
    assert not agree(UNKNOWN, 1)
    assert not agree(4, 8)


@pytest.mark.parametrize(("rule", "operands", "results", "sizes"), BOUND)
def test_a_rule_takes_the_numbers_it_finds(
    rule: str, operands: list[tuple[int, ...]], results: list[tuple[int, ...]], sizes: list[int]
) -> None:
    assert [loop.size for loop in bind(rule, operands, results).loops] == sizes


def test_a_rule_is_not_bound_where_numbers_differ_or_are_missing() -> None:
    with pytest.raises(InvalidRule, match="contradicts"):
        bind("m k -> m", [(UNKNOWN, 4)], [(1,)])
    with pytest.raises(InvalidRule, match="contradicts"):
        bind("m k, m -> m", [(UNKNOWN, 4), (3,)], [(5,)])
    with pytest.raises(InvalidGraph, match="the size of a dim is unknown"):
        bind("{p|q} -> p", [(UNKNOWN,)], [(4,)])
