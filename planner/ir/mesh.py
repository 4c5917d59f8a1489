"""Device mesh: ordered named axes over which tensors are split.

Devices are numbered in row-major order, the last axis fastest: on 10x20x30 the device (1, 2, 3) has index 663.
Devices that agree on every axis outside `axes` form a *group*; inside a group they are ordered by the listed axes,
outer to inner as listed (MLIR mesh dialect, "In-group device" and "Device groups").
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.errors import InvalidMesh

MAX_AXES = 8
MAX_DEVICES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True, slots=True)
class MeshAxis:
    """One axis of a mesh.

    `size` is None where it is unknown (`?`); `link` names a link of the hardware profile.
    """

    name: str
    size: int | None
    link: str | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidMesh("mesh axis name", got=self.name, wanted="1-64 letters, digits, '_', '.', '-'")
        if self.size is not None and not 1 <= self.size <= MAX_DEVICES:
            raise InvalidMesh(
                "mesh axis size out of range",
                where=f"axis {self.name!r}",
                got=self.size,
                wanted=f"1 to {MAX_DEVICES}",
            )


@dataclass(frozen=True)
class Mesh:
    """The ordered axes of a device mesh.

    Raises InvalidMesh for no axis, a repeated name, or too many devices.
    """

    axes: tuple[MeshAxis, ...]
    device: str | None = None

    def __post_init__(self) -> None:
        names = [axis.name for axis in self.axes]
        if not 1 <= len(names) <= MAX_AXES:
            raise InvalidMesh("mesh rank", got=len(names), wanted=f"1 to {MAX_AXES} axes")
        if len(set(names)) != len(names):
            raise InvalidMesh("mesh axis name repeated", got=names, wanted="different names")
        if math.prod(axis.size or 1 for axis in self.axes) > MAX_DEVICES:
            raise InvalidMesh("too many devices", got=self.notation, wanted=f"at most {MAX_DEVICES}")

    @classmethod
    def parse(cls, text: str, device: str | None = None) -> Mesh:
        """Read `dp=2,tp=4` (named axes) or `2x4` (axes named `0`, `1`); `?` is an unknown size.

        `ep=4*2` is an axis of 8 that is split in two (`split_axis`): ep.outer of 4 and ep.inner of 2.
        """
        named = "=" in text
        pieces = text.split(",") if named else text.split("x")
        pairs = [piece.partition("=")[::2] if named else (str(i), piece) for i, piece in enumerate(pieces)]
        axes: list[MeshAxis] = []
        for name, size in pairs:
            outer, is_split, inner = size.partition("*")
            sizes = [_size(part, text) for part in ((outer, inner) if is_split else (size,))]
            names = [f"{name.strip()}.outer", f"{name.strip()}.inner"] if is_split else [name.strip()]
            axes += map(MeshAxis, names, sizes)
        return cls(tuple(axes), device)

    @property
    def notation(self) -> str:
        return ",".join(f"{axis.name}={axis.size or '?'}" for axis in self.axes)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Sizes of all axes. Raises InvalidMesh where one is unknown."""
        for axis in self.axes:
            if axis.size is None:
                raise InvalidMesh("mesh axis size is unknown", where=f"axis {axis.name!r}", wanted="a number")
        return tuple(axis.size or 0 for axis in self.axes)

    @property
    def devices(self) -> int:
        return math.prod(self.shape)

    def group_size(self, axes: Sequence[int]) -> int:
        """Return the number of devices of a group over `axes`. Raises InvalidMesh for an axis out of range."""
        return math.prod(self.shape[axis] for axis in self.check_axes(axes))

    def check_axes(self, axes: Sequence[int]) -> Sequence[int]:
        """Return the axes. Raises InvalidMesh where one is out of range, negative ones included."""
        for axis in axes:
            if not 0 <= axis < len(self.axes):
                raise InvalidMesh("mesh axis out of range", got=axis, wanted=f"0 to {len(self.axes) - 1}")
        return axes

    def axis(self, key: int | str) -> int:
        """Return the position of an axis given by name or position. Raises InvalidMesh for one that the mesh lacks."""
        position = self.names.index(key) if key in self.names else key
        if isinstance(position, int) and 0 <= position < len(self.axes):
            return position
        raise InvalidMesh("unknown mesh axis", got=key, wanted=f"one of {', '.join(self.names)}")

    def split_axis(self, key: int | str, outer: int) -> Mesh:
        """Return the same devices in the same order with one axis split in two, `outer` devices times the rest.

        With fewer experts than devices on an axis, the experts are split over the outer part and the work of each
        expert over the inner one. Raises InvalidMesh where `outer` does not divide the axis.
        """
        position = self.axis(key)
        axis, size = self.axes[position], self.shape[position]
        if outer < 1 or size % outer:
            raise InvalidMesh(
                "an axis factors into whole parts",
                where=f"axis {axis.name!r}",
                got=outer,
                wanted=f"a divisor of {size}",
            )
        parts = (
            MeshAxis(f"{axis.name}.outer", outer, axis.link),
            MeshAxis(f"{axis.name}.inner", size // outer, axis.link),
        )
        return Mesh((*self.axes[:position], *parts, *self.axes[position + 1 :]), self.device)

    @cached_property
    def coordinates(self) -> NDArray[np.int64]:
        """The multi-index of every device: `[devices, axes]`."""
        return np.stack(np.unravel_index(np.arange(self.devices), self.shape), axis=1).astype(np.int64)

    def group_index(self, axes: Sequence[int]) -> NDArray[np.int64]:
        """Return the position of every device inside its group over `axes`: `[devices]`.

        Raises InvalidMesh for an axis out of range.
        """
        index = np.zeros(self.devices, np.int64)
        for axis in self.check_axes(axes):
            index = index * self.shape[axis] + self.coordinates[:, axis]
        return index

    def groups(self, axes: Sequence[int]) -> NDArray[np.int64]:
        """Return device indices by group, members in group order: `[groups, members]`.

        Raises InvalidMesh for an axis out of range.
        """
        size = self.group_size(axes)
        rest = [axis for axis in range(len(self.shape)) if axis not in axes]
        grid = np.arange(self.devices).reshape(self.shape)
        return grid.transpose([*rest, *axes]).reshape(-1, size)


def _size(text: str, whole: str) -> int | None:
    if text.strip() == "?":
        return None
    if not re.fullmatch(r"\s*\d{1,9}\s*", text, re.ASCII):
        raise InvalidMesh("mesh does not parse", got=whole, wanted="dp=2,tp=4 or 2x4")
    return int(text)
