"""`hardware`: lists, shows, fits and calibrates the profiles that plans are priced with."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.options import JsonOption, print_json
from planner.choose import hardware
from planner.choose.hardware.fit import Refit, refit_hardware
from planner.choose.hardware.nccl_tests import read_runs
from planner.choose.hardware.op_corrections import Correction
from planner.choose.hardware.op_times import read_fits
from planner.choose.hardware.op_transfer import find_kernels, list_measured
from planner.choose.op_prices import PRICED_CLASSES
from planner.documents.hardware import read_profile
from planner.documents.json_reader import read_text
from planner.documents.json_writer import check_writable, write_json
from planner.documents.profiler_trace import read_profiler_trace
from planner.errors import InvalidHardware
from planner.units import format_share, format_time
from planner.usecases.calibrate import calibrate_profile, select_probes
from planner.usecases.fit_ops import MeasuredKernel, OpsFit, fit_ops, read_csv, read_trace

Profile = Annotated[Path, typer.Option("--output", "-o", help="The profile to write (.json).")]

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.command("list")
def list_hardware(as_json: JsonOption = False) -> None:
    """List the built-in profiles."""
    names = hardware.list_profiles()
    if as_json:
        print_json({"hardware": names})
    else:
        typer.echo("\n".join(names))


@app.command("show")
def show_hardware(
    name: str, ops: Annotated[bool, typer.Option("--ops", help="Show the fitted times of kernels instead.")] = False
) -> None:
    """Show a profile with the source of every number, or the fitted times of its kernels with their errors."""
    source = hardware.read_source(name)
    typer.echo("\n".join(_format_fits(name)) if ops else source, nl=ops)


def _format_fits(name: str) -> list[str]:
    """Return a line for each class of kernels that a device has: its own ones, else those of other devices."""
    profile, lines = hardware.load_profile(name), []
    for op, variant in list_measured():
        if profile.op_times is None and op in PRICED_CLASSES:
            continue
        times = find_kernels(profile, op, variant)
        fit = read_fits(times.device)[times.key]
        held_out = ", ".join(
            f"{words} {format_share(fit['held_out'][key])}"
            for key, words in (("median", "median error"), ("p90", "90th percentile"))
        )
        low, high = times.interval
        lines.append(
            f"{times.source}: {fit['rows']} rows; on its shapes kept out {held_out}; "
            f"measured is {low:.2f} to {high:.2f} times predicted; {fit['source']}"
        )
    return lines


@app.command("fit")
def fit_hardware(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Output of nccl-tests (all_reduce_perf), times of ops (.csv), traces of torch.profiler (.json).",
        ),
    ],
    output: Profile,
    profile: Annotated[
        str, typer.Option(help="The profile to start from: a name, or a profile.json.")
    ] = hardware.DEFAULT_PROFILE,
    *,
    link: Annotated[str | None, typer.Option(help="The link between hosts (else the second tier's).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Fit a profile's links to measured collectives, and its kernels to measured times of ops."""
    check_writable(output)
    document = read_profile(profile)
    parsed = hardware.parse_hardware(document)
    kernels, faults = _read_kernels([file for file in files if _is_of_ops(file)])
    collectives = [file for file in files if not _is_of_ops(file)]
    runs = [run for file in collectives for run in read_runs(read_text(file), str(file))]
    timings = [timing for run in runs for timing in run.timings()]
    refits = refit_hardware(parsed, timings, link)
    fit = fit_ops(parsed, kernels)
    if not refits and not fit.corrections:
        raise InvalidHardware("nothing was fitted", where=profile, got="; ".join([*faults, *fit.refused]) or "no rows")
    own = _fit_links(document, refits, collectives, output=output)
    write_json(output, own | _fit_kernels(own, fit, files))
    if as_json:
        links, classes = (
            [_fit_document(refit) for refit in refits],
            [_dump_correction(each) for each in fit.corrections],
        )
        found = {"links": links, "ops": classes, "refused": list(fit.refused), "faults": faults}
        print_json({"name": output.stem, "runs": len(runs), **found})
        return
    _print_fit(refits, fit, faults)


def _print_fit(refits: list[Refit], fit: OpsFit, faults: list[str]) -> None:
    for refit in refits:
        typer.echo(f"{refit.name}: {refit.timings} measurements, {_format_errors(refit.before, refit.after)}")
    for each in fit.corrections:
        kept = f"{_format_errors(each.before, each.after)} by fits without the row"
        typer.echo(f"{each.name}: {each.rows} measurements, {kept}")
    for line in (*fit.refused, *faults):
        typer.echo(f"not fitted: {line}", err=True)


def _is_of_ops(file: Path) -> bool:
    return file.name.endswith((".csv", ".json", ".json.gz"))


def _read_kernels(files: list[Path]) -> tuple[list[MeasuredKernel], list[str]]:
    """Return the measured kernels of CSV files and traces, and what is wrong with other lines."""
    kernels: list[MeasuredKernel] = []
    faults: list[str] = []
    for file in files:
        if file.name.endswith(".csv"):
            read, wrong = read_csv(read_text(file), str(file))
        else:
            read, wrong = read_trace(read_profiler_trace(file)), []
        kernels += read
        faults += wrong
    return kernels, faults


def _fit_kernels(document: dict[str, Any], fit: OpsFit, files: list[Path]) -> dict[str, Any]:
    """Return the corrections of a profile with their sources."""
    listed = ", ".join(file.name for file in files if _is_of_ops(file))
    sources = {
        f"op_corrections.{each.name}": f"fit of measured times ({listed}): {each.rows} measurements, "
        f"{_format_errors(each.before, each.after)} by fits without the row"
        for each in fit.corrections
    }
    corrections = {each.name: asdict(each.fitted) for each in fit.corrections}
    return {
        "op_corrections": {**document.get("op_corrections", {}), **corrections},
        "sources": {**document.get("sources", {}), **sources},
    }


def _dump_correction(correction: Correction) -> dict[str, Any]:
    return {
        "name": correction.name,
        "rows": correction.rows,
        "median_error_before": correction.before,
        "median_error_after": correction.after,
    }


def _fit_document(refit: Refit) -> dict[str, Any]:
    errors = {"median_error_before": refit.before, "median_error_after": refit.after}
    return {"name": refit.name, "timings": refit.timings, **errors}


def _format_errors(before: float, after: float) -> str:
    return f"median error {format_share(before)} before, {format_share(after)} after"


@app.command("calibrate")
def calibrate_hardware(
    output: Profile,
    backend: Annotated[str, typer.Option(help="numpy or cupy.")] = "numpy",
    profile: Annotated[
        str, typer.Option(help="The profile to take the links from: a name, or a profile.json.")
    ] = "cpu",
    *,
    op: Annotated[list[str] | None, typer.Option(help="Only this op; may be given several times.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the times of ops on this machine's device (about ten seconds on an idle CPU)."""
    check_writable(output)
    document = calibrate_profile(read_profile(profile), output.stem, backend, probes=select_probes(op or []))
    write_json(output, document)
    shown = {key: document[key] for key in ("name", "peak_flops", "memory_bandwidth", "memory_bytes", "launch_s")}
    if as_json:
        print_json({**shown, "curves": len(document["curves"])})
        return
    rate, moved = document["peak_flops"]["f32"] / 1e9, document["memory_bandwidth"] / 1e9
    launch, count = format_time(document["launch_s"]), len(document["curves"])
    typer.echo(f"{output.stem}: f32 {rate:.1f} Gflop/s, memory {moved:.1f} GB/s, launch {launch}, {count} ops measured")


def _fit_links(document: dict[str, Any], refits: list[Refit], files: list[Path], *, output: Path) -> dict[str, Any]:
    """Return a profile's document with the fitted links and their source."""
    listed = ", ".join(file.name for file in files)
    sources = {
        f"links.{refit.name}": f"fit of nccl-tests output ({listed}), from {document['name']}: "
        f"{refit.timings} measurements, {_format_errors(refit.before, refit.after)}"
        for refit in refits
    }
    return {
        **document,
        "name": output.stem,
        "links": {**document["links"], **{refit.name: asdict(refit.link) for refit in refits}},
        "sources": {**document.get("sources", {}), **sources},
    }
