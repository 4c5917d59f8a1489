"""Random numbers depend on seed and position alone."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from planner.errors import InvalidGraph
from planner.ir.graph import TensorType
from planner.ops import OPS, OpContext, OpSignature, Span
from planner.ops.random_numbers import draw_mask, draw_words, threefry

# key, counter, words: tests/kat_vectors of Random123, threefry2x32 with 20 rounds
KNOWN = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]
SHAPES = [(12,), (5, 7), (4, 3, 6), (1 << 20, 1 << 20), (3, 1 << 33)]
REFUSED = [-0.1, 1.5]
COUNT = 40_000
MOMENTS: dict[str, list[float]] = {"uniform": [1 / 2, 1 / 3, 1 / 4, 1 / 5], "normal": [0, 1, 0, 3]}


def context(seed: int, **attrs: object) -> OpContext:
    return OpContext(np, {"seed": seed, **attrs}, {}, (), ())


@pytest.mark.parametrize(("key", "counter", "words"), KNOWN)
def test_random_words_equal_those_of_random123(
    key: tuple[int, int], counter: tuple[int, int], words: tuple[int, int]
) -> None:
    first_key, second_key, high, low = (np.array([word], np.uint32) for word in (*key, *counter))
    assert tuple(int(word[0]) for word in threefry((first_key, second_key), high, low)) == words


@pytest.mark.parametrize("shape", SHAPES)
def test_a_block_draws_the_same_numbers_as_that_part_of_the_whole(shape: tuple[int, ...]) -> None:
    near = [Span(max(0, size // 2 - 4), size // 2 + 3, size) for size in shape]
    whole = draw_words(context(9), near, 0)
    cuts = [[Span(s.start, s.start + 2, s.size), Span(s.start + 2, s.stop, s.size)] for s in near]
    for part in product(*cuts):
        place = tuple(slice(each.start - s.start, each.stop - s.start) for each, s in zip(part, near, strict=True))
        for one, other in zip(draw_words(context(9), part, 0), whole, strict=True):
            assert (one == other[place]).all()


def test_seeds_streams_and_positions_draw_different_words() -> None:
    span = [Span(0, 1000, 1000)]
    drawn = [draw_words(context(seed), span, stream)[0] for seed in (0, 1, 1 << 40) for stream in (0, 1)]
    assert len(np.unique(np.concatenate(drawn))) > 5990  # of 6000 words of 32 bits


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9])
def test_a_mask_drops_as_many_as_its_probability_says(p: float) -> None:
    dropped = 1 - draw_mask(context(4), [Span(0, COUNT, COUNT)], p).mean()
    assert abs(dropped - p) <= 5 * (p * (1 - p) / COUNT) ** 0.5


@pytest.mark.parametrize("distribution", MOMENTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_draws_have_the_moments_of_their_distribution(distribution: str, dtype: str) -> None:
    local = OpContext(
        np, {"seed": 1, "distribution": distribution}, {"d0": Span(0, COUNT, COUNT)}, ((COUNT,),), (np.dtype(dtype),)
    )
    drawn = OPS["random"].compute(local).astype(np.float64)
    for power, wanted in enumerate(MOMENTS[distribution], 1):
        assert abs((drawn**power).mean() - wanted) <= 5 * (drawn**power).std() / COUNT**0.5
    assert np.isfinite(drawn).all()
    assert distribution == "normal" or (drawn.min() >= 0 and drawn.max() < 1)


@pytest.mark.parametrize("p", REFUSED)
def test_an_invalid_probability_is_refused(p: float) -> None:
    kind = TensorType((4,), "f32")
    with pytest.raises(InvalidGraph, match="wanted 0 to 1"):
        OPS["dropout"].notation(OpSignature((kind,), (kind,), {"p": p}))
