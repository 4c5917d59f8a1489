"""The SplitMix64 generator (Steele, Lea, Flood, "Fast splittable pseudorandom generators", 2014), for numba kernels.

numba's own random state is global to a thread; a walk needs one of its own to be reproducible.
"""

from __future__ import annotations

import numpy as np

from solvers.jit import cached_njit


@cached_njit(nogil=True)
def random_uniform(state):  # type: ignore[no-untyped-def]
    """Return the next number in [0, 1); state is an array of one uint64, updated in place."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return float((z ^ (z >> np.uint64(31))) >> np.uint64(11)) / 9007199254740992.0


@cached_njit(nogil=True)
def random_below(state, count):  # type: ignore[no-untyped-def]
    """Return the next integer in [0, count)."""
    return min(int(random_uniform(state) * count), count - 1)
