"""`migrate`: moves parameters and optimizer state, or a checkpoint of them, from one plan's layout to another's."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.options import JsonOption, print_json_or_lines, requires_extra
from api.cli.parameters import with_options
from api.cli.reshard import (
    DevicesOption,
    HardwareOption,
    TargetDevicesOption,
    format_verified,
    parse_device_numbers,
)
from api.options import TransferOptions
from planner.choose import hardware
from planner.documents.hardware import read_hardware
from planner.documents.plans import read_plan
from planner.documents.programs import load_program
from planner.documents.reshard import dump_migration
from planner.errors import InvalidRequest
from planner.ir.program import Program
from planner.reshard.cheapest_path import Objective
from planner.units import format_bytes, format_time
from planner.usecases.migrate import plan_migration, verify_reshard


@with_options
def migrate(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The plan whose layout the state has.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The plan whose layout the state gets.")],
    *,
    options: TransferOptions,
    devices: DevicesOption = None,
    target_devices: TargetDevicesOption = None,
    hardware_name: HardwareOption = hardware.DEFAULT_PROFILE,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A checkpoint of torch.distributed.checkpoint to convert.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Where the converted checkpoint is written.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Move parameters, buffers and optimizer state from one plan's layout to another's."""
    if (checkpoint is None) != (output is None):
        raise InvalidRequest("converting a checkpoint", where="migrate", wanted="both --checkpoint and --output")
    before, after = (load_program(read_plan(path)) for path in (old, new))
    numbers = [parse_device_numbers(devices, before.mesh), parse_device_numbers(target_devices, after.mesh)]
    migration = plan_migration(
        before, after, read_hardware(hardware_name), objective=Objective(options.objective), devices=numbers
    )
    verdicts = [verify_reshard(path) for path in migration.distinct_ways] if options.verify else [None]
    document = dump_migration(migration, None if None in verdicts else all(verdicts))
    if checkpoint is not None and output is not None:
        document["checkpoint"] = _convert(checkpoint, output, after)
    print_json_or_lines(document, as_json, _format_migration)
    if False in verdicts:
        raise typer.Exit(1)


def _convert(source: Path, target: Path, new: Program) -> dict[str, Any]:
    with requires_extra("torch", "migrate --checkpoint"):
        from planner.export.torch_program.checkpoints import convert_checkpoint
    return {"path": str(target), **asdict(convert_checkpoint(source, target, new))}


def _format_migration(document: dict[str, Any]) -> list[str]:
    moved = [value for value in document["values"] if value["steps"]]
    lines = [
        f"{value['name']}: {', '.join(step['collective'] for step in value['steps'])}; "
        f"{format_bytes(value['total_bytes'])}, {format_time(value['time_s'])}"
        for value in moved
    ]
    return [
        *lines,
        f"{len(moved)} of {len(document['values'])} values move: {format_bytes(document['total_bytes'])} in total "
        f"(lower bound {format_bytes(document['min_total_bytes'])}), {format_time(document['time_s'])}, "
        f"at most {format_bytes(document['max_device_bytes'])} by one device",
        format_verified(document["verified"]),
        *(_format_checkpoint(document["checkpoint"]) if "checkpoint" in document else []),
    ]


def _format_checkpoint(written: dict[str, Any]) -> list[str]:
    total, most = (format_bytes(written[key]) for key in ("total_bytes", "max_device_bytes"))
    return [f"{written['path']}: {written['tensors']} tensors, {total}, at most {most} in the file of one device"]
