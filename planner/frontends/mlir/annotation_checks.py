"""Checks of shardings in the text against their mesh and tensor, and the annotations they become.

A sharding without a mesh uses the one of its function's `mesh_cluster`. A function uses one mesh. Rejected, with the
place: an unknown mesh, an axis that is negative, repeated or beyond the mesh, more lists than dims, the reduction
`generic`, offsets or halos that do not fit. Also rejected are the usages that the dialect leaves undefined: two
shardings of one definition, two of one use, and a definition annotated through the result of a use's annotation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from planner.errors import InvalidMesh, InvalidSharding, ShardplanError
from planner.frontends.mlir.scanner import Scanner
from planner.frontends.mlir.sharding_syntax import ShardingSyntax
from planner.ir.dynamic_dims import is_known
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Shape, Sharding

NumberLookup = Callable[[str, int], int]
"""Takes the name of a value and a position in the text; returns the constant number of the value."""


@dataclass
class ShardingChecker:
    """The checks of one function's shardings; `used` is the mesh of those seen so far, None before the first."""

    scan: Scanner
    meshes: Mapping[str, Mesh]
    default: str | None
    used: str | None = field(default=None, init=False)

    def mesh(self, at: int) -> Mesh:
        """Return the function's mesh: the one used, else the default, else the only one. Raises InvalidMesh."""
        only = next(iter(self.meshes)) if len(self.meshes) == 1 else None
        return self._find_mesh(self.used or self.default or only, at)

    def checked(self, spelled: ShardingSyntax, shape: Shape, number: NumberLookup) -> Sharding:
        """Return the checked sharding, with one list per dim. Raises InvalidSharding or InvalidMesh with the place."""
        name = spelled.mesh or self.default
        mesh = self._find_mesh(name, spelled.at)
        if self.used not in (None, name):
            raise self._error(
                spelled, "two meshes in one function", f"@{name}", wanted=f"@{self.used}", error=InvalidMesh
            )
        self.used = name
        try:
            sharding = self._build(spelled, shape, mesh, number=number)
            sized = all(map(is_known, shape)) and all(axis.size is not None for axis in mesh.axes)
            return _check_fit(sharding, shape, mesh) if sized else sharding
        except ShardplanError as error:
            if error.where.startswith(self.scan.source):
                raise
            raise error.at(self.scan.place(spelled.at)) from None

    def _find_mesh(self, name: str | None, at: int) -> Mesh:
        if name is None:
            raise self.scan.error(
                "no mesh is named", at=at, got="none", wanted="@name, or mesh_cluster", error=InvalidMesh
            )
        if name not in self.meshes:
            declared = ", ".join(f"@{mesh}" for mesh in self.meshes) or "a declared mesh"
            raise self.scan.error("undefined mesh symbol", at=at, got=f"@{name}", wanted=declared, error=InvalidMesh)
        return self.meshes[name]

    def _build(self, spelled: ShardingSyntax, shape: Shape, mesh: Mesh, *, number: NumberLookup) -> Sharding:
        entries, partial, rank = spelled.entries, spelled.partial, len(shape)
        if spelled.trailing_partial and len(entries) == rank + 1 and not partial:
            entries, partial = entries[:rank], entries[rank]
        if not rank and entries == ((),):
            entries = ()
        if len(entries) > rank:
            raise self._error(spelled, "more lists than dims", len(entries), wanted=f"at most {rank} (the rank)")
        if spelled.reduction not in set(Reduction):
            wanted = ", ".join(Reduction)
            raise self._error(spelled, "reduction of a partial tensor", spelled.reduction, wanted=wanted)
        lists = entries + ((),) * (rank - len(entries))
        plain = Sharding(lists, partial, Reduction(spelled.reduction))
        plain.complete(rank, mesh)
        halo = tuple(self._number(size, spelled, number) for size in spelled.halo_sizes)
        cuts = [self._number(size, spelled, number) for size in spelled.offsets]
        return Sharding(lists, partial, plain.reduction, halo, self._split_offsets(spelled, cuts, lists, mesh=mesh))

    def _number(self, size: int | str, spelled: ShardingSyntax, number: NumberLookup) -> int:
        return size if isinstance(size, int) else number(size, spelled.at)

    def _split_offsets(
        self, spelled: ShardingSyntax, cuts: Sequence[int], lists: Sequence[Sequence[int]], *, mesh: Mesh
    ) -> tuple[tuple[int, ...], ...]:
        """Cut the flat list of offsets into one list per split dim: n + 1 offsets for n devices."""
        counts = [mesh.group_size(axes) + 1 for axes in lists if axes] if cuts else []
        if sum(counts) != len(cuts):
            raise self._error(spelled, "number of sharded_dims_offsets", len(cuts), wanted=str(sum(counts)))
        ends = [sum(counts[: place + 1]) for place in range(len(counts))]
        return tuple(tuple(cuts[end - count : end]) for end, count in zip(ends, counts, strict=True))

    def _error(
        self,
        spelled: ShardingSyntax,
        what: str,
        got: object,
        *,
        wanted: str,
        error: type[ShardplanError] = InvalidSharding,
    ) -> ShardplanError:
        return self.scan.error(what, at=spelled.at, got=got, wanted=wanted, error=error)


def _check_fit(sharding: Sharding, shape: Shape, mesh: Mesh) -> Sharding:
    """Run the checks that need sizes; return the sharding as written, not the completed one."""
    sharding.checked(shape, mesh)
    return sharding


RequestedSharding = tuple[Sharding, bool]
"""A sharding and whether it is required."""


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A value of the graph under a name of the text; `asked` lists the shardings requested for reads of that name."""

    value: str
    shape: Shape
    asked: tuple[RequestedSharding, ...] = ()


@dataclass
class Annotations:
    """The requested shardings by (value, user, operand).

    The user is None for the definition. The operand is None unless the user reads the value in different shardings.
    """

    scan: Scanner
    found: dict[tuple[str, str | None, int | None], list[RequestedSharding]] = field(default_factory=dict)

    def define(self, tensor: NamedValue, asked: RequestedSharding, at: int) -> None:
        """Request a sharding of a value's definition."""
        if tensor.asked:
            raise self._undefined("definition annotated behind a use", at, asked, other=tensor.asked[-1])
        self._add((tensor.value, None, None), asked, at, what="definition annotated twice")

    def chain(self, tensor: NamedValue, asked: RequestedSharding, at: int) -> NamedValue:
        """Return the value with a sharding requested for reads under its new name."""
        for other in tensor.asked:
            if other[1] == asked[1] and other != asked:
                raise self._undefined("use annotated twice", at, asked, other=other)
        requested = tensor.asked if asked in tensor.asked else (*tensor.asked, asked)
        return NamedValue(tensor.value, tensor.shape, requested)

    def read(self, operands: Sequence[NamedValue], user: str, at: int) -> None:
        """Record the shardings in which an op, or the return, reads its operands."""
        for operand, tensor in enumerate(operands):
            # Only where a user reads a value in several shardings does an annotation need the operand's number.
            alike = all(other.asked == tensor.asked for other in operands if other.value == tensor.value)
            for asked in tensor.asked:
                self._add((tensor.value, user, None if alike else operand), asked, at, what="use annotated twice")

    def _add(self, key: tuple[str, str | None, int | None], asked: RequestedSharding, at: int, *, what: str) -> None:
        requested = self.found.setdefault(key, [])
        for other in requested:
            if other[1] == asked[1] and other != asked:
                raise self._undefined(what, at, asked, other=other)
        if asked not in requested:
            requested.append(asked)

    def _undefined(self, what: str, at: int, asked: RequestedSharding, *, other: RequestedSharding) -> ShardplanError:
        wanted = f"{other[0]}, asked before"
        return self.scan.error(what, at=at, got=str(asked[0]), wanted=wanted, error=InvalidSharding)
