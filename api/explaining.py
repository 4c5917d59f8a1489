"""`explain`: where a plan's time and memory go, and why an op is sharded as it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from api.console import Json, PlanFile, console, print_json
from api.units import show_bytes, show_time
from planner.choose.cost import PICO
from planner.documents.explanations import decision_document, explained, overview_document
from planner.documents.plans import read_plan

Document = dict[str, Any]
ROWS, REASONS, SECONDS = 8, 3, 4.0


def explain(
    plan_file: PlanFile,
    name: Annotated[str | None, typer.Argument(metavar="[OP]", help="An op, or a graph input.")] = None,
    time_limit: Annotated[float, typer.Option(min=0, help="Seconds for what needs solving anew.")] = SECONDS,
    options: Annotated[int, typer.Option(min=0, help="How many other options are forced.")] = ROWS,
    as_json: Json = False,
) -> None:
    """Say where a plan's time and memory go, or what an op's other options would cost."""
    document = read_plan(plan_file)
    if name is None:
        found = overview_document(document, time_limit)
        parts = _overview(found) if "step_ps" in found else _infeasible(found)
    else:
        known = explained(document)
        asked = known.decision(name)
        found = decision_document(known, asked, known.forced(asked, options, time_limit))
        parts = _decision(found)
    if as_json:
        print_json(found)
    else:
        console().print(Group(*(Padding(part, (0, 0, 1, 0)) for part in parts)))


def _overview(found: Document) -> Iterator[Any]:
    step = found["step_ps"]
    yield from _objective(found)
    yield Text(f"step {_time(step)}: {_shared('compute', found)}, {_shared('communication', found)}", style="bold")
    rows = [(each["what"], each["count"], _time(each["time_ps"]), _share(each, step)) for each in found["ops"]]
    yield _table("Ops", ("op", "count", "time", "of the step"), rows)
    groups = found["collectives"]
    named = [(f"{g['what']} {','.join(g['axes'])}", g["count"], _time(g["time_ps"]), _share(g, step)) for g in groups]
    yield _table("Collectives", ("collective", "count", "time", "of the step"), named)
    yield Text(_beside(found["overlap"], step))
    if found["products"]:
        yield _products(found["products"])
    single = found["dearest_ops"]
    yield _table("Dearest ops", ("op", "is", "time"), [(s["id"], s["what"], _time(s["time_ps"])) for s in single])
    yield _peak(found["memory"])
    price = found["memory_price_s_per_gib"]
    yield Text(f"a further GiB a device would save about {show_time(price)}" if price else "memory has no price here")
    lines = [
        f"{turn['link']} at {turn['factor']:.3g} of its bandwidth: {turn['layout']} is faster"
        for turn in found["sensitivity"]
    ]
    yield Text("\n".join(lines) or "no known layout that fits is faster at any bandwidth up to 1024 times less or more")


def _objective(found: Document) -> Iterator[Text]:
    """Terms are seconds, whatever the plan has the least of."""
    least = {"bytes": "receives the fewest bytes", "memory": "holds the least memory"}.get(found["objective"])
    if least is not None:
        yield Text(f"the plan {least} that was found; what follows speaks of time")


def _beside(overlap: Document, step: int) -> str:
    scheduled, floor = overlap["scheduled_s"], overlap["floor_s"]
    counted = overlap["step_s"]
    told = "" if counted == step * PICO else f"; with the profile's overlap a step takes {show_time(counted)}"
    return (
        f"collectives beside ops: {show_time(scheduled)} by schedule, not below {show_time(floor)} in any order, "
        f"one after the other {_time(step)}{told}"
    )


def _products(products: list[Document]) -> Table:
    rows = [
        (each["op"], show_bytes(each["received_bytes"]), show_bytes(each["bound_bytes"]), _ratio(each["ratio"]))
        for each in products
    ]
    title = "Products that receive most a device; the least with one copy of everything"
    return _table(title, ("op", "received", "least", "ratio"), rows)


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _shared(part: str, found: Document) -> str:
    time = found[f"{part}_ps"]
    return f"{part} {_time(time)} ({_part(time, found['step_ps'])})"


def _infeasible(found: Document) -> Iterator[Any]:
    least, bound = found["least_limit_bytes"], found["least_limit_bound_bytes"]
    known = "no limit is known to be enough" if least is None else f"{show_bytes(least)} is known to be enough"
    yield Text(
        f"{found['status']}: limit {show_bytes(found['limit_bytes'])} a device; {known}, "
        f"less than {show_bytes(bound or 0)} cannot be",
        style="bold",
    )
    if found["memory"]:
        yield _peak(found["memory"])


def _peak(memory: Document) -> Table:
    kinds = ", ".join(f"{kind} {show_bytes(size)}" for kind, size in memory["by_kind"].items())
    title = (
        f"Memory a device: peak {show_bytes(memory['peak_bytes'])} of {show_bytes(memory['limit_bytes'])} "
        f"while {memory['at']} is made: {kinds}"
    )
    rows = [(each["value"], each["kind"], each["by"], show_bytes(each["bytes"])) for each in memory["largest"]]
    return _table(title, ("value", "kind", "made by", "bytes"), rows)


def _decision(found: Document) -> Iterator[Any]:
    yield from _objective(found)
    yield Text(f"{found['role']} {found['name']}: {len(found['options'])} options; step {_time(found['step_ps'])}")
    listed = [option for option in found["options"] if option["chosen"] or option["forced"]]
    rows = [
        (
            ("> " if option["chosen"] else "  ") + option["option"],
            _time(option["compute_ps"]),
            _moved(option, "in"),
            _moved(option, "out"),
            show_bytes(option["peak_bytes"]) + ("" if option["fits"] else ", too much"),
            _forced(option, found["step_ps"]),
        )
        for option in listed
    ]
    columns = ("option", "own time", "reshards in", "reshards out", "peak", "the whole step, if forced")
    yield _table("Other decisions kept; then solved anew around each option", columns, rows, len(rows))
    if moved := found["communication"]:
        least = f"{show_bytes(moved['bound_bytes'])} with one copy of everything, ratio {_ratio(moved['ratio'])}"
        yield Text(f"receives {show_bytes(moved['received_bytes'])} a device for this product; at least {least}")
    chosen = next(option for option in found["options"] if option["chosen"])
    for option in [each for each in listed if each is not chosen][:REASONS]:
        if lines := list(_against(option, chosen)):
            yield Text("\n".join([f"{option['option']}: decided by", *lines]))


def _moved(option: Document, direction: str) -> str:
    times = [each["time_ps"] for each in option["reshards"] if each["direction"] == direction]
    return "no way" if None in times else _time(sum(times))


def _forced(option: Document, step: int) -> str:
    if option["chosen"]:
        return _time(step)
    forced = option["forced"]
    if forced["infeasible"]:
        return "none fits (proven)"
    if forced["cost_ps"] is None:
        return f"at least {_time(forced['bound_ps'])}; none found"
    more = f"{_time(forced['cost_ps'])} ({(forced['cost_ps'] - step) / max(step, 1):+.2%})"
    return f"{more}, exact" if forced["exact"] else f"at most {more}, at least {_time(forced['bound_ps'])}"


def _against(option: Document, chosen: Document) -> Iterator[str]:
    """The reshards that an option needs and the chosen one does not, or not at that price."""
    for mine, theirs in zip(option["reshards"], chosen["reshards"], strict=True):
        if mine["time_ps"] is None or mine["time_ps"] > theirs["time_ps"]:
            ends = (mine["there"], mine["here"]) if mine["direction"] == "in" else (mine["here"], mine["there"])
            time = "no way" if mine["time_ps"] is None else _time(mine["time_ps"])
            where = "from" if mine["direction"] == "in" else "to"
            way = " -> ".join(_placed(end) for end in ends)
            yield f"  {mine['value']} {where} {mine['neighbour']}: {way}, {time}"


def _placed(sharding: Document) -> str:
    split = "[" + ", ".join("/".join(axes) or "·" for axes in sharding["split_axes"]) + "]"
    return split + (f" partial {'/'.join(sharding['partial']['axes'])}" if "partial" in sharding else "")


def _table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[object, ...]], most: int = ROWS) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
    listed = list(rows)
    for row in listed[:most]:
        table.add_row(*map(str, row))
    if len(listed) > most:
        table.add_row(f"and {len(listed) - most} more")
    return table


def _time(picoseconds: int) -> str:
    return show_time(picoseconds * PICO)


def _share(group: Document, step: int) -> str:
    return _part(group["time_ps"], step)


def _part(time: int, step: int) -> str:
    return f"{time / max(step, 1):.1%}"
