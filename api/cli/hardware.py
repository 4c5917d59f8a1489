"""`hardware`: lists, shows, fits and calibrates the profiles that plans are priced with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.options import JsonOption, print_json
from planner.choose import hardware
from planner.choose.hardware.corrections import FittedCorrection, FittedCorrections
from planner.choose.hardware.fit import Refit, refit_hardware
from planner.choose.hardware.nccl_tests import read_runs
from planner.choose.hardware.op_times import read_fits
from planner.choose.hardware.op_transfer import find_kernels, list_measured
from planner.choose.op_prices import PRICED_CLASSES
from planner.documents.hardware import read_profile
from planner.documents.json_reader import read_json_lines, read_text
from planner.documents.json_writer import check_writable, write_json
from planner.documents.profiler_trace import read_profiler_trace
from planner.errors import InvalidHardware
from planner.units import format_share, format_time
from planner.usecases.calibrate import calibrate_profile, select_probes
from planner.usecases.fit_ops import MeasuredKernel, fit_ops, read_csv, read_trace
from planner.usecases.fit_steps import fit_steps, read_steps

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
            help="Output of nccl-tests (all_reduce_perf), times of ops (.csv), traces of torch.profiler (.json), "
            "training steps (.jsonl).",
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
    """Fit a profile's links to measured collectives, its kernels to times of ops, and its training steps."""
    check_writable(output)
    document = read_profile(profile)
    kinds = _sort_by_kind(files)
    runs = [run for file in kinds["links"] for run in read_runs(read_text(file), str(file))]
    parsed = hardware.parse_hardware(document)
    refits = refit_hardware(parsed, [timing for run in runs for timing in run.timings()], link)
    kernels, faults = _read_kernels(kinds["ops"])
    ops = fit_ops(parsed, kernels)
    own = _fit_links(document, refits, kinds["links"], output=output)
    own |= _add_corrections(own, "op_corrections", ops, files=kinds["ops"])
    steps, wrong = _fit_training_steps(kinds["steps"], own)
    own |= _add_corrections(own, "step_corrections", steps, files=kinds["steps"])
    faults, refused = [*faults, *wrong], [*ops.refused, *steps.refused]
    if not refits and not ops.corrections and not steps.corrections:
        raise InvalidHardware("nothing was fitted", where=profile, got="; ".join([*faults, *refused]) or "no rows")
    write_json(output, own)
    if as_json:
        links = [_fit_document(refit) for refit in refits]
        classes, software = ([_dump_correction(each) for each in fit.corrections] for fit in (ops, steps))
        found = {"links": links, "ops": classes, "steps": software, "refused": refused, "faults": faults}
        print_json({"name": output.stem, "runs": len(runs), **found})
        return
    _print_fits(refits, (*ops.corrections, *steps.corrections), [*refused, *faults])


def _print_fits(refits: Sequence[Refit], corrections: Sequence[FittedCorrection], faults: Sequence[str]) -> None:
    for refit in refits:
        typer.echo(f"{refit.name}: {refit.timings} measurements, {_format_errors(refit.before, refit.after)}")
    for each in corrections:
        typer.echo(f"{each.name}: {_format_correction(each)}")
    for line in faults:
        typer.echo(f"not fitted: {line}", err=True)


def _sort_by_kind(files: list[Path]) -> dict[str, list[Path]]:
    return {kind: [file for file in files if _find_kind(file) == kind] for kind in ("links", "ops", "steps")}


def _find_kind(file: Path) -> str:
    if file.name.endswith((".jsonl", ".jsonl.gz")):
        return "steps"
    return "ops" if file.name.endswith((".csv", ".json", ".json.gz")) else "links"


def _fit_training_steps(files: list[Path], document: dict[str, Any]) -> tuple[FittedCorrections, list[str]]:
    """Fit the steps of a profile whose links and kernels were fitted; return what is wrong with other lines too."""
    profile = hardware.parse_hardware(document)
    read = [read_steps(read_json_lines(file), profile, str(file)) for file in files]
    return fit_steps([step for steps, _ in read for step in steps]), [fault for _, wrong in read for fault in wrong]


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


def _add_corrections(
    document: dict[str, Any], key: str, fit: FittedCorrections, *, files: list[Path]
) -> dict[str, Any]:
    """Return the corrections of a profile under a key, with their sources."""
    listed = ", ".join(file.name for file in files)
    sources = {
        f"{key}.{each.name}": f"fit of measured times ({listed}): {_format_correction(each)}"
        for each in fit.corrections
    }
    corrections = {each.name: asdict(each.fitted) for each in fit.corrections}
    return {
        key: {**document.get(key, {}), **corrections},
        "sources": {**document.get("sources", {}), **sources},
    }


def _format_correction(correction: FittedCorrection) -> str:
    errors = _format_errors(correction.before, correction.after)
    return f"{correction.rows} measurements, {errors} by fits without the row"


def _dump_correction(correction: FittedCorrection) -> dict[str, Any]:
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
