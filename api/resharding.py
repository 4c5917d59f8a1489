"""`reshard` and `migrate`: one tensor, or all state of a plan, from one layout to another."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from api.units import parse_bytes, show_bytes, show_time
from planner.choose import hardware
from planner.choose.route import Objective
from planner.documents.graphs import read_mesh, sharding_from
from planner.documents.hardware import read_hardware
from planner.documents.plans import read_plan
from planner.documents.programs import program_from
from planner.documents.reading import parse_json
from planner.documents.reshards import migration_document, read_cases, reshard_document
from planner.documents.schemas import ShardingDocument, checked
from planner.errors import InvalidRequest
from planner.migration import migrate as migrated
from planner.migration import runs_right, way_between
from planner.model.between import Place
from planner.model.graph import TensorType
from planner.model.mesh import Mesh

DEVICES = 16
HardwareName = Annotated[str, typer.Option("--hardware", help="The profile it is priced on: a name, or a file.")]
Least = Annotated[Objective, typer.Option(help="What to have least of: time, or bytes received in all.")]
Validate = Annotated[bool, typer.Option("--validate/--no-validate", help="Run it on every logical device.")]
Numbers = Annotated[str | None, typer.Option(help="Numbers of the mesh's devices: 0-3, or 4,6,5,7 (else from 0).")]
TargetNumbers = Annotated[str | None, typer.Option(help="Numbers of the target mesh's devices (else from 0).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def reshard(
    mesh: Annotated[str | None, typer.Option(help="dp=2,tp=4, or 2x4, or a mesh document.")] = None,
    shape: Annotated[str | None, typer.Option(help="6x6.")] = None,
    dtype: Annotated[str, typer.Option(help="Element type.")] = "f32",
    source: Annotated[str | None, typer.Option(help="[[0],[1]], or a sharding as in documents.")] = None,
    target: Annotated[str | None, typer.Option(help="[[1],[0]], or a sharding as in documents.")] = None,
    cases: Annotated[Path | None, typer.Option(help="A file of cases in their place; one line of JSON a case.")] = None,
    objective: Least = Objective.TIME,
    memory_limit: Annotated[str | None, typer.Option(help="For what a step reads and makes, a device: 80GiB.")] = None,
    target_mesh: Annotated[str | None, typer.Option(help="Another mesh to go to.")] = None,
    devices: Numbers = None,
    target_devices: TargetNumbers = None,
    hardware_name: HardwareName = hardware.DEFAULT,
    schedule: Annotated[bool, typer.Option("--schedule", help="List the rounds of every exchange.")] = False,
    validate: Validate = True,
    as_json: Json = False,
) -> None:
    """Find the cheapest program between two shardings of a tensor (exit code 1 where it runs wrong)."""
    limit = None if memory_limit is None else parse_bytes(memory_limit)
    profile = read_hardware(hardware_name)
    if cases:
        listed = read_cases(cases)
    elif mesh is None or shape is None or source is None or target is None:
        raise InvalidRequest("nothing to reshard", wanted="--mesh, --shape, --source and --target, or --cases")
    else:
        here = read_mesh(mesh)
        there = read_mesh(target_mesh) if target_mesh else here
        before = _place(source, here, devices, "--source")
        after = _place(target, there, target_devices or (None if target_mesh else devices), "--target")
        listed = [("reshard", before, after, TensorType(_shape(shape), dtype))]
    wrong = False
    for name, before, after, kind in listed:
        way = way_between(before, after, kind, profile, objective, limit)
        document = reshard_document(name, way, runs_right(way) if validate else None, schedule)
        wrong |= document["verified"] is False
        typer.echo(json.dumps(document) if cases or as_json else "\n".join(_lines(document)))
    if wrong:
        raise typer.Exit(1)


def migrate(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The plan whose layout the state has.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The plan whose layout it shall have.")],
    objective: Least = Objective.TIME,
    devices: Numbers = None,
    target_devices: TargetNumbers = None,
    hardware_name: HardwareName = hardware.DEFAULT,
    validate: Validate = True,
    as_json: Json = False,
) -> None:
    """Take parameters, buffers and optimizer state from one plan's layout to another's."""
    before, after = (program_from(read_plan(path)) for path in (old, new))
    numbers = [_numbers(devices, before.mesh), _numbers(target_devices, after.mesh)]
    found = migrated(before, after, read_hardware(hardware_name), objective, numbers)
    verdicts = [runs_right(way) for way in found.ways] if validate else [None]
    document = migration_document(found, None if None in verdicts else all(verdicts))
    typer.echo(json.dumps(document) if as_json else "\n".join(_migration_lines(document)))
    if False in verdicts:
        raise typer.Exit(1)


def _place(text: str, mesh: Mesh, devices: str | None, where: str) -> Place:
    raw = parse_json(text.encode(), where)
    document = checked(ShardingDocument, {"split_axes": raw} if isinstance(raw, list) else raw, where)
    return Place(sharding_from(document, mesh), mesh, _numbers(devices, mesh))


def _numbers(text: str | None, mesh: Mesh) -> tuple[int, ...]:
    if text is None:
        return tuple(range(mesh.devices))
    if found := re.fullmatch(r"(\d{1,5})-(\d{1,5})", text, re.ASCII):
        return tuple(range(int(found[1]), int(found[2]) + 1))
    if not re.fullmatch(r"\d{1,5}(,\d{1,5})*", text, re.ASCII):
        raise InvalidRequest("device numbers", got=text, wanted="0-3, or 4,6,5,7")
    return tuple(map(int, text.split(",")))


def _shape(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"(\d{1,12}(x\d{1,12})*)?", text, re.ASCII):
        raise InvalidRequest("shape", got=text, wanted="sizes, e.g. 6x6")
    return tuple(map(int, text.split("x"))) if text else ()


def _lines(document: dict[str, Any]) -> list[str]:
    """A way for people."""
    steps = [f"{number}. {_step(step)}" for number, step in enumerate(document["steps"], 1)]
    bound = document["bound_s"]
    proven = "" if bound is None else f", not below {show_time(bound)}"
    size, least = document["total_bytes"], document["bound_bytes"]
    return [
        *(steps or ["nothing to do"]),
        f"time {show_time(document['time_s'])}{proven}; rounds {document['rounds']}",
        f"received {size} bytes in all ({least} at least), {document['max_device_bytes']} by one device at most",
        f"largest buffer {show_bytes(document['peak_buffer_bytes'])}, at a time {show_bytes(document['peak_bytes'])}",
        f"  by device: {_clipped(document['device_bytes'])}",
        _verdict(document["verified"]),
    ]


def _clipped(sizes: list[int]) -> str:
    return " ".join(map(str, sizes[:DEVICES])) + (" …" if sizes[DEVICES:] else "")


def _step(step: dict[str, Any]) -> str:
    dims = f" dim {step['dim']}" if "dim" in step else ""
    dims = f" dim {step['source_dim']} -> {step['dim']}" if "source_dim" in step else dims
    axes = f" over {','.join(step['axes'])}" if "axes" in step else " between meshes"
    return (
        f"{step['collective']}{axes}{dims}: {show_time(step['time_s'])}, {step['bytes']} bytes, {step['rounds']} rounds"
    )


def _verdict(verified: bool | None) -> str:
    return {True: "verified on every logical device", False: "WRONG when run", None: "not run"}[verified]


def _migration_lines(document: dict[str, Any]) -> list[str]:
    moved = [value for value in document["values"] if value["steps"]]
    lines = [
        f"{value['name']}: {', '.join(step['collective'] for step in value['steps'])}; "
        f"{show_bytes(value['total_bytes'])}, {show_time(value['time_s'])}"
        for value in moved
    ]
    return [
        *lines,
        f"{len(moved)} of {len(document['values'])} values move: {show_bytes(document['total_bytes'])} in all "
        f"({show_bytes(document['min_total_bytes'])} by any method), {show_time(document['time_s'])}, "
        f"{show_bytes(document['max_device_bytes'])} by one device at most",
        _verdict(document["verified"]),
    ]
