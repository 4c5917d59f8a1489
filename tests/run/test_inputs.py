"""Inputs drawn by number: the published sequence, the ranges that ops need; only seed and id decide them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.run.inputs import random_inputs, splitmix64
from tests.testing.graphs import Sketch

# What follows states 0 and 1234567, as the generator's users publish it.
SEQUENCES = {
    0: (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F),
    1234567: (6457827717110365317, 3203168211198807973, 9817491932198370423),
}


@pytest.mark.parametrize("start", SEQUENCES)
def test_the_numbers_are_those_of_splitmix64(start: int) -> None:
    assert splitmix64(np, start, 3).tolist() == list(SEQUENCES[start])


def drawn(seed: int, *, reordered: bool = False) -> dict[str, np.ndarray]:
    s = Sketch("f64")
    inputs = [s.input(300, 40), s.input(300, 40, dtype="bool"), s.input(500, dtype="i32")]
    graph = s.graph(inputs[0])
    return random_inputs(replace(graph, inputs=graph.inputs[::-1]) if reordered else graph, np, "f64", seed=seed)


def test_floats_have_mean_0_and_deviation_a_half_and_flags_are_mostly_true() -> None:
    floats, flags, places = drawn(0).values()
    assert abs(floats.mean()) < 0.02
    assert abs(floats.std() - 0.5) < 0.01
    assert abs(flags.mean() - 7 / 8) < 0.02
    assert set(places.tolist()) == set(range(8))


def test_an_input_depends_on_the_seed_and_its_id_alone() -> None:
    first, again, other = drawn(0), drawn(0, reordered=True), drawn(1)
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
        assert not np.array_equal(array, other[name])
