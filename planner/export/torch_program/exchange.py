"""A tile exchange as one or two calls of all_to_all_single, with as many elements for every peer as it lacks.

A piece is some elements of a flattened box of a tensor. Tables by rank say which pieces a process sends to each peer
and where it puts what arrives. Terms come first: whoever combines a piece has all its terms, in their order. Then
copies of the totals, or of what is held, go to whoever wants them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from planner.ir.mesh import Mesh
from planner.ir.program import ShardedValue
from planner.ir.redistribution import plan_transfers
from planner.ir.sharding import Axes, Reduction, held_bounds
from planner.ir.transfers import PieceTable, Transfers, flat_part_bounds

PIECES = '''def piece_of(x, piece):
    """Elements of a flattened box of a tensor."""
    box, start, stop = piece
    return x[tuple(slice(*ends) for ends in box)].reshape(-1)[start:stop]


def put(x, piece, elements):
    """Write elements to a flattened box of a tensor."""
    box, start, stop = piece
    there = x[tuple(slice(*ends) for ends in box)]
    if stop - start == there.numel():
        there.copy_(elements.reshape(there.shape))
    else:
        there.copy_(torch.cat([there.reshape(-1)[:start], elements, there.reshape(-1)[stop:]]).reshape(there.shape))


def send(elements, sent, arriving, like, group):
    """Send every peer its elements, as bytes: not every backend has every dtype. `arriving` is the sizes of the pieces
    that come from each; the function that is returned waits for them."""
    flat, size, dtype = torch.cat(elements) if elements else like.new_empty(0), like.element_size(), like.dtype
    counts, sizes = [size * sum(pieces) for pieces in arriving], [size * count for count in sent]
    raw = funcol.all_to_all_single(flat.view(torch.uint8), counts, sizes, group)
    return lambda: waited(raw).view(dtype).split([piece for pieces in arriving for piece in pieces])
'''
COMBINED = {
    Reduction.SUM: "total + term",
    Reduction.AVERAGE: "total + term",
    Reduction.MAX: "torch.maximum(total, term)",
    Reduction.MIN: "torch.minimum(total, term)",
    Reduction.PRODUCT: "total * term",
    Reduction.BITWISE_AND: "total & term",
    Reduction.BITWISE_OR: "total | term",
    Reduction.BITWISE_XOR: "total ^ term",
}
Piece = tuple[tuple[tuple[int, int], ...], int, int]
"""A box by its ends in every dim, and the start and stop of elements of the flattened box."""
Part = tuple[int, int]
"""A cell, and the part of it."""


@dataclass
class _RankTables:
    """What one process sends and where it puts what arrives.

    `copied` are pieces of what it has and makes of the same elements. `terms` lists, for every piece that it combines,
    in order of the terms, pieces that it has and numbers of pieces that arrive. `sent` are the elements to send each
    peer, and `pieces` what they are: pieces, or numbers of totals. `totals_put` are where totals go.
    """

    shape: list[int]
    fill: int = 0
    copied: list[tuple[Piece, Piece]] = field(default_factory=list)
    term_pieces: list[Piece] = field(default_factory=list)
    term_sent: list[int] = field(default_factory=list)
    term_arrived: list[list[int]] = field(default_factory=list)
    terms: list[list[Any]] = field(default_factory=list)
    totals_put: list[tuple[int, Piece]] = field(default_factory=list)
    pieces: list[Any] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    arriving: list[list[int]] = field(default_factory=list)
    places: list[Piece] = field(default_factory=list)


def write_exchange_function(
    held: ShardedValue, made: ShardedValue, mesh: Mesh, *, axes: Axes, name: str, group: str
) -> str:
    """Return the text of a function from a process's shard of `held` to what waits for its shard of `made`."""
    tables = _Tables(held, made, mesh, axes)
    ranks = tables.fill()
    reduces = tables.done.endpoints.terms > 1
    fields = [
        *("shape", "fill", "copied"),
        *(("term_pieces", "term_sent", "term_arrived", "terms", "totals_put") if reduces else ()),
        *("pieces", "sent", "arriving", "places"),
    ]
    table = "".join(f"    ({', '.join(repr(getattr(each, key)) for key in fields)}),\n" for each in ranks)
    lines = [
        f"{', '.join(fields)} = {name.upper()}[RANK]",
        "made = x.new_full(shape, fill)",
        "for piece, place in copied:",
        "    put(made, place, piece_of(x, piece))",
    ]
    message = f"[piece_of(x, each) for each in {'term_pieces' if reduces else 'pieces'}]"
    lines.append(f"came = send({message}, {'term_sent, term_arrived' if reduces else 'sent, arriving'}, x, {group})")
    then = [
        *(_write_totals(tables, group) if reduces else ()),
        f"for place, elements in zip(places, {'totals_came' if reduces else 'came'}()):",
        "    put(made, place, elements)",
        "return made",
    ]
    lines += ["", "def arrive():", *(f"    {line}" for line in then), "", "return later(arrive)"]
    body = "".join(f"    {line}".rstrip() + "\n" for line in lines)
    return f"{name.upper()} = (\n{table})\n\n\ndef {name}(x):\n{body}"


def _write_totals(tables: _Tables, group: str) -> list[str]:
    """Return the lines that combine the terms that came, and send the totals."""
    return [
        "terms_came, totals = came(), []",
        "for each in terms:",
        "    total, *others = [terms_came[term] if isinstance(term, int) else piece_of(x, term) for term in each]",
        "    for term in others:",
        f"        total = {COMBINED[tables.held.sharding.reduction]}",
        f"    totals.append({tables.finished('total')})",
        "for number, place in totals_put:",
        "    put(made, place, totals[number])",
        f"totals_came = send([totals[each] for each in pieces], sent, arriving, x, {group})",
    ]


class _Tables:
    def __init__(self, held: ShardedValue, made: ShardedValue, mesh: Mesh, axes: Axes) -> None:
        shape, self.held, self.made, self.mesh = held.type.shape, held, made, mesh
        self.done: Transfers = plan_transfers(held.sharding, made.sharding, shape, mesh, axes)
        self.x = held_bounds(held.sharding, shape, mesh)[..., 0]
        bounds = held_bounds(made.sharding, shape, mesh)
        self.origin = bounds[..., 0]
        target = made.sharding
        fills = [0, target.reduction.neutral or 0]
        others = (mesh.group_index(target.partial) > 0).tolist()
        sizes = (bounds[..., 1] - bounds[..., 0]).tolist()
        self.ranks = [_RankTables(sizes[device], fills[others[device]]) for device in range(mesh.devices)]
        self.members = {}
        for group in mesh.groups(sorted(axes)).tolist():
            self.members.update(dict.fromkeys(group, sorted(group)))

    def finished(self, total: str) -> str:
        if self.held.sharding.reduction is not Reduction.AVERAGE:
            return total
        terms = self.done.endpoints.terms
        kind = self.held.type.dtype
        return (
            f"{total} / {terms}"
            if kind.startswith(("f", "b"))
            else f'torch.div({total}, {terms}, rounding_mode="trunc")'
        )

    def fill(self) -> list[_RankTables]:
        if self.done.endpoints.terms > 1:
            totals = self._fill_terms()
            self._fill_copies(totals)
            return self.ranks
        boxes, has_some = self.done.endpoints.overlaps()
        for device in np.flatnonzero(has_some).tolist():
            whole = (0, int((boxes[device][:, 1] - boxes[device][:, 0]).prod()))
            self.ranks[device].copied.append(
                (
                    self._piece(boxes[device], *whole, self.x[device]),
                    self._piece(boxes[device], *whole, self.origin[device]),
                )
            )
        self._fill_copies(None)
        return self.ranks

    def _piece(self, box: Any, start: int, stop: int, origin: Any) -> Piece:
        ends = (box - origin[:, None]).tolist()
        return tuple((low, high) for low, high in ends), start, stop

    def _rows(self, table: PieceTable) -> Iterator[tuple[int, int, int, int, int, int]]:
        """Yield cell, part, start, stop, sender and receiver of the pieces that are sent, in order of peers."""
        starts, stops = flat_part_bounds(self.done.cell_sizes[table.cell], table.part, table.parts)
        columns = (table.cell, table.part, starts, stops, table.sender, table.receiver)
        return iter([row for row in zip(*(each.tolist() for each in columns), strict=True) if row[2] < row[3]])

    def _messages(self, rows: Sequence[Any]) -> dict[tuple[int, int], list[Any]]:
        found: dict[tuple[int, int], list[Any]] = defaultdict(list)
        for row in rows:
            found[row[4], row[5]].append(row)
        return found

    def _fill_terms(self) -> dict[tuple[int, int, int], int]:
        """Fill what is sent to be combined, and return the number of the total by cell, part and device."""
        ends, rows = self.done.endpoints, list(self._rows(self.done.reduce))
        messages = self._messages(rows)
        by_term: dict[tuple[int, int, int], dict[int, Any]] = defaultdict(dict)
        bounds: dict[tuple[int, int], tuple[int, int]] = {}
        for device, rank in enumerate(self.ranks):
            arrived = 0
            for peer in self.members[device]:
                sent, came = messages.get((device, peer), []), messages.get((peer, device), [])
                rank.term_pieces += [self._piece(self.done.cells[r[0]], r[2], r[3], self.x[device]) for r in sent]
                rank.term_sent.append(sum(r[3] - r[2] for r in sent))
                rank.term_arrived.append([r[3] - r[2] for r in came])
                for row in came:
                    bounds[row[0], row[1]] = row[2], row[3]
                    terms = by_term[row[0], row[1], device]
                    terms[int(ends.term[peer])] = arrived
                    own = int(ends.term[device])
                    if own not in terms and self._holds(row[0], device):
                        terms[own] = self._piece(self.done.cells[row[0]], row[2], row[3], self.x[device])
                    arrived += 1
        numbers = {}
        for (cell, part, device), terms in by_term.items():
            rank = self.ranks[device]
            numbers[cell, part, device] = len(rank.terms)
            rank.terms.append([terms[term] for term in range(ends.terms)])
            if bool(ends.is_receiver[device]) and self._wants(cell, device):
                place = self._piece(self.done.cells[cell], *bounds[cell, part], self.origin[device])
                rank.totals_put.append((numbers[cell, part, device], place))
        return numbers

    def _holds(self, cell: int, device: int) -> bool:
        return bool(self.done.endpoints.is_holder[device]) and self._is_inside(cell, self.done.endpoints.held[device])

    def _wants(self, cell: int, device: int) -> bool:
        return self._is_inside(cell, self.done.endpoints.wanted[device])

    def _is_inside(self, cell: int, box: Any) -> bool:
        inner = self.done.cells[cell]
        return bool((box[:, 0] <= inner[:, 0]).all() and (inner[:, 1] <= box[:, 1]).all())

    def _fill_copies(self, totals: dict[tuple[int, int, int], int] | None) -> None:
        messages = self._messages(list(self._rows(self.done.copy)))
        for device, rank in enumerate(self.ranks):
            for peer in self.members[device]:
                sent, came = messages.get((device, peer), []), messages.get((peer, device), [])
                rank.pieces += [
                    self._piece(self.done.cells[r[0]], r[2], r[3], self.x[device])
                    if totals is None
                    else totals[r[0], r[1], device]
                    for r in sent
                ]
                rank.sent.append(sum(r[3] - r[2] for r in sent))
                rank.arriving.append([r[3] - r[2] for r in came])
                rank.places += [self._piece(self.done.cells[r[0]], r[2], r[3], self.origin[device]) for r in came]
