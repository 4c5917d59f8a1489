"""Meshes that so many devices can form, and which of them can do all that another can.

A mesh axis is seen by what it joins: how many devices, or nodes, over each link (`Hardware.crossings`). Mesh B covers
mesh A of the same hardware where every axis of A joins what some axes of B, no axis of B used twice, join together.
Then every plan on A is a plan on B, at no higher cost: B splits along its axes what A splits along one (blocks of
blocks are the blocks of the product, ceil(ceil(d / a) / b) = ceil(d / ab)), moves the same bytes over the same links
flat over those axes, and leaves the axes that A lacks unused. So what is proven of B - a bound, or that no plan fits -
holds for A too. Meshes that cover each other differ in the names of their axes alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product

from planner.choose.hardware import Hardware
from planner.errors import InvalidMesh, InvalidRequest
from planner.ir.mesh import Mesh, MeshAxis

TierCounts = tuple[int, ...]
"""Devices, or nodes, joined over each link of a hardware, innermost first."""
MAX_CANDIDATES = 20_000


@dataclass(frozen=True, slots=True)
class MeshCandidate:
    """Devices of one hardware joined as a mesh, for one of the graphs: both by number."""

    graph: int
    hardware: int
    mesh: Mesh


def enumerate_meshes(devices: int, axes: int, template: Mesh | None = None) -> Iterator[Mesh]:
    """Every mesh of so many devices: of up to `axes` axes of two or more, in every order; or the template's, with its
    unknown sizes filled in."""
    if template is None:
        counts = range(1, axes + 1) if devices > 1 else (1,)
        shapes = (sizes for count in counts for sizes in _factorizations(devices, count, 2 if devices > 1 else 1))
        yield from (Mesh(tuple(MeshAxis(str(i), size) for i, size in enumerate(sizes))) for sizes in shapes)
        return
    known = math.prod(axis.size or 1 for axis in template.axes)
    unknown = sum(axis.size is None for axis in template.axes)
    if devices % known == 0:
        for sizes in _factorizations(devices // known, unknown, 1):
            left = iter(sizes)
            yield replace(template, axes=tuple(a if a.size else replace(a, size=next(left)) for a in template.axes))


def _factorizations(number: int, factors: int, least: int) -> Iterator[tuple[int, ...]]:
    """Every ordered way to write a number as so many factors."""
    if factors == 0:
        yield from [()] if number == 1 else []
        return
    for first in range(least, number + 1):
        if number % first == 0:
            yield from ((first, *rest) for rest in _factorizations(number // first, factors - 1, least))


def enumerate_candidates(
    graphs: int, hardware: int, numbers: Iterable[int], *, axes: int, template: Mesh | None = None
) -> tuple[MeshCandidate, ...]:
    """Every mesh for every graph and hardware. Raises InvalidRequest for more than are ever looked at, before listing
    them."""
    listed = [
        mesh for devices in numbers for mesh in islice(enumerate_meshes(devices, axes, template), MAX_CANDIDATES + 1)
    ]
    if len(listed) * graphs * hardware > MAX_CANDIDATES:
        wanted = f"at most {MAX_CANDIDATES} candidates: fewer numbers of devices, or fewer axes"
        raise InvalidRequest("too many meshes", got=len(listed) * graphs * hardware, wanted=wanted)
    return tuple(MeshCandidate(g, h, mesh) for g in range(graphs) for h in range(hardware) for mesh in listed)


def devices_per_tier(mesh: Mesh, hardware: Hardware) -> tuple[TierCounts, ...]:
    """What every axis joins. Raises InvalidHardware for a link that the hardware lacks."""
    return tuple(tuple(part.fanout for part in axis) for axis in hardware.tier_spans(mesh))


def refines(one: Sequence[TierCounts], other: Sequence[TierCounts]) -> bool:
    """Can the first do all that the other can?"""
    for places in product(range(len(other) + 1), repeat=len(one)):
        together = [[1] * len(axis) for axis in other]
        for axis, place in zip(one, places, strict=True):
            if place < len(other):
                together[place] = [have * more for have, more in zip(together[place], axis, strict=True)]
        if all(tuple(have) == wanted for have, wanted in zip(together, other, strict=True)):
            return True
    return False


def mesh_distance(one: Mesh, other: Mesh) -> float:
    """How far the sizes of two meshes of as many axes are from each other, in doublings."""
    return math.fsum(abs(math.log2(a / b)) for a, b in zip(one.shape, other.shape, strict=True))


def parse_device_counts(text: str) -> tuple[int, ...]:
    """Numbers of devices: `8,16,24`, or `8..512`, which doubles. Raises InvalidMesh."""
    found: set[int] = set()
    for piece in text.split(","):
        ends = re.fullmatch(r"\s*(\d{1,9})\s*(?:\.\.\s*(\d{1,9})\s*)?", piece, re.ASCII)
        low, high = (int(ends[1]), int(ends[2] or ends[1])) if ends else (0, 0)
        if not 1 <= low <= high:
            raise InvalidMesh("numbers of devices", got=text, wanted="such as 8,16,24 or 8..512, which doubles from 8")
        found |= {low << doubled for doubled in range(30) if low << doubled <= high}
    return tuple(sorted(found))
