"""The least communication of a matrix product, compared with everything that small grids of devices could do."""

from __future__ import annotations

import math
from itertools import combinations, product

import pytest

from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.ir.program import OpCall
from planner.judge.analysis import Analysis
from planner.judge.matmul_bounds import (
    ProductOperands,
    find_product,
    measure_products,
    min_elements,
    min_elements_within,
)
from tests.testing.programs import Lines

# m, n, k, devices: few enough multiplications to try every share that a device could take
EVERY_SHARE = [
    (2, 2, 2, 2),
    (2, 2, 2, 4),
    (2, 2, 2, 8),
    (4, 2, 1, 2),
    (3, 2, 2, 2),
    (3, 2, 2, 3),
    (4, 2, 2, 4),
    (6, 2, 1, 3),
]
SIZES = (1, 2, 3, 4, 8, 12, 64)
# m, n, k, devices, the grid that attains the bound
TIGHT = [
    (64, 4, 4, 4, (4, 1, 1)),
    (64, 8, 8, 8, (8, 1, 1)),
    (64, 64, 4, 16, (4, 4, 1)),
    (32, 32, 4, 4, (2, 2, 1)),
    (16, 16, 16, 8, (2, 2, 2)),
    (12, 12, 12, 27, (3, 3, 3)),
]


def accessed_at_least(m: int, n: int, k: int, devices: int) -> int:
    """By every choice of mnk / devices multiplications: the fewest elements of both operands and the result."""
    points = list(product(range(m), range(n), range(k)))
    shares = combinations(points, len(points) // devices)
    return min(
        len({(i, kk) for i, _, kk in share}) + len({(kk, j) for _, j, kk in share}) + len({(i, j) for i, j, _ in share})
        for share in shares
    )


def on_grid(m: int, n: int, k: int, grid: tuple[int, int, int]) -> float:
    """Elements a device sends or receives where the loops are split over a grid: all it uses less what it stores."""
    p, q, r = grid
    used = m * k / (p * r) + k * n / (r * q) + m * n / (p * q)
    return used - (m * k + k * n + m * n) / math.prod(grid)


@pytest.mark.parametrize(("m", "n", "k", "devices"), EVERY_SHARE)
def test_no_share_of_the_multiplications_needs_less(m: int, n: int, k: int, devices: int) -> None:
    owned = (m * k + k * n + m * n) / devices
    assert min_elements(m, n, k, devices=devices) <= accessed_at_least(m, n, k, devices) - owned + 1e-9


def test_no_grid_needs_less() -> None:
    for m, n, k in product(SIZES, repeat=3):
        grids = [(p, q, r) for p, q, r in product((1, 2, 3, 4, 8), repeat=3) if p <= m and q <= n and r <= k]
        assert (1, 1, 1) in grids
        for grid in grids:
            assert min_elements(m, n, k, devices=math.prod(grid)) <= on_grid(m, n, k, grid) * (1 + 1e-12) + 1e-9


@pytest.mark.parametrize(("m", "n", "k", "devices", "grid"), TIGHT)
def test_the_best_grid_attains_the_bound(m: int, n: int, k: int, devices: int, grid: tuple[int, int, int]) -> None:
    assert min_elements(m, n, k, devices=devices) == pytest.approx(on_grid(m, n, k, grid))


def test_the_bound_is_symmetric_in_all_sizes_and_zero_on_one_device() -> None:
    for m, n, k in product(SIZES, repeat=3):
        assert min_elements(m, n, k, devices=1) == 0
        found = [min_elements(*order, 8) for order in ((m, n, k), (k, m, n), (n, k, m))]
        assert found == pytest.approx([found[0]] * 3)


def test_little_memory_needs_more() -> None:
    """A cube of 64 on 8 devices: with room for its share of the cube's sides only."""
    assert min_elements_within(4096, 4096, 4096, devices=8, held=64) > min_elements(4096, 4096, 4096, devices=8)
    assert min_elements_within(64, 64, 64, devices=8, held=1 << 30) == 0


def test_a_matrix_product_of_a_program_is_compared_with_its_bound() -> None:
    """Rows of one operand stay where they are, the other is gathered: each device gets 7/8 of it, f32."""
    p = Lines("8")
    left, right = p.argument((64, 8), (0,), ()), p.move("all_gather", p.argument((8, 8), (0,), ()), (0,), 0)
    program = p.program(p.run("matmul", [left, right], (64, 8), {"m": (0,)}))
    run = next(done for done in program.instructions if isinstance(done, OpCall))
    assert find_product(run.op) == ProductOperands(0, 1, (64, 8, 8))
    (found,) = measure_products(Analysis(program, CostModel(program.mesh, load_profile("h100-sxm"))), 1 << 40)
    assert found.received_bytes == 4 * 56
    assert found.bound_bytes == pytest.approx(4 * 56)
    assert found.ratio == pytest.approx(1)
