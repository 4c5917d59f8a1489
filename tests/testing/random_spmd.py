"""Random SPMD programs on random meshes, with each device's value of everything by the oracle."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import numpy as np

from planner.errors import InvalidProgram, RunFailed
from planner.ir.graph import Op, TensorType
from planner.ir.mesh import Mesh
from planner.ops import bind_op
from planner.run.spmd_executor import run_spmd
from planner.run.undef import PartialArray
from planner.spmd import Cluster, LocalType, SpmdBuilder, SpmdCall
from tests.testing.spmd_oracle import KINDS, MEANING, Devices, Mismatch, Tensor, UndefinedRead, made

CALLS = 8
MOST_ELEMENTS = 200
MESHES = ("1", "2", "3", "5", "2x2", "2x3", "3x2", "4x1", "2x2x2", "3x1x2", "2x3x2", "2x2x3", "2x1x2x2", "2x2x2x2")
REDUCERS = {"odd": lambda a, b: a - 3 * b}


class Writer:
    """A program under construction, with each device's part of every value by the oracle."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        text = self.random.choice(MESHES)
        self.mesh = Mesh.parse(text)
        self.build = SpmdBuilder({"m": Cluster.parse(text)}, "m")
        self.held: dict[str, list[Tensor]] = {}
        self.given: dict[str, list[PartialArray]] = {}
        self.messages: int | None = 0  # None: one is from any, and would take every other's
        for name in ("x", "y"):
            self.argument(name)

    def argument(self, name: str) -> None:
        """Add an argument whose size along one dim may differ from device to device."""
        shape = [self.random.randint(1, 5) for _ in range(self.random.randint(1, 3))]
        dim = self.random.randrange(len(shape))
        uneven = self.random.random() < 0.3
        tensors = []
        for _ in range(self.mesh.devices):
            sizes = tuple(self.random.randint(0, 4) if uneven and d == dim else size for d, size in enumerate(shape))
            tensors.append(made(sizes, lambda index: self.random.randint(-9, 9)))
        self.held[name], self.given[name] = tensors, [as_held(tensor) for tensor in tensors]
        self.build.argument(name, type_of(tensors))

    def attrs(self, op: str, name: str) -> dict[str, Any]:
        rank = len(self.held[name][0].shape)
        axes = self.random.sample(range(len(self.mesh.axes)), self.random.randint(op == "shift", len(self.mesh.axes)))
        sizes = [self.mesh.shape[axis] for axis in axes]
        n, dim = math.prod(sizes), self.random.randrange(rank)
        root = [self.random.randrange(size) for size in sizes]
        kind = self.random.choice(list(KINDS))
        reduces = {"reduction": kind} | ({"reducer": "odd"} if kind == "generic" else {})
        block = {"block": self.random.randint(2, 6)} if self.random.random() < 0.2 else {}
        found: dict[str, dict[str, Any]] = {
            "all_gather": {"gather_axis": dim},
            "gather": {"gather_axis": dim, "root": root},
            "all_slice": {"slice_axis": dim, **block},
            "scatter": {"scatter_axis": dim, "root": root, **block},
            "all_to_all": {"split_axis": dim, "concat_axis": self.random.randrange(rank), **block},
            "broadcast": {"root": root},
            "all_reduce": reduces,
            "reduce": {**reduces, "root": root},
            "reduce_scatter": {**reduces, "scatter_axis": dim, **block},
        }
        if op == "shift":
            axis = self.random.choice(axes)
            size = self.mesh.shape[axis]
            offset, rotate = self.random.randint(1 - size, size - 1), self.random.random() < 0.5
            return {"mesh_axes": axes, "shift_axis": axis, "offset": offset, "rotate": rotate}
        if op == "collective_permute":
            count = self.random.randint(0, n)
            ends = (self.random.sample(range(n), count) for _ in range(2))
            return {"mesh_axes": axes, "pairs": list(zip(*ends, strict=True))}
        if op == "update_halo":
            return self.halos(axes, rank)
        return {"mesh_axes": axes, **found[op]}

    def halos(self, axes: list[int], rank: int) -> dict[str, Any]:
        lists: list[list[int]] = [[] for _ in range(rank)]
        for axis in axes:
            self.random.choice(lists).append(axis)
        count = 2 * sum(bool(each) for each in lists)
        old, new = ([self.random.randint(0, 2) for _ in range(count)] for _ in range(2))
        old = old if self.random.random() < 0.4 else [0] * count
        return {"split_axes": lists, "source_halo_sizes": old, "destination_halo_sizes": new}

    def meaning(self, op: str, name: str, attrs: dict[str, Any]) -> list[Tensor]:
        inputs = self.held[name]
        block = attrs.get("block")
        if block is not None:
            dim = next(attrs[key] for key in ("slice_axis", "split_axis", "scatter_axis") if key in attrs)
            n = math.prod(self.mesh.shape[each] for each in attrs["mesh_axes"])
            if any(block * n < tensor.shape[dim] for tensor in inputs):
                raise Mismatch(block)
        all_ = Devices(self.mesh, tuple(attrs.get("mesh_axes", ())), attrs, inputs)
        found: list[Tensor | UndefinedRead] = []
        for device in range(self.mesh.devices):
            try:
                found.append(MEANING[op](all_, device))
            except UndefinedRead as read:
                found.append(read)
        tensors = [each for each in found if isinstance(each, Tensor)]
        if len(tensors) < len(found):
            raise next(each for each in found if isinstance(each, UndefinedRead))
        return tensors

    def add(self, op: str) -> str | None:
        """Append a call and return None, or return words of the executor's error if the call is not defined."""
        name = self.random.choice(list(self.held))
        attrs = self.attrs(op, name)
        try:
            results = self.meaning(op, name, attrs)
        except UndefinedRead:
            return self.refused(op, name, attrs, "undefined element read")
        except Mismatch:
            return self.refused(op, name, attrs, "differ|wider|larger|block|undefined element read")
        if max(math.prod(tensor.shape) for tensor in results) <= MOST_ELEMENTS:
            self.held[self.build.call(op, name, **attrs)[0]] = results
        return None

    def refused(self, op: str, name: str, attrs: dict[str, Any], words: str) -> str:
        """Return the words of the error that an undefined call must end in; the program continues without the call."""
        kept, known = list(self.build.instructions), dict(self.build.types)
        try:
            run_spmd(self.build.program(self.build.call(op, name, **attrs)), self.given, reducers=REDUCERS)
        except (InvalidProgram, RunFailed) as error:
            if not re.search(words, str(error)):
                raise AssertionError(f"{op} is refused for another reason: {error}") from error
        else:
            raise AssertionError(f"{op} {attrs} is accepted, and means nothing: {words}")
        self.build.instructions, self.build.types = kept, known
        return words

    def add_local(self) -> None:
        """Add the sum of a value with itself, where it is fully defined and of equal shape on all devices."""
        name = self.random.choice(list(self.held))
        tensors = self.held[name]
        shape = tensors[0].shape
        if any(t.shape != shape or len(t.elements) != math.prod(shape) for t in tensors) or 0 in shape:
            return
        if self.build.types[name] != LocalType(shape, "i64"):
            return
        kind = TensorType(shape, "i64")
        op = Op(
            "n", "subtract", (name, name), (kind,), bind_op("subtract", (kind, kind), (kind,), attrs={}, notation=None)
        )
        (result,) = self.build.local(op, name, name)
        self.held[result] = [made(shape, lambda index: 0) for _ in tensors]

    def add_message(self) -> None:
        """Add a send and a receive between two in-group devices; the receive may omit an unambiguous source."""
        if self.messages is None:
            return
        axes = self.random.sample(range(len(self.mesh.axes)), self.random.randint(1, len(self.mesh.axes)))
        name = self.random.choice(list(self.given))
        if None in self.build.types[name].shape:
            return
        source, target = (tuple(self.random.randrange(self.mesh.shape[axis]) for axis in axes) for _ in range(2))
        from_any = self.random.choice([source, None])
        calls: list[tuple[str, dict[str, Any]]] = [
            ("send", {"destination": target, "only": [source]}),
            ("recv", {"source": source if self.messages else from_any, "only": [target]}),
        ]
        self.messages = None if calls[1][1]["source"] is None else (self.messages or 0) + 1
        if source != target:
            self.random.shuffle(calls)  # a recv may stand above its send
        made_by = {op: self.build.call(op, name, mesh_axes=axes, **attrs)[0] for op, attrs in calls}
        pairs = Devices(self.mesh, tuple(axes), {}, self.held[name])
        for op, here in (("send", source), ("recv", target)):
            self.held[made_by[op]] = [
                self.held[name][pairs.at(device, source)] if pairs.at(device, here) == device else Tensor(old.shape, {})
                for device, old in enumerate(self.held[name])
            ]


def type_of(tensors: list[Tensor]) -> LocalType:
    sizes = zip(*(tensor.shape for tensor in tensors), strict=True)
    return LocalType(tuple(each[0] if len(set(each)) == 1 else None for each in sizes), "i64")


def as_held(tensor: Tensor) -> PartialArray:
    array, mask = np.zeros(tensor.shape, np.int64), np.ones(tensor.shape, bool)
    for index, number in tensor.elements.items():
        array[index], mask[index] = number, False
    return PartialArray.of(np, array, mask)


def written(seed: int) -> tuple[Writer, int]:
    writer = Writer(seed)
    failures = 0
    for _ in range(CALLS):
        choice = writer.random.choice([*MEANING, *MEANING, "local", "message"])
        if choice == "local":
            writer.add_local()
        elif choice == "message":
            writer.add_message()
        elif writer.add(choice):
            failures += 1
    return writer, failures


def check(seed: int, xp: Any) -> tuple[list[str], int]:
    """Run one program, every value an output, element by element.

    The names of its calls, and how many more were refused as they must be. Raises AssertionError.
    """
    writer, refused = written(seed)
    names = list(writer.held)
    given = {name: [on(xp, held) for held in each] for name, each in writer.given.items()}
    run = run_spmd(writer.build.program(names), given, xp, reducers=REDUCERS)
    for name, outputs in zip(names, run.outputs, strict=True):
        for device, (got, wanted) in enumerate(zip(outputs, writer.held[name], strict=True)):
            expected, where = on(xp, as_held(wanted)), f"seed {seed}, %{name}, device {device}"
            assert got.array.shape == wanted.shape, where
            assert bool((got.mask(xp) == expected.mask(xp)).all()), where
            assert bool((got.array == expected.array).all()), where
    return [done.op if isinstance(done, SpmdCall) else done.op.op for done in writer.build.instructions], refused


def on(xp: Any, held: PartialArray) -> PartialArray:
    return PartialArray(xp.asarray(held.array), None if held.undefined is None else xp.asarray(held.undefined))
