"""Meshes that a number of devices can form, and which of them refine others.

A mesh axis is described by how many devices, or nodes, it joins over each link (`Hardware.tier_spans`). Mesh B refines
mesh A of the same hardware where each axis of A joins what some axes of B join together, and no axis of B is used
twice. Then every plan on A is a plan on B at no higher cost: B splits along its axes what A splits along one (blocks of
blocks are the blocks of the product, ceil(ceil(d / a) / b) = ceil(d / ab)), moves the same bytes over the same links in
one collective over those axes, and leaves the other axes unused. So a bound that is proven on B, or that no plan fits
there, holds on A too. Meshes that refine each other differ only in the names of their axes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, product

from planner.choose.hardware import Hardware
from planner.errors import InvalidMesh, InvalidRequest
from planner.ir.mesh import MAX_DEVICES, Mesh, MeshAxis

TierCounts = tuple[int, ...]
"""Numbers of devices or nodes that an axis joins over each link of the hardware, innermost first."""
MAX_CANDIDATES = 20_000


@dataclass(frozen=True, slots=True)
class MeshCandidate:
    """A mesh for one of the graphs on one of the hardware profiles, both by number; `mesh` is that of each stage."""

    graph: int
    hardware: int
    mesh: Mesh
    stages: int = 1

    @property
    def devices(self) -> int:
        return self.stages * self.mesh.devices

    @property
    def notation(self) -> str:
        return self.mesh.notation if self.stages == 1 else f"{self.stages} x ({self.mesh.notation})"


def enumerate_meshes(devices: int, axes: int, template: Mesh | None = None) -> Iterator[Mesh]:
    """Yield each mesh of `devices` devices: up to `axes` axes of size two or more, in every order of sizes.

    With a template, yield its meshes with unknown sizes filled in instead.
    """
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
    """Yield each ordered factorization of a number into `factors` factors of `least` or more."""
    if factors < 2:
        yield from [(number,) * factors] if number >= least and (factors or number == 1) else []
        return
    for first in _list_divisors(number):
        if first >= least:
            yield from ((first, *rest) for rest in _factorizations(number // first, factors - 1, least))


def count_meshes(devices: int, axes: int, template: Mesh | None = None) -> int:
    """Return how many meshes `enumerate_meshes` yields, without listing them.

    k factors of one or more distribute each prime's exponent e over k places, in C(e + k - 1, k - 1) ways. Those with
    factors of one are taken away by inclusion and exclusion (Hille, A problem in factorisatio numerorum, 1936).
    """
    if template is not None:
        known = math.prod(axis.size or 1 for axis in template.axes)
        unknown = sum(axis.size is None for axis in template.axes)
        return _count_factorizations(devices // known, unknown) if devices % known == 0 else 0
    if devices == 1:
        return 1
    return sum(
        (-1) ** ones * math.comb(count, ones) * _count_factorizations(devices, count - ones)
        for count in range(1, axes + 1)
        for ones in range(count)
    )


def _count_factorizations(number: int, factors: int) -> int:
    if factors == 0:
        return int(number == 1)
    return math.prod(math.comb(exponent + factors - 1, factors - 1) for exponent in _list_exponents(number))


@cache
def _list_exponents(number: int) -> tuple[int, ...]:
    """Return the exponents of the primes in a number."""
    exponents, part = [], 2
    while part * part <= number:
        exponent = 0
        while number % part == 0:
            number, exponent = number // part, exponent + 1
        exponents.append(exponent)
        part += 1
    return *exponents, int(number > 1)


@cache
def _list_divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a number, ascending."""
    small = [part for part in range(1, math.isqrt(number) + 1) if number % part == 0]
    return tuple(sorted({*small, *(number // part for part in small)}))


def enumerate_candidates(
    graphs: int,
    hardware: int,
    numbers: Sequence[int],
    *,
    axes: int,
    template: Mesh | None = None,
    most: int | None = None,
    stages: Sequence[int] = (1,),
) -> tuple[MeshCandidate, ...]:
    """Return each mesh for each graph and hardware, or only the first `most`.

    `stages`: numbers of pipeline stages to consider, which share the devices equally.

    Raises InvalidRequest where there are more than MAX_CANDIDATES, before one is listed.
    """
    parts = [(ranks, devices // ranks) for devices in numbers for ranks in stages if devices % ranks == 0]
    count = graphs * hardware * sum(count_meshes(devices, axes, template) for _, devices in parts)
    if count > MAX_CANDIDATES:
        wanted = f"at most {MAX_CANDIDATES}: fewer numbers of devices, or fewer axes"
        raise InvalidRequest("too many meshes", got=count, wanted=wanted)
    candidates = (
        MeshCandidate(g, h, mesh, ranks)
        for g in range(graphs)
        for h in range(hardware)
        for ranks, devices in parts
        for mesh in enumerate_meshes(devices, axes, template)
    )
    return tuple(islice(candidates, most))


def devices_per_tier(mesh: Mesh, hardware: Hardware) -> tuple[TierCounts, ...]:
    """Return what each axis joins. Raises InvalidHardware for a link that the hardware lacks."""
    return tuple(tuple(part.fanout for part in axis) for axis in hardware.tier_spans(mesh))


def refines(one: Sequence[TierCounts], other: Sequence[TierCounts]) -> bool:
    """Return whether the first mesh refines the other."""
    for places in product(range(len(other) + 1), repeat=len(one)):
        together = [[1] * len(axis) for axis in other]
        for axis, place in zip(one, places, strict=True):
            if place < len(other):
                together[place] = [have * more for have, more in zip(together[place], axis, strict=True)]
        if all(tuple(have) == wanted for have, wanted in zip(together, other, strict=True)):
            return True
    return False


def mesh_distance(one: Mesh, other: Mesh) -> float:
    """Return the distance between the sizes of two meshes with equally many axes, in doublings."""
    return math.fsum(abs(math.log2(a / b)) for a, b in zip(one.shape, other.shape, strict=True))


def parse_device_counts(text: str) -> tuple[int, ...]:
    """Parse numbers of devices, at most MAX_DEVICES: `8,16,24`, or `8..512`, which doubles. Raises InvalidMesh."""
    counts: set[int] = set()
    for piece in text.split(","):
        ends = re.fullmatch(r"\s*(\d{1,9})\s*(?:\.\.\s*(\d{1,9})\s*)?", piece, re.ASCII)
        low, high = (int(ends[1]), int(ends[2] or ends[1])) if ends else (0, 0)
        if not 1 <= low <= high:
            raise InvalidMesh("numbers of devices", got=text, wanted="such as 8,16,24 or 8..512, which doubles from 8")
        if high > MAX_DEVICES:
            raise InvalidMesh("number of devices", got=high, wanted=f"at most {MAX_DEVICES}")
        counts |= {low << doubled for doubled in range(30) if low << doubled <= high}
    return tuple(sorted(counts))
