"""Linear programs that are solved repeatedly: a solver that fails from its last basis starts afresh."""

from __future__ import annotations

import numpy as np
import pytest

from solvers.linear_model import IncrementalLp, LinearModel


class Badly:
    """A program of very different magnitudes, which 0 keeps; it gets more rows."""

    def __init__(self, seed: int) -> None:
        self._random, self.program = np.random.default_rng(seed), LinearModel()
        self._columns, rows = (int(self._random.integers(*ends)) for ends in ((5, 40), (3, 20)))
        cost = self._random.normal(size=self._columns) * 10.0 ** self._random.integers(-3, 6, self._columns)
        self.program.add_columns(cost, 10.0 ** self._random.integers(0, 9))
        self.add(rows)

    def add(self, count: int) -> None:
        upper = np.abs(10.0 ** self._random.integers(-3, 5, count) * self._random.normal(size=count))
        rows = self.program.add_rows(np.full(count, -np.inf), upper)
        at = self._random.integers(0, count * self._columns, 6 * count)
        values = self._random.normal(size=at.size) * 10.0 ** self._random.integers(-5, 5, at.size)
        self.program.add_entries(rows[at // self._columns], at % self._columns, values)


@pytest.mark.parametrize("seed", [3, 270, 395, 795, 1320])
def test_a_solver_that_fails_from_its_last_basis_starts_afresh(seed: int) -> None:
    badly = Badly(seed)
    linear = IncrementalLp(badly.program)
    for _ in range(5):
        vertex, afresh = linear.solve(), IncrementalLp(badly.program).solve()
        assert vertex is not None
        assert afresh is not None
        assert vertex.cost == pytest.approx(afresh.cost, rel=1e-6)
        badly.add(3)


def test_a_branch_is_bounded_without_changing_the_program() -> None:
    program = LinearModel()
    columns = program.add_columns(np.array([1.0, 2.0, 4.0]), 1.0)
    rows = program.add_rows(np.array([1.5]), np.array([1.5]))
    program.add_entries(np.repeat(rows, 3), columns, np.ones(3))
    linear, none = IncrementalLp(program), np.zeros(0, np.int64)
    for _ in range(2):
        assert linear.bound_without(none) == pytest.approx(2.0)
        assert linear.bound_without(columns[:1]) == pytest.approx(4.0)
        assert linear.bound_without(columns[1:2]) == pytest.approx(3.0)
        assert linear.bound_without(columns[1:]) == np.inf
    optimum = linear.solve()
    assert optimum is not None
    assert optimum.cost == pytest.approx(2.0)
