"""Arguments and results of a program as arrays of which every device holds equally much.

The parts in which devices hold a dim stand one after another, each padded to the longest. Parts are [start, stop) of
the dim; with halos they overlap, and reach beyond the tensor. Terms of a partial value stand one after another in an
additional first dim. The data of several micro-batches stand one after another in a first dim of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.export.partition_spec import partition_spec
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.ir.sharding import Reduction, Shape, Sharding, held_bounds, shard_shape

MAPPED = '''def {name}(mesh):
    """The program over {what} arrays, in the order of ARGUMENTS; `mesh` is a jax.sharding.Mesh with AXES.

    Places its arguments itself. Explicit axes become Auto.
    """
    mesh = mesh.update(axis_types=(AxisType.Auto,) * len(AXES))
    shardings = tuple(NamedSharding(mesh, spec) for spec in IN_SPECS)
    placed = jax.shard_map(program, mesh=mesh, in_specs=IN_SPECS, out_specs=OUT_SPECS, check_vma=False)

    def run(*arrays):
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return placed(*jax.device_put(arrays, shardings))

    return run
'''
AROUND = '''def laid_out({arguments}):
    """Whole arguments as `over_parts` takes them."""
    return ({laid})


def whole({results}):
    """The results that `over_parts` gives, whole."""
    return ({joined})


def mapped(mesh):
    """The program over whole arrays, in the order of ARGUMENTS; `mesh` is a jax.sharding.Mesh with AXES."""
    return lambda *arrays: whole(*over_parts(mesh)(*laid_out(*arrays)))
'''
PARTS = '''def parts_of(array, dim, parts, length):
    """Parts of a dim one after another, each filled up to a length."""
    size, laid = array.shape[dim], []
    for start, stop in parts:
        part = lax.slice_in_dim(array, min(max(start, 0), size), min(max(stop, 0), size), axis=dim)
        before = max(-start, 0)
        widths = [(0, 0)] * array.ndim
        widths[dim] = (before, length - before - part.shape[dim])
        laid.append(jnp.pad(part, widths))
    return jnp.concatenate(laid, axis=dim)
'''
JOINED = '''def joined(array, dim, places):
    """What stands at the places of a dim, one after another."""
    return jnp.concatenate([lax.slice_in_dim(array, *place, axis=dim) for place in places], axis=dim)
'''
TERMS = '''def terms_of(array, count, neutral):
    """An array as so many terms: itself and what changes nothing, or (None) itself throughout."""
    other = array if neutral is None else jnp.full_like(array, neutral)
    return jnp.stack([array, *[other] * (count - 1)])
'''
COMBINED = {
    Reduction.SUM: "{0}.sum(axis=0, dtype={0}.dtype)",
    Reduction.AVERAGE: "({0}.sum(axis=0) / len({0})).astype({0}.dtype)",
    Reduction.MAX: "{0}.max(axis=0)",
    Reduction.MIN: "{0}.min(axis=0)",
    Reduction.PRODUCT: "{0}.prod(axis=0, dtype={0}.dtype)",
    Reduction.BITWISE_AND: "jnp.bitwise_and.reduce({0}, axis=0)",
    Reduction.BITWISE_OR: "jnp.bitwise_or.reduce({0}, axis=0)",
    Reduction.BITWISE_XOR: "jnp.bitwise_xor.reduce({0}, axis=0)",
}
BoundaryValues = tuple[int, int]


def write_shard_map_call(arguments: Sequence[BoundaryLayout], results: Sequence[BoundaryLayout]) -> list[str]:
    """Return the text of the program over whole arrays, with functions that lay them out where needed."""
    if all(each.plain for each in (*arguments, *results)):
        return [MAPPED.format(name="mapped", what="whole")]
    around = AROUND.format(
        arguments=", ".join(f"a{k}" for k in range(len(arguments))),
        laid=_format_tuple(each.laid(f"a{k}") for k, each in enumerate(arguments)),
        results=", ".join(f"r{k}" for k in range(len(results))),
        joined=_format_tuple(each.whole(f"r{k}") for k, each in enumerate(results)),
    )
    return [MAPPED.format(name="over_parts", what="laid out"), around]


def _format_tuple(texts: Iterable[str]) -> str:
    return "".join(f"{text}, " for text in texts)


class BoundaryLayout:
    """How a value at a program's ends is held: its PartitionSpec, and the texts that lay it out and put it together."""

    def __init__(self, program: Program, value: str) -> None:
        held, mesh = program.values[value], program.mesh
        self.sizes, self.reduction = held.type.shape, held.sharding.reduction
        self.terms = mesh.group_size(held.sharding.partial)
        self.lengths = shard_shape(held.sharding, self.sizes, mesh)
        found = {dim: _parts(held.sharding, self.sizes, mesh, dim=dim) for dim in held.sharding.split_dims}
        self.parts = {dim: parts for dim, parts in found.items() if not self._alike(dim, parts)}
        whole = [
            length * mesh.group_size(axes) for length, axes in zip(self.lengths, held.sharding.split_axes, strict=True)
        ]
        split = held.sharding.split_axes
        if self.terms > 1:
            whole, split = [self.terms, *whole], (held.sharding.partial, *split)
        spec, _ = partition_spec(Sharding(split), tuple(whole), mesh)
        self.is_stacked = value in program.stacked
        spec = (None, *spec) if self.is_stacked else spec
        self.spec = f"P({', '.join(map(repr, spec))})"

    def _alike(self, dim: int, parts: Sequence[BoundaryValues]) -> bool:
        """Return whether parts are blocks of one length that make up the dim."""
        length = self.lengths[dim]
        return parts == [(start, start + length) for start in range(0, self.sizes[dim], max(length, 1))]

    @property
    def plain(self) -> bool:
        """Whether the array needs no layout of its own."""
        return self.terms == 1 and not self.parts

    def entered(self, name: str) -> list[str]:
        """Return the lines with which a device begins for an argument."""
        return [] if self.terms == 1 else [f"{name} = {name}[0]"]

    def left(self, name: str) -> str:
        """Return the expression that a device returns for a result."""
        return name if self.terms == 1 else f"{name}[None]"

    def laid(self, name: str) -> str:
        """Return the expression for the array laid out."""
        if self.is_stacked and not self.plain:
            return f"jax.vmap(lambda a: {self._laid('a')})({name})"
        return self._laid(name)

    def _laid(self, name: str) -> str:
        for dim, parts in self.parts.items():
            name = f"parts_of({name}, {dim}, {parts!r}, {self.lengths[dim]})"
        return name if self.terms == 1 else f"terms_of({name}, {self.terms}, {self.reduction.neutral})"

    def whole(self, name: str) -> str:
        """Return the expression for the whole array, given the laid out one."""
        name = name if self.terms == 1 else COMBINED[self.reduction].format(name)
        for dim, parts in self.parts.items():
            name = f"joined({name}, {dim}, {self._places(dim, parts)!r})"
        return name

    def _places(self, dim: int, parts: Sequence[BoundaryValues]) -> list[BoundaryValues]:
        """Return where the elements stand, each once: those in the halo before a part are taken from another."""
        places: list[BoundaryValues] = []
        reached = 0
        for number, (start, stop) in enumerate(parts):
            last, shift = min(stop, self.sizes[dim]), number * self.lengths[dim] - start
            if last > reached:
                begun = places.pop()[0] if places and places[-1][1] == shift + reached else shift + reached
                places.append((begun, shift + last))
                reached = last
        return places


def _parts(sharding: Sharding, shape: Shape, mesh: Mesh, *, dim: int) -> list[BoundaryValues]:
    """Return what devices hold of a dim, in the order in which they split it."""
    bounds = held_bounds(sharding, shape, mesh)[:, dim]
    first = dict(zip(mesh.group_index(sharding.split_axes[dim]).tolist(), bounds.tolist(), strict=True))
    return [(start, stop) for _, (start, stop) in sorted(first.items())]
