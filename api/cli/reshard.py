"""`reshard`: brings one tensor from one layout to another, on one mesh or two."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.options import JsonOption, print_json_or_lines
from api.cli.parameters import with_options
from api.options import ReshardOptions
from api.reshard import solve_reshard
from planner.choose import hardware
from planner.documents.graphs import load_sharding, read_mesh
from planner.documents.hardware import read_hardware
from planner.documents.json_reader import parse_json
from planner.documents.reshard import read_cases
from planner.documents.schemas import ShardingDocument, validate_document
from planner.errors import InvalidRequest
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.reshard.cross_mesh import PlacedSharding
from planner.units import format_bytes, format_time

MAX_DEVICES_SHOWN = 16
HardwareOption = Annotated[str, typer.Option("--hardware", help="The profile to price with: a name, or a file.")]
DevicesOption = Annotated[
    str | None, typer.Option(help="Numbers of the mesh's devices: 0-3, or 4,6,5,7 (else from 0).")
]
TargetDevicesOption = Annotated[str | None, typer.Option(help="Numbers of the target mesh's devices (else from 0).")]


@with_options
def reshard(
    mesh: Annotated[str | None, typer.Option(help="dp=2,tp=4, or 2x4, or a mesh document.")] = None,
    shape: Annotated[str | None, typer.Option(help="6x6.")] = None,
    *,
    source: Annotated[str | None, typer.Option(help="[[0],[1]], or a sharding as in documents.")] = None,
    target: Annotated[str | None, typer.Option(help="[[1],[0]], or a sharding as in documents.")] = None,
    cases: Annotated[
        Path | None, typer.Option(help="Instead of one reshard: a file of cases. Prints one line of JSON per case.")
    ] = None,
    options: ReshardOptions,
    target_mesh: Annotated[str | None, typer.Option(help="The mesh of the target (else the same mesh).")] = None,
    devices: DevicesOption = None,
    target_devices: TargetDevicesOption = None,
    hardware_name: HardwareOption = hardware.DEFAULT_PROFILE,
    as_json: JsonOption = False,
) -> None:
    """Find the cheapest program between two shardings of a tensor (exit code 1 where its result is wrong)."""
    profile = read_hardware(hardware_name)
    if cases:
        reshards = read_cases(cases)
    elif mesh is None or shape is None or source is None or target is None:
        raise InvalidRequest("nothing to reshard", wanted="--mesh, --shape, --source and --target, or --cases")
    else:
        from_mesh = read_mesh(mesh)
        to_mesh = read_mesh(target_mesh) if target_mesh else from_mesh
        before = _parse_layout(source, from_mesh, devices, where="--source")
        after = _parse_layout(target, to_mesh, target_devices or (None if target_mesh else devices), where="--target")
        reshards = [("reshard", before, after, TensorType(_parse_shape(shape), options.dtype))]
    any_wrong = False
    for name, before, after, kind in reshards:
        document = solve_reshard(name, before, after, kind=kind, profile=profile, options=options)
        any_wrong |= document["verified"] is False
        print_json_or_lines(document, bool(cases) or as_json, _format_reshard)
    if any_wrong:
        raise typer.Exit(1)


def _parse_layout(text: str, mesh: Mesh, devices: str | None, *, where: str) -> PlacedSharding:
    raw = parse_json(text.encode(), where)
    document = validate_document(ShardingDocument, {"split_axes": raw} if isinstance(raw, list) else raw, where)
    return PlacedSharding(load_sharding(document, mesh), mesh, parse_device_numbers(devices, mesh))


def parse_device_numbers(text: str | None, mesh: Mesh) -> tuple[int, ...]:
    if text is None:
        return tuple(range(mesh.devices))
    if bounds := re.fullmatch(r"(\d{1,5})-(\d{1,5})", text, re.ASCII):
        return tuple(range(int(bounds[1]), int(bounds[2]) + 1))
    if not re.fullmatch(r"\d{1,5}(,\d{1,5})*", text, re.ASCII):
        raise InvalidRequest("device numbers", got=text, wanted="0-3, or 4,6,5,7")
    return tuple(map(int, text.split(",")))


def _parse_shape(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"(\d{1,12}(x\d{1,12})*)?", text, re.ASCII):
        raise InvalidRequest("shape", got=text, wanted="sizes, e.g. 6x6")
    return tuple(map(int, text.split("x"))) if text else ()


def _format_reshard(document: dict[str, Any]) -> list[str]:
    """Return the lines that describe a reshard."""
    steps = [f"{number}. {_format_step(step)}" for number, step in enumerate(document["steps"], 1)]
    bound = document["bound_s"]
    proven = "" if bound is None else f", proven not below {format_time(bound)}"
    size, least = document["total_bytes"], document["bound_bytes"]
    return [
        *(steps or ["nothing to do"]),
        f"time {format_time(document['time_s'])}{proven}; rounds {document['rounds']}",
        f"received {size} bytes in total (lower bound {least}), at most {document['max_device_bytes']} by one device",
        f"largest buffer {format_bytes(document['peak_buffer_bytes'])}, peak memory "
        f"{format_bytes(document['peak_bytes'])}",
        f"  by device: {_format_sizes(document['device_bytes'])}",
        format_verified(document["verified"]),
    ]


def _format_sizes(sizes: list[int]) -> str:
    return " ".join(map(str, sizes[:MAX_DEVICES_SHOWN])) + (" …" if sizes[MAX_DEVICES_SHOWN:] else "")


def _format_step(step: dict[str, Any]) -> str:
    dims = f" dim {step['dim']}" if "dim" in step else ""
    dims = f" dim {step['source_dim']} -> {step['dim']}" if "source_dim" in step else dims
    axes = f" over {','.join(step['axes'])}" if "axes" in step else " between meshes"
    time = format_time(step["time_s"])
    return f"{step['collective']}{axes}{dims}: {time}, {step['bytes']} bytes, {step['rounds']} rounds"


def format_verified(verified: bool | None) -> str:
    return {True: "verified on every logical device", False: "WRONG when run", None: "not run"}[verified]
