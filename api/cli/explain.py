"""`explain`: shows where a plan's time and memory go, and why an op is sharded as it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from api.cli.command_start import command_deadline
from api.cli.memory_price import describe_memory_price
from api.cli.options import JsonOption, PlanArgument, TimeLimitOption, console, print_json
from api.cli.progress import report_progress
from api.cli.render_explain_stages import render_stages_overview
from api.cli.tables import add_rows, build_table
from planner.choose.cost import PICO
from planner.documents.explain import dump_decision, dump_overview, explain_plan
from planner.documents.explain_stages import dump_stages_overview, explain_stage
from planner.documents.json_reader import read_json
from planner.documents.pipeline_sections import PipelineDocument
from planner.documents.pipelines import is_pipeline, parse_pipeline
from planner.documents.plan_sections import RequestDocument
from planner.documents.plans import parse_plan
from planner.documents.schemas import PlanDocument
from planner.planning.deadline import ProgressReporter
from planner.planning.infeasible import describe_limits
from planner.planning.plan_types import Request
from planner.units import format_bytes, format_time
from planner.usecases.explain import PlanExplanation

Document = dict[str, Any]
ROWS, REASONS, SECONDS = 8, 3, 4.0


def explain(
    plan_file: PlanArgument,
    name: Annotated[str | None, typer.Argument(metavar="[OP]", help="An op, or a graph input.")] = None,
    time_limit: TimeLimitOption = None,
    *,
    alternatives: Annotated[int, typer.Option(min=0, help="How many other options of OP to force, one by one.")] = ROWS,
    as_json: JsonOption = False,
) -> None:
    """Show where a plan's time and memory go, or what an op's other options would cost. Of a plan in pipeline stages,
    show why each cut is where it is, and what moving it by one unit costs."""
    raw, deadline = read_json(plan_file), command_deadline(time_limit)
    with report_progress(deadline) as report:
        if is_pipeline(raw):
            explanation = _explain_stages(parse_pipeline(raw, str(plan_file)), name, alternatives, report=report)
        else:
            explanation = _explain(parse_plan(raw, str(plan_file)), name, alternatives, report=report)
    if name is not None:
        parts = _render_decision(explanation)
    elif is_pipeline(raw):
        parts = render_stages_overview(explanation)
    else:
        parts = _render_overview(explanation) if "step_ps" in explanation else _render_infeasible(explanation)
    if as_json:
        print_json(explanation)
    else:
        console().print(Group(*(Padding(part, (0, 0, 1, 0)) for part in parts)))


def _explain(document: PlanDocument, name: str | None, alternatives: int, *, report: ProgressReporter) -> Document:
    """Return the explanation of a plan, or of an op."""
    if name is None:
        return dump_overview(document, _solve_seconds(document.request, report), report)
    return _explain_op(explain_plan(document, report), name, alternatives)


def _explain_stages(
    document: PipelineDocument, name: str | None, alternatives: int, *, report: ProgressReporter
) -> Document:
    """Return the explanation of a plan in stages, or of an op of the first stage that has it."""
    if name is None:
        return dump_stages_overview(document, report)
    return _explain_op(explain_stage(document, name, report), name, alternatives)


def _explain_op(explained: PlanExplanation, name: str, alternatives: int) -> Document:
    decision, seconds = explained.explain_decision(name), _solve_seconds(explained.request, explained.report)
    return dump_decision(explained, decision, explained.force_options(decision, alternatives, seconds))


def _solve_seconds(request: Request | RequestDocument, report: ProgressReporter) -> float:
    """Return the seconds in which options are re-solved: SECONDS, or those that are left.

    For a deterministic plan a limit is one of work.
    """
    left_s = report.deadline.seconds if request.deterministic else report.deadline.left_s
    return SECONDS if left_s is None else left_s


def _render_overview(explanation: Document) -> Iterator[Any]:
    step = explanation["step_ps"]
    yield from _render_objective(explanation)
    yield Text(
        f"step {_format_time(step)}: {_render_groups('compute', explanation)}, "
        f"{_render_groups('communication', explanation)}",
        style="bold",
    )
    rows = [
        (op["what"], op["count"], _format_time(op["time_ps"]), _format_share(op, step)) for op in explanation["ops"]
    ]
    yield _build_table("Ops", ("op", "count", "time", "of the step"), rows)
    collectives = explanation["collectives"]
    rows = [
        (f"{g['what']} {','.join(g['axes'])}", g["count"], _format_time(g["time_ps"]), _format_share(g, step))
        for g in collectives
    ]
    yield _build_table("Collectives", ("collective", "count", "time", "of the step"), rows)
    yield Text(_render_overlap(explanation["overlap"], step))
    if explanation["products"]:
        yield _render_products(explanation["products"])
    slowest = explanation["slowest_ops"]
    yield _build_table(
        "Slowest ops", ("op", "is", "time"), [(s["id"], s["what"], _format_time(s["time_ps"])) for s in slowest]
    )
    yield _render_peak(explanation["memory"])
    price = explanation["memory_price_s_per_gib"]
    yield Text(describe_memory_price(price) or "the memory limit is not binding")
    if explanation["sensitivity"] is None:
        yield Text("the time limit was up before other bandwidths were looked at")
        return
    lines = [
        f"{break_even['link']} at {break_even['factor']:.3g} of its bandwidth: {break_even['layout']} is faster"
        for break_even in explanation["sensitivity"]
    ]
    yield Text(
        "\n".join(lines)
        or "no standard layout that fits is faster at any bandwidth from 1/1024 to 1024 times the profile's"
    )


def _render_objective(explanation: Document) -> Iterator[Text]:
    """Yield a note where the plan minimises bytes or memory, because the terms below are times."""
    least = {"bytes": "receives the fewest bytes", "memory": "holds the least memory"}.get(explanation["objective"])
    if least is not None:
        yield Text(f"the plan {least} that was found; the terms below are times")


def _render_overlap(overlap: Document, step: int) -> str:
    scheduled, floor = overlap["scheduled_s"], overlap["lower_bound_s"]
    priced = overlap["step_s"]
    with_share = "" if priced == step * PICO else f"; with the profile's share of overlap {format_time(priced)}"
    return (
        f"with overlap: {format_time(scheduled)} by schedule, lower bound for any schedule {format_time(floor)}, "
        f"without overlap {_format_time(step)}{with_share}"
    )


def _render_products(products: list[Document]) -> Table:
    rows = [
        (
            product["op"],
            format_bytes(product["received_bytes"]),
            format_bytes(product["bound_bytes"]),
            _format_ratio(product["ratio"]),
        )
        for product in products
    ]
    title = "Matrix products that receive most per device, and the lower bound with one copy of every operand"
    return _build_table(title, ("op", "received", "least", "ratio"), rows)


def _format_ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _render_groups(part: str, explanation: Document) -> str:
    time = explanation[f"{part}_ps"]
    return f"{part} {_format_time(time)} ({_format_part(time, explanation['step_ps'])})"


def _render_infeasible(explanation: Document) -> Iterator[Any]:
    least, bound = explanation["least_limit_bytes"], explanation["least_limit_bound_bytes"]
    limit = format_bytes(explanation["limit_bytes"])
    yield Text(f"{explanation['status']}: limit {limit} per device; {describe_limits(least, bound)}", style="bold")
    if explanation["memory"]:
        yield _render_peak(explanation["memory"])


def _render_peak(memory: Document) -> Table:
    kinds = ", ".join(f"{kind} {format_bytes(size)}" for kind, size in memory["by_kind"].items())
    title = (
        f"Memory per device: peak {format_bytes(memory['peak_bytes'])} of {format_bytes(memory['limit_bytes'])} "
        f"while computing {memory['at']}: {kinds}"
    )
    rows = [
        (value["value"], value["kind"], value["producer"], format_bytes(value["bytes"])) for value in memory["largest"]
    ]
    return _build_table(title, ("value", "kind", "producer", "bytes"), rows)


def _render_decision(explanation: Document) -> Iterator[Any]:
    yield from _render_objective(explanation)
    yield Text(
        f"{explanation['role']} {explanation['name']}: {len(explanation['options'])} options; "
        f"step {_format_time(explanation['step_ps'])}"
        + (f"; priced by: {explanation['priced_by']}" if explanation["priced_by"] else "")
    )
    listed = [option for option in explanation["options"] if option["chosen"] or option["forced"]]
    rows = [
        (
            ("> " if option["chosen"] else "  ") + option["option"],
            _format_time(option["compute_ps"]),
            _format_reshards(option, "in"),
            _format_reshards(option, "out"),
            format_bytes(option["peak_bytes"]) + ("" if option["fits"] else ", too much"),
            _format_forced(option, explanation["step_ps"]),
        )
        for option in listed
    ]
    columns = ("option", "own time", "reshards in", "reshards out", "peak", "the whole step, if forced")
    yield _build_table(
        "Each option with all other decisions fixed, then with the neighbouring decisions solved again",
        columns,
        rows,
        most=len(rows),
    )
    if received := explanation["communication"]:
        least = format_bytes(received["bound_bytes"])
        yield Text(
            f"receives {format_bytes(received['received_bytes'])} per device for this product; "
            f"lower bound {least} with one copy of everything, ratio {_format_ratio(received['ratio'])}"
        )
    chosen = next(option for option in explanation["options"] if option["chosen"])
    for option in [option for option in listed if option is not chosen][:REASONS]:
        if lines := list(_format_difference(option, chosen)):
            yield Text("\n".join([f"{option['option']}: worse because of", *lines]))


def _format_reshards(option: Document, direction: str) -> str:
    times = [reshard["time_ps"] for reshard in option["reshards"] if reshard["direction"] == direction]
    return "impossible" if None in times else _format_time(sum(times))


def _format_forced(option: Document, step: int) -> str:
    if option["chosen"]:
        return _format_time(step)
    forced = option["forced"]
    if forced["infeasible"]:
        return "none fits (proven)"
    if forced["cost_ps"] is None:
        return f"at least {_format_time(forced['bound_ps'])}; none found"
    forced_time = f"{_format_time(forced['cost_ps'])} ({(forced['cost_ps'] - step) / max(step, 1):+.2%})"
    return (
        f"{forced_time}, exact"
        if forced["exact"]
        else f"at most {forced_time}, at least {_format_time(forced['bound_ps'])}"
    )


def _format_difference(option: Document, chosen: Document) -> Iterator[str]:
    """Yield the reshards that an option needs and the chosen option does not, or that cost more than the chosen
    option's.
    """
    for own, chosen_reshard in zip(option["reshards"], chosen["reshards"], strict=True):
        if own["time_ps"] is None or own["time_ps"] > chosen_reshard["time_ps"]:
            ends = own["neighbour_sharding"], own["own_sharding"]
            time = "impossible" if own["time_ps"] is None else _format_time(own["time_ps"])
            where = "from" if own["direction"] == "in" else "to"
            path = " -> ".join(map(_format_sharding, ends if own["direction"] == "in" else reversed(ends)))
            yield f"  {own['value']} {where} {own['neighbour']}: {path}, {time}"


def _format_sharding(sharding: Document) -> str:
    split = "[" + ", ".join("/".join(axes) or "·" for axes in sharding["split_axes"]) + "]"
    return split + (f" partial {'/'.join(sharding['partial']['axes'])}" if "partial" in sharding else "")


def _build_table(
    title: str, columns: tuple[str, ...], rows: Iterable[tuple[object, ...]], *, most: int = ROWS
) -> Table:
    return add_rows(build_table(title, *columns), rows, most)


def _format_time(picoseconds: int) -> str:
    return format_time(picoseconds * PICO)


def _format_share(group: Document, step: int) -> str:
    return _format_part(group["time_ps"], step)


def _format_part(time: int, step: int) -> str:
    return f"{time / max(step, 1):.1%}"
