"""Limits as text: the meaning of each, and the message for one that does not parse."""

from __future__ import annotations

from fractions import Fraction

import pytest

from planner.errors import InvalidRequest
from planner.judge.check.limits import Threshold, parse_limits

# text, measure, place, amount, whether it is a share of the base
LIMITS = [
    ("time>5%", "time", None, Fraction(1, 20), True),
    ("time > 0.1 %", "time", None, Fraction(1, 1000), True),
    ("time>2.5ms", "time", None, Fraction(2_500_000_000), False),
    ("memory[h.0.mlp]>1GiB", "memory", "h.0.mlp", Fraction(1 << 30), False),
    ("bytes[tp]>0B", "bytes", "tp", Fraction(0), False),
    ("bytes[a,b > c]>10KB", "bytes", "a,b > c", Fraction(10_000), False),
    ("gap>1%", "gap", None, Fraction(10**10), False),
]

# text, character of the fault, words
FAULTS = [
    ("speed>5%", 1, "unknown measure"),
    ("time>5%,,memory>1B", 9, "unknown measure"),
    ("time>5%,", 9, "unknown measure"),
    ("time", 5, "no limit"),
    ("time<5%", 5, "no limit"),
    ("time>5", 7, "a number with %, ps, ns, us, ms, s"),
    ("time>fast", 6, "a number with %"),
    ("time>-5%", 6, "amount"),
    ("time>5GiB", 7, "a number with %, ps"),
    ("memory>5ms", 9, "TiB"),
    ("gap>5ms", 6, "a number with %"),
    ("gap[tp]>1%", 4, "gap without a place"),
    ("time[]>5%", 5, "time[AXIS] or time[SCOPE]"),
    ("time[h.0>5%", 5, "no limit"),
    ("time>5% memory>5%", 9, "commas between"),
    ("time>5%;memory>5%", 8, "commas between"),
]

# limit, base, new, whether it is allowed
RISES = [
    ("time>5%", 100, 105, True),
    ("time>5%", 100, 106, False),
    ("time>5%", 10**30, 105 * 10**28, True),
    ("time>5%", 10**30, 105 * 10**28 + 1, False),
    ("time>5%", 0, 0, True),
    ("bytes>5%", 0, 1, False),
    ("memory>1KiB", 5000, 6024, True),
    ("memory>1KiB", 5000, 6025, False),
    ("memory>0B", 5000, 1, True),
]


@pytest.mark.parametrize(("text", "measure", "place", "amount", "relative"), LIMITS)
def test_a_limit_is_parsed(text: str, measure: str, place: str | None, amount: Fraction, relative: bool) -> None:
    assert parse_limits(text) == (Threshold(measure, place, amount, relative, text),)


def test_limits_are_separated_by_commas_and_repeated_ones_count_once() -> None:
    found = parse_limits(" time>5% , bytes[a,b]>1B,time>5%,gap>1% ")
    assert [limit.text for limit in found] == ["time>5%", "bytes[a,b]>1B", "gap>1%"]
    assert [limit.where for limit in found] == ["time", "bytes[a,b]", "gap"]
    assert parse_limits("  ") == ()


@pytest.mark.parametrize(("text", "character", "words"), FAULTS)
def test_a_fault_is_reported_with_its_place_and_what_is_wanted(text: str, character: int, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_limits(text)
    assert caught.value.where == f"limits, character {character}"
    assert words in str(caught.value)


@pytest.mark.parametrize(("text", "base", "new", "allowed"), RISES)
def test_a_rise_is_compared_exactly(text: str, base: int, new: int, allowed: bool) -> None:
    assert parse_limits(text)[0].allows(base, new) is allowed
