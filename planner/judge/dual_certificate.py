"""The check of a dual certificate: one pass in integers over a choice problem proves a lower bound of its cost.

This module trusts nothing that it is given and shares no code with the solver: it needs numpy and the standard library
only. A certificate has

* a price p_t >= 0 of a byte at some time steps, which replaces the memory limit: an assignment within the limit costs
  at least its cost + sum_t p_t (bytes in use at t - limit);
* a potential per class at either end of each edge, which is added to the cost of each strategy of the class at that end
  and subtracted from the edge's pairs, and so leaves the cost of every assignment as it is.

Whatever the prices and potentials are, the least cost left at each node and at each edge, added up, is a lower bound of
every assignment that fits: bad numbers prove little, and none can prove too much. All numbers are integers, `scale` to
a cost unit; a price is an integer over 2**shift. Priced usage is rounded down and the limit's term up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
ChoiceArrays = Any
"""The flat arrays of a choice problem: integer arrays with the names in FIELDS, and the number of `time_steps`."""

FIELDS = (
    "node_start", "cost", "span_node", "span_start", "span_stop", "span_at", "span_usage",
    "source", "target", "source_start", "target_start", "source_class", "target_class", "height", "width",
    "kind_start", "pair_kind", "pair_start", "pair_cost",
    "edge_usage_edge", "edge_usage_start", "edge_usage_stop", "edge_usage_pair_start", "pair_usage",
)  # fmt: skip
# A cost of this or more forbids a strategy or a pair.
FORBIDDEN = 10**16
# No sum of scaled costs, priced usages and potentials may reach this; what is forbidden is set to it.
UNREACHED = 1 << 62
# Larger scaled costs are cut down to this, which only lowers the bound.
MAX_SCALED = 1 << 59
MAX_SHIFT = 60


class CertificateRefused(ValueError):
    """A certificate that does not fit its problem. The message says what is wrong."""


@dataclass(frozen=True, slots=True, eq=False)
class DualCertificate:
    """scale: units to a cost unit. prices: by time step, in units per byte over 2**shift. potentials: for each edge
    those of the classes at its source, then those at its target."""

    scale: int
    shift: int
    prices: Mapping[int, int]
    potentials: Integers


def digest_problem(arrays: ChoiceArrays, limit: int | None) -> str:
    """Return the SHA-256 of everything that defines a choice problem."""
    digest = hashlib.sha256(f"limit {limit};time_steps {arrays.time_steps}".encode())
    for name in FIELDS:
        values = np.ascontiguousarray(getattr(arrays, name), dtype="<i8")
        digest.update(f";{name} {values.size}:".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def compute_bound(
    arrays: ChoiceArrays, limit: int | None, certificate: DualCertificate, *, poll: Callable[[], None] = lambda: None
) -> int:
    """Return the lower bound, in cost units, that a certificate proves for every assignment within the limit.

    Costs are at least 0, and so is the bound. `poll` is called now and then, and may raise to end the check. Raises
    CertificateRefused where the certificate does not fit the problem.
    """
    _check(arrays, limit, certificate)
    prices = np.zeros(arrays.time_steps + 1, np.int64)
    for time_step, price in certificate.prices.items():
        prices[time_step + 1] = price
    prefix = np.cumsum(prices)
    total = _sum_nodes(arrays, certificate, prefix) + sum(_list_edge_minima(arrays, certificate, prefix, poll=poll))
    total -= -((-sum(certificate.prices.values()) * (limit or 0)) >> certificate.shift)
    return max(-(-total // certificate.scale), 0)


def _check(arrays: ChoiceArrays, limit: int | None, certificate: DualCertificate) -> None:
    """Raise CertificateRefused unless every number is in range and no sum can overflow."""
    potentials, count = certificate.potentials, int((arrays.height + arrays.width).sum())
    if not 1 <= certificate.scale <= MAX_SCALED:
        raise CertificateRefused(f"scale: got {certificate.scale}, wanted 1 to {MAX_SCALED}")
    if not 0 <= certificate.shift <= MAX_SHIFT:
        raise CertificateRefused(f"shift: got {certificate.shift}, wanted 0 to {MAX_SHIFT}")
    if potentials.shape != (count,) or potentials.dtype != np.int64:
        raise CertificateRefused(f"potentials: got {potentials.size}, wanted {count}, one per class at an edge's end")
    if certificate.prices and limit is None:
        raise CertificateRefused("prices: got some, wanted none, as there is no limit")
    for time_step, price in certificate.prices.items():
        if not 0 <= time_step < arrays.time_steps:
            raise CertificateRefused(f"prices: got time step {time_step}, wanted 0 to {arrays.time_steps - 1}")
        if price < 0:
            raise CertificateRefused(f"prices: got {price} at time step {time_step}, wanted 0 or more")
    if _bound_sums(arrays, certificate) >= UNREACHED:
        raise CertificateRefused("numbers: too large to be added in 64 bits")


def _bound_sums(arrays: ChoiceArrays, certificate: DualCertificate) -> int:
    """Return what no sum of the check exceeds, in Python integers, which cannot overflow."""
    usage = max(int(arrays.span_usage.max(initial=0)), int(arrays.pair_usage.max(initial=0)))
    parts = max(_most(arrays.span_node), _most(arrays.edge_usage_edge))
    degree = _most(np.concatenate([arrays.source, arrays.target]))
    low, high = int(certificate.potentials.min(initial=0)), int(certificate.potentials.max(initial=0))
    prices = sum(certificate.prices.values())
    # Prices are added up alone; products are formed before they are shifted, and sums of several parts after it.
    priced = max(prices, prices * usage, parts * (prices * usage >> certificate.shift))
    return MAX_SCALED + priced + (degree + 2) * max(-low, high)


def _most(indices: Integers) -> int:
    """Return how often the most frequent index occurs."""
    return int(np.bincount(indices).max(initial=0)) if indices.size else 0


def _scale(cost: Integers, scale: int) -> Integers:
    """Return scaled costs; the forbidden ones are 0 here and set to UNREACHED at the end."""
    return np.where(cost >= FORBIDDEN, 0, np.minimum(cost, MAX_SCALED // scale) * scale)


def _spread(starts: Integers, sizes: Integers) -> Integers:
    """Return the positions start, start + 1, ... of each part, part after part."""
    ends = np.cumsum(sizes)
    spread: Integers = np.repeat(starts - (ends - sizes), sizes) + np.arange(int(ends[-1]) if ends.size else 0)
    return spread


def _sum_nodes(arrays: ChoiceArrays, certificate: DualCertificate, prefix: Integers) -> int:
    """Return the sum over nodes of the least cost left at a strategy."""
    left, counts = _scale(arrays.cost, certificate.scale), np.diff(arrays.node_start)
    sizes = counts[arrays.span_node]
    price = np.repeat(prefix[arrays.span_stop] - prefix[arrays.span_start], sizes)
    priced = (price * arrays.span_usage[_spread(arrays.span_at, sizes)]) >> certificate.shift
    np.add.at(left, _spread(arrays.node_start[arrays.span_node], sizes), priced)
    begin = _edge_offsets(arrays)
    for nodes, classes, at in (
        (arrays.source, arrays.source_class, begin),
        (arrays.target, arrays.target_class, begin + arrays.height),
    ):
        own = counts[nodes]
        np.add.at(left, _spread(arrays.node_start[nodes], own), certificate.potentials[np.repeat(at, own) + classes])
    left[arrays.cost >= FORBIDDEN] = UNREACHED
    least = np.minimum.reduceat(left, arrays.node_start[:-1]) if counts.size else left
    if (least >= UNREACHED).any():
        raise CertificateRefused(f"node {int(least.argmax())}: every strategy is forbidden")
    return sum(least.tolist())


def _edge_offsets(arrays: ChoiceArrays) -> Integers:
    """Return where the potentials of each edge begin."""
    sizes = arrays.height + arrays.width
    offsets: Integers = np.cumsum(sizes) - sizes
    return offsets


def _list_edge_minima(
    arrays: ChoiceArrays, certificate: DualCertificate, prefix: Integers, *, poll: Callable[[], None]
) -> Iterator[int]:
    """Yield the least cost left at a pair of every edge. Edges of equal costs, as in repeated layers, share a table."""
    scaled, forbidden = _scale(arrays.pair_cost, certificate.scale), arrays.pair_cost >= FORBIDDEN
    price = prefix[arrays.edge_usage_stop] - prefix[arrays.edge_usage_start]
    usages: dict[int, list[int]] = {}
    for u in np.flatnonzero(price).tolist():
        usages.setdefault(int(arrays.edge_usage_edge[u]), []).append(u)
    begin, tables = _edge_offsets(arrays), (arrays.pair_start, arrays.kind_start, arrays.height, arrays.width)
    listed = zip(*(table.tolist() for table in tables), strict=True)
    edges = sorted((table, e) for e, table in enumerate(listed))
    for (start, kind_start, height, width), alike in groupby(edges, key=itemgetter(0)):
        kinds = arrays.pair_kind[kind_start : kind_start + height * width].astype(np.int64)
        costs, excluded = scaled[start + kinds], np.flatnonzero(forbidden[start + kinds])
        for _, e in alike:
            poll()
            left = costs.copy()
            for u in usages.get(e, ()):
                left += (arrays.pair_usage[arrays.edge_usage_pair_start[u] + kinds] * price[u]) >> certificate.shift
            ends, pairs = certificate.potentials[begin[e] : begin[e] + height + width], left.reshape(height, width)
            pairs -= ends[:height, None]
            pairs -= ends[None, height:]
            left[excluded] = UNREACHED
            least = int(left.min())
            if least >= UNREACHED:
                raise CertificateRefused(f"edge {e}: every pair is forbidden")
            yield least
