"""Arguments of solve() that are out of range or do not fit the problem end in one error by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solvers import DualWarmStart, Edge, InvalidProblem, Node, Problem, solve

NAN, INFINITY = float("nan"), float("inf")
OWN = np.arange(2, dtype=np.int32)
TWO = np.array([1, 2])
PROBLEM = Problem(
    [Node("a", TWO, TWO, (0, 2)), Node("b", TWO, TWO, (1, 3))], [Edge(0, 1, OWN, OWN, np.arange(4).reshape(2, 2))], 9
)


def start(multipliers: dict[int, float], messages: int = 4, value: float = 0.0) -> dict[str, Any]:
    return {"start": DualWarmStart(multipliers, np.full(messages, value))}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"time_limit": NAN}, "time_limit of solve: got nan"),
    ({"time_limit": INFINITY}, "time_limit of solve: got inf"),
    ({"time_limit": -1.0}, "time_limit of solve: got -1.0, wanted None or a finite number"),
    ({"gap": NAN}, "gap of solve: got nan"),
    ({"gap": -1.0}, "gap of solve: got -1.0, wanted a number from 0 to 1"),
    ({"gap": 2.0}, "gap of solve: got 2.0"),
    ({"time_limit": "5"}, "time_limit of solve: got 5"),
    ({"gap": None}, "gap of solve: got None"),
    ({"cutoff": NAN}, "cutoff of solve: got nan, wanted None or an integer"),
    ({"cutoff": 1.5}, "cutoff of solve: got 1.5"),
    ({"seed": NAN}, "seed of solve: got nan"),
    ({"processes": 2.0}, "processes of solve: got 2.0"),
    ({"processes": 0}, "processes of solve: got 0, wanted an integer from 1"),
    ({"seed": -1}, "seed of solve: got -1"),
    ({"seed": 1 << 31}, "seed of solve: got 2147483648, wanted an integer from 0 to 2147483647"),
    ({"nearest": -1}, "nearest of solve: got -1"),
    ({"starts": [(0, 0), (0,)]}, "length of assignment: got 1, wanted one strategy for each of 2 nodes"),
    ({"starts": [(0, 0.5)]}, "strategies of assignment: got float64, wanted integers"),
    ({"starts": [(0, NAN)]}, "strategies of assignment: got float64, wanted integers"),
    ({"starts": [(0, 2)]}, "strategy of node 'b': got 2, wanted less than 2"),
    ({"starts": [(-1, 0)]}, "strategy of node 'a': got -1"),
    (start({}, 3), r"messages of start: got \[3\], wanted one for each of the 4 strategies"),
    (start({}, value=NAN), "messages of start: got NaN or infinity"),
    (start({3: 1.0}), "multipliers of start: got time step 3, wanted one from 0 to 2"),
    (start({0: -1.0}), "multipliers of start: got -1.0"),
    (start({0: NAN}), "multipliers of start: got nan"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_a_wrong_argument_is_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidProblem, match=message):
        solve(PROBLEM, **arguments)


ACCEPTED: list[dict[str, Any]] = [
    {"time_limit": 0.0, "starts": [(0, 0)]},
    {"gap": 0.0},
    {"gap": 1.0},
    {"seed": (1 << 31) - 1},
    {"processes": 1},
    {"nearest": 9},
    start({0: 0.5, 2: 3.0}, value=1.5),
]


@pytest.mark.parametrize("arguments", ACCEPTED)
def test_the_ends_of_each_range_are_accepted(arguments: dict[str, Any]) -> None:
    found = solve(PROBLEM, **arguments)
    assert found.cost is not None
    assert found.cost == 2 or arguments.get("gap") == 1.0
