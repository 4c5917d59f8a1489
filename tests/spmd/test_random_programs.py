"""Random programs of collectives on random meshes, compared with the element-by-element meaning of each collective."""

from __future__ import annotations

import numpy as np
import pytest

from planner.run.backend import array_module
from tests.testing.random_spmd import check, written
from tests.testing.seeds import seeds

PROGRAMS = seeds(400)
CHUNKS = 8


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_programs_mean_what_every_element_means(chunk: int) -> None:
    """conformance 41 to 57; undefined elements included: read ones are reported, others stay where they are"""
    calls = sum(len(check(seed, np)[0]) for seed in PROGRAMS[chunk::CHUNKS])
    assert calls >= len(PROGRAMS[chunk::CHUNKS]) * 3, "programs too short to say anything"


@pytest.mark.gpu
def test_random_programs_mean_the_same_on_a_gpu() -> None:
    for seed in range(40):
        check(seed, array_module("cupy"))


def test_random_programs_read_undefined_elements_often_enough() -> None:
    assert sum(written(seed)[1] for seed in range(40)) >= 10
