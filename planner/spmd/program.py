"""An SPMD program: one list of instructions over local tensors, in single-assignment form.

Coherence: every device of a mesh runs the same list, so a pure collective is reached by its whole group, and
dropping one from the list drops it on every device. Only send and recv may stand on the path of some devices
(`only`). They are not pure, and stay even where nobody reads their result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from planner.errors import InvalidProgram
from planner.ir.indexing import can_divide
from planner.ir.mesh import Mesh
from planner.spmd.cluster import Cluster
from planner.spmd.instruction import LocalOp, SpmdCall, SpmdInstruction
from planner.spmd.types import Dim, LocalType, are_compatible, format_dim, local_shape
from planner.spmd.verify import check_call, check_results, infer_results, mesh_of


@dataclass(frozen=True, slots=True)
class LocalValue:
    """A local tensor on every device of a mesh."""

    type: LocalType
    mesh: str


@dataclass(frozen=True)
class SpmdProgram:
    """A verified program.

    Construction raises InvalidProgram, naming the value, the rule, what was got and what was expected.
    """

    clusters: Mapping[str, Cluster]
    arguments: tuple[tuple[str, LocalValue], ...]
    instructions: tuple[SpmdInstruction, ...]
    outputs: tuple[str, ...]
    default_mesh: str | None = None
    values: Mapping[str, LocalValue] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if self.default_mesh is not None and self.default_mesh not in self.clusters:
            raise InvalidProgram(
                "undefined mesh", where="default mesh", got=self.default_mesh, wanted=self._list_meshes
            )
        values: dict[str, LocalValue] = {}
        for name, value in self.arguments:
            if value.mesh not in self.clusters:
                raise InvalidProgram("undefined mesh", where=f"%{name}", got=value.mesh, wanted=self._list_meshes)
            _define(values, name, value, where="arguments")
        for done in self.instructions:
            results = self._call(done, values) if isinstance(done, SpmdCall) else self._local(done, values)
            for name, value in zip(done.results, results, strict=True):
                _define(values, name, value, where=done.where)
        for name in self.outputs:
            _read_value(values, name, "outputs")
        object.__setattr__(self, "values", values)

    @cached_property
    def meshes(self) -> dict[str, Mesh]:
        return {name: cluster.mesh for name, cluster in self.clusters.items()}

    @property
    def _list_meshes(self) -> str:
        return f"one of {', '.join(self.clusters) or 'none'}"

    def mesh_name(self, done: SpmdInstruction) -> str:
        """Return the mesh whose devices run an instruction."""
        if isinstance(done, SpmdCall):
            return mesh_of(done, self.clusters, self.default_mesh)
        name = done.mesh or self.default_mesh or "none"
        if name not in self.clusters:
            raise InvalidProgram("undefined mesh", where=done.where, got=name, wanted=self._list_meshes)
        return name

    def _operands(self, done: SpmdInstruction, values: Mapping[str, LocalValue]) -> list[LocalType]:
        """Return the types of the operands, which must exist on every device that runs the instruction."""
        mesh = self.mesh_name(done)
        operands = [_read_value(values, name, done.where) for name in done.operands]
        for name, value in zip(done.operands, operands, strict=True):
            covers = set(self.clusters[mesh].devices) <= set(self.clusters[value.mesh].devices)
            if value.mesh != mesh and not (covers and self.clusters[mesh].devices):
                raise InvalidProgram(
                    f"%{name} is not on every device", where=done.where, got=f"mesh {value.mesh}", wanted=f"mesh {mesh}"
                )
        return [value.type for value in operands]

    def _call(self, call: SpmdCall, values: Mapping[str, LocalValue]) -> list[LocalValue]:
        call_signature = check_call(call, self._operands(call, values), self.meshes, default=self.default_mesh)
        check_results(call, call_signature, infer_results(call, call_signature))
        mesh = call_signature.attrs.get("target") or self.mesh_name(call)
        return [LocalValue(kind, mesh) for kind in call.types]

    def _local(self, done: LocalOp, values: Mapping[str, LocalValue]) -> list[LocalValue]:
        """Return the results of a local op: their shapes are those of its shardings under the option."""
        name, op = self.mesh_name(done), done.op
        mesh, operands = self.meshes[name], self._operands(done, values)
        _check_option(done, mesh)
        counts = (len(op.inputs), len(op.results))
        if (len(operands), len(done.results)) != counts:
            got = f"{len(operands)} and {len(done.results)}"
            raise InvalidProgram("operands and results", where=done.where, got=got, wanted="{} and {}".format(*counts))
        for place, kind in enumerate(operands):
            wanted = _local_operand_shape(done, place, mesh)
            if kind.rank != len(wanted) or not all(map(are_compatible, kind.shape, wanted)):
                raise InvalidProgram(
                    f"shape of operand {place}",
                    where=done.where,
                    got=str(kind),
                    wanted=f"[{','.join(map(format_dim, wanted))}]",
                )
        return [LocalValue(kind, name) for kind in infer_local_results(done, mesh)]

    def __str__(self) -> str:
        lines = [f"mesh @{name} {cluster.mesh.notation}" for name, cluster in self.clusters.items()]
        lines += [f"argument %{name}: {value.type} on @{value.mesh}" for name, value in self.arguments]
        return "\n".join([*lines, *map(str, self.instructions), "return " + ", ".join(f"%{n}" for n in self.outputs)])


def _check_option(done: LocalOp, mesh: Mesh) -> None:
    """Check for one list of mesh axes per loop, no axis twice, and only splits that the op's rule allows."""
    loops = done.op.rule.loops
    axes = {axis for listed in done.option for axis in listed}
    good = (
        len(done.option) == len(loops)
        and axes <= set(range(len(mesh.axes)))
        and done.op.rule.uses_axes_once(done.option)
    )
    divided = zip(loops, done.option, strict=False)
    good = good and all(not axes or can_divide(loop, mesh.group_size(axes)) for loop, axes in divided)
    if not good or not done.op.rule.is_sound(done.option, mesh):
        names = " ".join(loop.name for loop in loops)
        raise InvalidProgram(
            "option the op does not allow", where=done.where, got=done.option, wanted=f"different mesh axes for {names}"
        )


def _local_operand_shape(done: LocalOp, place: int, mesh: Mesh) -> tuple[Dim, ...]:
    """Return the local shape in which the op reads an operand."""
    return local_shape(done.op.rule.shapes[place], done.operand_sharding(place, mesh), mesh)


def infer_local_results(done: LocalOp, mesh: Mesh) -> tuple[LocalType, ...]:
    """Return what a local op leaves on the devices of a mesh.

    Raises InvalidMesh where it is split over an unknown size.
    """
    for axes in filter(None, done.option):
        mesh.group_size(axes)
    return tuple(
        LocalType(local_shape(kind.shape, done.result_sharding(place, mesh), mesh), kind.dtype)
        for place, kind in enumerate(done.op.results)
    )


def _define(values: dict[str, LocalValue], name: str, value: LocalValue, *, where: str) -> None:
    if name in values:
        raise InvalidProgram("value defined twice", where=where, got=f"%{name}", wanted="a new name")
    values[name] = value


def _read_value(values: Mapping[str, LocalValue], name: str, where: str) -> LocalValue:
    if name not in values:
        raise InvalidProgram("use of an undefined value", where=where, got=f"%{name}", wanted="a value defined above")
    return values[name]
