"""How two splits of one dim lie over each other, without listing a device.

A dim split over axes (a_1 .. a_k) is cut by the digits of a number in mixed radix: the coordinate on a_1 is the most
significant. Where the sizes of two splits A and B of a dim share one chain of divisors 1 | q_1 | q_2 | ..., both
numbers have the same digits up to the shorter one, and a coordinate that spans several of them is several digits.
Blocks then nest: a block of A and a block of B have a block of the finer split in common if all compared digits
agree, and nothing otherwise. Each digit is a function of one coordinate, so that the devices on which two digits
agree are counted by multiplying sizes: nothing here grows with the devices of the mesh.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from math import prod
from operator import mul
from typing import NamedTuple

from planner.ir.sharding import Axes, Shape, block_size

MAX_CACHED_PAIRS = 1 << 16


class _Digit(NamedTuple):
    """The part of the coordinate on `axis` between two divisors of the axis size."""

    axis: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class SplitPair:
    """A source and a target split of a dim, over so many parts.

    compared    per mesh axis, the product of the target's digits on it that meet a digit of the source
    differing   the mesh axes on which a digit of the target meets another digit
    parts_met   source parts that a target part meets
    is_nested   False where the digits share no chain of divisors: then `compared` and `differing` say nothing
    """

    source_parts: int
    target_parts: int
    compared: tuple[tuple[int, int], ...]
    differing: Axes
    parts_met: int
    is_nested: bool

    def is_exact(self, size: int) -> bool:
        """Whether blocks of a dim of `size` nest: all of them are even, or both splits are the same."""
        even = size % self.source_parts == 0 and size % self.target_parts == 0
        same = self.source_parts == self.target_parts and not self.differing
        return self.is_nested and (even or same)

    def max_parts_met(self, size: int) -> int:
        """The most source parts that a target part meets can be, however the blocks lie."""
        blocks = (block_size(size, parts) for parts in (self.source_parts, self.target_parts))
        held, wanted = (max(block, 1) for block in blocks)
        return min(self.source_parts, block_size(wanted, held) + 1)

    def common_length(self, size: int) -> int:
        """Elements that a block of the source and one of the target have in common, where they meet."""
        return block_size(size, max(self.source_parts, self.target_parts))


@lru_cache(maxsize=MAX_CACHED_PAIRS)
def compare_splits(source: Axes, target: Axes, sizes: Shape) -> SplitPair:
    """Compare two splits of a dim over axes of a mesh of the given sizes."""
    parts, more = (prod(sizes[axis] for axis in axes) for axes in (source, target))
    bounds = [list(accumulate((sizes[axis] for axis in axes), mul, initial=1)) for axes in (source, target)]
    shorter = min(parts, more)
    chain = sorted({bound for each in bounds for bound in each if bound < shorter} | {shorter})
    ends = [next((bound for bound in each if bound >= shorter), shorter) for each in bounds]
    if any(high % low for low, high in pairwise(chain)) or any(end % shorter for end in ends):
        return SplitPair(parts, more, (), (), parts, is_nested=False)
    pairs = list(zip(*(_list_digits(axes, chain, sizes) for axes in (source, target)), strict=True))
    compared: dict[int, int] = {}
    for _, digit in pairs:
        compared[digit.axis] = compared.get(digit.axis, 1) * (digit.high // digit.low)
    differing = tuple(sorted({digit.axis for other, digit in pairs if other != digit}))
    return SplitPair(parts, more, tuple(compared.items()), differing, max(parts // more, 1), is_nested=True)


def _list_digits(axes: Axes, chain: list[int], sizes: Shape) -> Iterator[_Digit]:
    """The digits between the divisors of a chain, most significant first."""
    place, below = 0, 1
    for low, high in pairwise(chain):
        while below * sizes[axes[place]] <= low:
            below *= sizes[axes[place]]
            place += 1
        yield _Digit(axes[place], low // below, high // below)
