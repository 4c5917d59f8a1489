"""An SPMD program: one list of instructions over local tensors, in single-assignment form.

Coherence: every device of a mesh runs the same list, so a pure collective is reached by its whole group, and
dropping one from the list drops it on every device. Only send and recv may stand on the path of some devices
(`only`); they are not pure, and stay though nobody reads their result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from planner.errors import InvalidProgram
from planner.model.mesh import Mesh
from planner.model.spmd.cluster import Cluster
from planner.model.spmd.instruction import Call, Instruction, Local
from planner.model.spmd.types import Dim, LocalType, compatible, local_shape, shown
from planner.model.spmd.verify import check_results, inferred, mesh_of, signature


@dataclass(frozen=True, slots=True)
class Value:
    """A local tensor on every device of a mesh."""

    type: LocalType
    mesh: str


@dataclass(frozen=True)
class SpmdProgram:
    """Verified when made: raises InvalidProgram naming the value, the rule, what was got and what was wanted."""

    clusters: Mapping[str, Cluster]
    arguments: tuple[tuple[str, Value], ...]
    instructions: tuple[Instruction, ...]
    outputs: tuple[str, ...]
    default_mesh: str | None = None
    values: Mapping[str, Value] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if self.default_mesh is not None and self.default_mesh not in self.clusters:
            raise InvalidProgram("undefined mesh", where="default mesh", got=self.default_mesh, wanted=self._known)
        values: dict[str, Value] = {}
        for name, value in self.arguments:
            if value.mesh not in self.clusters:
                raise InvalidProgram("undefined mesh", where=f"%{name}", got=value.mesh, wanted=self._known)
            _define(values, name, value, "arguments")
        for done in self.instructions:
            made = self._call(done, values) if isinstance(done, Call) else self._local(done, values)
            for name, value in zip(done.results, made, strict=True):
                _define(values, name, value, done.where)
        for name in self.outputs:
            _read(values, name, "outputs")
        object.__setattr__(self, "values", values)

    @cached_property
    def meshes(self) -> dict[str, Mesh]:
        return {name: cluster.mesh for name, cluster in self.clusters.items()}

    @property
    def _known(self) -> str:
        return f"one of {', '.join(self.clusters) or 'none'}"

    def mesh_name(self, done: Instruction) -> str:
        """The mesh whose devices run an instruction."""
        if isinstance(done, Call):
            return mesh_of(done, self.clusters, self.default_mesh)
        name = done.mesh or self.default_mesh or "none"
        if name not in self.clusters:
            raise InvalidProgram("undefined mesh", where=done.where, got=name, wanted=self._known)
        return name

    def _operands(self, done: Instruction, values: Mapping[str, Value]) -> list[LocalType]:
        """Types of the operands, which must be there on every device that runs the instruction."""
        mesh = self.mesh_name(done)
        found = [_read(values, name, done.where) for name in done.operands]
        for name, value in zip(done.operands, found, strict=True):
            here = set(self.clusters[mesh].devices) <= set(self.clusters[value.mesh].devices)
            if value.mesh != mesh and not (here and self.clusters[mesh].devices):
                raise InvalidProgram(
                    f"%{name} is not on every device", where=done.where, got=f"mesh {value.mesh}", wanted=f"mesh {mesh}"
                )
        return [value.type for value in found]

    def _call(self, call: Call, values: Mapping[str, Value]) -> list[Value]:
        call_signature = signature(call, self._operands(call, values), self.meshes, self.default_mesh)
        check_results(call, call_signature, inferred(call, call_signature))
        mesh = call_signature.attrs.get("target") or self.mesh_name(call)
        return [Value(kind, mesh) for kind in call.types]

    def _local(self, done: Local, values: Mapping[str, Value]) -> list[Value]:
        """Local shapes of an op are those of its shardings under the option."""
        name, op = self.mesh_name(done), done.op
        mesh, got = self.meshes[name], self._operands(done, values)
        _check_option(done, mesh)
        counts = (len(op.inputs), len(op.results))
        if (len(got), len(done.results)) != counts:
            found = f"{len(got)} and {len(done.results)}"
            raise InvalidProgram(
                "operands and results", where=done.where, got=found, wanted="{} and {}".format(*counts)
            )
        for place, kind in enumerate(got):
            wanted = _part(done, place, mesh)
            if kind.rank != len(wanted) or not all(map(compatible, kind.shape, wanted)):
                raise InvalidProgram(
                    f"shape of operand {place}",
                    where=done.where,
                    got=str(kind),
                    wanted=f"[{','.join(map(shown, wanted))}]",
                )
        return [Value(kind, name) for kind in local_results(done, mesh)]

    def __str__(self) -> str:
        lines = [f"mesh @{name} {cluster.mesh.notation}" for name, cluster in self.clusters.items()]
        lines += [f"argument %{name}: {value.type} on @{value.mesh}" for name, value in self.arguments]
        return "\n".join([*lines, *map(str, self.instructions), "return " + ", ".join(f"%{n}" for n in self.outputs)])


def _check_option(done: Local, mesh: Mesh) -> None:
    """One list of mesh axes a loop, no axis twice, and what the op's rule allows."""
    loops = done.op.rule.loops
    axes = [axis for listed in done.option for axis in listed]
    good = len(done.option) == len(loops) and len(set(axes)) == len(axes) and set(axes) <= set(range(len(mesh.axes)))
    if not good or not done.op.rule.allows(done.option, mesh):
        names = " ".join(loop.name for loop in loops)
        raise InvalidProgram(
            "option the op does not allow", where=done.where, got=done.option, wanted=f"different mesh axes for {names}"
        )


def _part(done: Local, place: int, mesh: Mesh) -> tuple[Dim, ...]:
    """The shape in which the op reads an operand."""
    rule = done.op.rule
    return local_shape(rule.shapes[place], rule.read_sharding(place, done.option, mesh), mesh)


def local_results(done: Local, mesh: Mesh) -> tuple[LocalType, ...]:
    """What a local op leaves on the devices of a mesh. Raises InvalidMesh where it is split over an unknown size."""
    for axes in filter(None, done.option):
        mesh.group_size(axes)
    return tuple(
        LocalType(local_shape(kind.shape, done.op.rule.result_sharding(place, done.option), mesh), kind.dtype)
        for place, kind in enumerate(done.op.results)
    )


def _define(values: dict[str, Value], name: str, value: Value, where: str) -> None:
    if name in values:
        raise InvalidProgram("value defined twice", where=where, got=f"%{name}", wanted="a new name")
    values[name] = value


def _read(values: Mapping[str, Value], name: str, where: str) -> Value:
    if name not in values:
        raise InvalidProgram("value read before it is made", where=where, got=f"%{name}", wanted="a value made above")
    return values[name]
