"""Published collectives: held-out rows come from other sources, and the difference between two sources is known."""

from __future__ import annotations

import pytest

from benchmarks import collective_costs
from planner.choose.hardware.fit import Timing
from planner.ir.collectives import Kind


def row(source: str, kind: Kind, local: float, seconds: float) -> collective_costs.Row:
    return collective_costs.Row(source, "h100-sxm", None, True, Timing(kind, (8, 1), local, seconds))


def test_held_out_rows_come_from_sources_that_no_profile_is_fitted_to() -> None:
    fitted, held_out = collective_costs.read(collective_costs.DATA), collective_costs.read(collective_costs.HELD_OUT)
    assert {each.large for each in held_out} == {True, False}
    assert not {each.source for each in held_out} & {each.source for each in fitted}
    assert not {each.timing for each in held_out} & {each.timing for each in fitted}


def test_two_sources_are_compared_where_they_measured_the_same() -> None:
    rows = [
        row("a", Kind.ALL_GATHER, 1e6, 3e-5),
        row("b", Kind.ALL_GATHER, 1e6, 2e-5),
        row("b", Kind.ALL_GATHER, 1e6, 2e-5),
        row("b", Kind.ALL_GATHER, 2e6, 9e-5),
        row("c", Kind.ALL_REDUCE, 1e6, 9e-5),
    ]
    assert [ratio for _, ratio in collective_costs.between(rows)] == pytest.approx([1.5, 1.5])


def test_errors_of_all_reduces_are_told_apart_by_size_and_place() -> None:
    kind, inside, beyond = Kind.ALL_REDUCE, (8, 1), (8, 2)
    measured = [(inside, 1 << 10, 1.1), (inside, 1 << 18, 0.7), (inside, 1 << 18, 0.8), (beyond, 1 << 30, 2.0)]
    ratios = [
        (collective_costs.Row("a", "h100-sxm", None, True, Timing(kind, counts, size, 1e-5)), ratio)
        for counts, size, ratio in measured
    ]
    assert collective_costs.by_size(ratios) == {
        "inside a node": {
            "below 16 KiB": {"rows": 1, "median": 0.1, "ratio": 1.1},
            "from 256 KiB": {"rows": 2, "median": 0.25, "ratio": 0.75},
        },
        "between nodes": {"from 16 MiB": {"rows": 1, "median": 1.0, "ratio": 2.0}},
    }
