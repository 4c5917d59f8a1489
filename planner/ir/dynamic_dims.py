"""A tensor dim whose size is known only when the program runs, written `?`.

Only what holds for every number is computed with it: x * 1 = x, x + 0 = x, x // 1 = x, x = x. So rules bind, and dims
that a rule ties together stay tied. As in the mesh dialect, two `?` that must be equal are assumed to be equal. Any
computation that needs the number raises InvalidGraph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from planner.errors import InvalidGraph


class DynamicSize(int):
    """An unknown size. It is an int so that shapes remain tuples of int; its value is not a possible size."""

    def _refuse(self, *_: object) -> NoReturn:
        raise InvalidGraph("the size of a dim is unknown", got="?", wanted="a number")

    def __mul__(self, other: int) -> int:
        return self if other == 1 else self._refuse()

    def __add__(self, other: int) -> int:
        return self if other == 0 else self._refuse()

    def __floordiv__(self, other: int) -> int:
        return self if other == 1 else self._refuse()

    __rmul__, __radd__ = __mul__, __add__
    __neg__ = __abs__ = __int__ = __float__ = __bool__ = __invert__ = _refuse
    __sub__ = __rsub__ = __rfloordiv__ = __truediv__ = __rtruediv__ = _refuse
    __mod__ = __rmod__ = __divmod__ = __rdivmod__ = __pow__ = __rpow__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def __repr__(self) -> str:
        return "?"

    def __format__(self, _: str) -> str:
        return "?"


DYNAMIC_DIM = DynamicSize(-1)


def is_known(size: int) -> bool:
    return not isinstance(size, DynamicSize)


def static_sizes(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the sizes that are known."""
    return tuple(filter(is_known, shape))


def sizes_agree(one: int, other: int) -> bool:
    """Return whether two dims can be of the same size; a 1 beside an unknown size broadcasts."""
    return one == other or (not (is_known(one) and is_known(other)) and 1 not in (one, other))
