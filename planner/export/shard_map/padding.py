"""Arrays in the shape of the largest shard: cut, or padded, at the end of every dim."""

from __future__ import annotations

from planner.ir.sharding import Shape

FIT_FUNCTION = '''def fitted(array, shape):
    """The array cut, or filled up, at the end of every dim."""
    array = array[tuple(slice(min(ends)) for ends in zip(array.shape, shape))]
    return jnp.pad(array, [(0, want - have) for have, want in zip(array.shape, shape)])
'''


def fit_shape(text: str, have: Shape, want: Shape) -> str:
    """Return the expression for an array in another shape."""
    return text if have == want else f"fitted({text}, {want!r})"
