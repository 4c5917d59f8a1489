"""`capacity`: finds the fewest, the cheapest and the fastest devices for a model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from api.cli.options import JsonOption, OutputOption, console, print_json
from api.cli.parameters import with_options
from api.cli.render_capacity import print_capacity_tables
from api.options import CapacityOptions, ModelOptions, ModelSeries
from api.remote_planner import plan_on_server
from planner import pipeline
from planner.documents.capacity import dump_capacity, dump_journal_line, load_journal
from planner.documents.graphs import read_mesh
from planner.documents.hardware import read_profile
from planner.documents.json_reader import read_json
from planner.documents.json_writer import check_writable, write_json
from planner.documents.plans import dump_plan
from planner.documents.schemas import GraphDocument, validate_document
from planner.errors import InvalidDocument, InvalidRequest
from planner.frontends import zoo
from planner.judge.mesh_candidates import enumerate_candidates, parse_device_counts
from planner.usecases import capacity as planning
from planner.usecases.capacity import StartTask
from planner.usecases.capacity_question import CapacityBudget, CapacityQuestion, CapacityWorkload, HardwareOffer
from planner.usecases.capacity_search import CapacitySearch
from planner.usecases.capacity_workloads import list_pass_batches, read_workload, zoo_workloads

DEFAULT_BATCH: int = ModelOptions.model_fields["batch"].default
Graphs = Annotated[
    list[str], typer.Argument(metavar="GRAPH...", help=f"Graph documents, or one of {', '.join(zoo.MODELS)}.")
]
Server = Annotated[str | None, typer.Option(help="A server whose workers plan; its API key in SHARDPLAN_KEY.")]
Journal = Annotated[Path | None, typer.Option(help="A file of finished candidates: a later run resumes from it.")]


@with_options
def capacity(
    graphs: Graphs,
    hardware: Annotated[
        str, typer.Option(help="Profiles (names or files); a price per device-hour may follow: h100-sxm=2.5,a100-sxm.")
    ],
    options: CapacityOptions,
    models: ModelSeries,
    *,
    mesh: Annotated[
        str | None, typer.Option(help="A mesh with sizes to fill in: dp=?,tp=8 (else every factorisation).")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=256, help="Meshes planned at the same time.")] = 2,
    server: Server = None,
    journal: Journal = None,
    plans: Annotated[Path | None, typer.Option(help="A folder for the plans of the frontier.")] = None,
    validate: Annotated[bool, typer.Option("--validate", help="Run the plans of the frontier.")] = False,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find which devices a model needs. Few of the meshes are planned; the others are proven to be no better.

    A named model takes the options of `import zoo`. Pipeline stages and micro-batches cannot be asked for yet: every
    plan is one pass over all layers on all devices.
    """
    for path in filter(None, (output, journal, plans and plans / "plan.json")):
        check_writable(path)
    question = _build_question(graphs, hardware, mesh, models=models, options=options)
    start = plan_on_server(server, question, options.time_limit_s) if server else None
    search = _search(question, jobs, start, time_limit=options.time_limit_s, journal=journal)
    budget = CapacityBudget(options.max_step_s, options.max_cost)
    documents = _write_plans(search, budget, plans, validate=validate) if plans or validate else {}
    _print_capacity(dump_capacity(search, budget, documents), output, as_json)


def _build_question(
    graphs: list[str], hardware: str, mesh: str | None, *, models: ModelSeries, options: CapacityOptions
) -> CapacityQuestion:
    workloads = tuple(w for name in graphs for w in _read_graphs(name, models, options.global_batch))
    offers = tuple(map(_parse_offer, hardware.split(",")))
    candidates = enumerate_candidates(
        len(workloads),
        len(offers),
        parse_device_counts(options.devices),
        axes=options.axes,
        template=read_mesh(mesh) if mesh else None,
    )
    return CapacityQuestion(workloads, offers, candidates, options.to_request(), options.tokens, options.global_batch)


def _print_capacity(document: dict[str, Any], output: Path | None, as_json: bool) -> None:
    if output:
        write_json(output, document)
    if as_json:
        print_json(document)
    else:
        print_capacity_tables(console(), document)


def _read_graphs(text: str, models: ModelSeries, global_batch: int | None) -> Iterator[CapacityWorkload]:
    """Yield a graph document, or a built-in model for every batch size and sequence length."""
    if text not in zoo.MODELS:
        document = validate_document(GraphDocument, read_json(Path(text)), text).model_dump(exclude_unset=True)
        yield read_workload(document)
        return
    batches = [DEFAULT_BATCH] if global_batch is None else list_pass_batches(global_batch)
    if models.batch is not None:
        batches = _parse_numbers("--batch", models.batch)
    seqs = [None] if models.seq is None else _parse_numbers("--seq", models.seq)
    yield from zoo_workloads(text, batches=batches, seqs=seqs, **models.model_dump(exclude={"batch", "seq"}))


def _parse_numbers(option: str, text: str) -> list[int]:
    if not all(part.strip().isascii() and part.strip().isdecimal() for part in text.split(",")):
        raise InvalidRequest(option, got=text, wanted="a number, or several with commas between")
    return [int(part) for part in text.split(",")]


def _parse_offer(text: str) -> HardwareOffer:
    name, equals, price = text.strip().partition("=")
    try:
        return HardwareOffer(read_profile(name), float(price) if equals else None)
    except ValueError as error:
        if isinstance(error, InvalidRequest | InvalidDocument) or not equals:
            raise
        raise InvalidRequest("price of a device-hour", got=price, wanted="a number, such as h100-sxm=2.5") from None


def _search(
    question: CapacityQuestion, jobs: int, start: StartTask | None, *, time_limit: float | None, journal: Path | None
) -> CapacitySearch:
    journaled = load_journal(question, journal.read_text(), str(journal)) if journal and journal.exists() else {}
    with _show_progress(question) as show_search:

        def on_outcome(search: CapacitySearch, number: int) -> None:
            if journal:
                _append_line(journal, dump_journal_line(question, number, search.outcomes[number]))
            show_search(search)

        return planning.search_meshes(
            question, processes=jobs, ask=start, time_limit_s=time_limit, known=journaled, on_outcome=on_outcome
        )


def _append_line(path: Path, line: str) -> None:
    """Append a line to a file and flush it to the disk."""
    with path.open("a", encoding="utf-8") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _show_progress(question: CapacityQuestion) -> Iterator[Any]:
    with Console(stderr=True, highlight=False).status("computing lower bounds") as status:

        def show(search: CapacitySearch) -> None:
            settled = len(search.outcomes) + len(search.skipped)
            status.update(f"{settled} of {len(question.candidates)} meshes, {search.planned_count} of them planned")

        yield show


def _write_plans(
    search: CapacitySearch, budget: CapacityBudget, folder: Path | None, *, validate: bool
) -> dict[int, Mapping[str, Any]]:
    """Return the plan documents of the frontier within a budget, by candidate; write them to the folder under their
    ids.
    """
    documents: dict[int, Mapping[str, Any]] = {}
    for number in search.frontier_within(budget):
        plan = planning.plan_in_full(search, number)
        document = dump_plan(pipeline.validate_plan(plan) if validate else plan)
        if folder:
            write_json(folder / f"{document['id']}.json.gz", document)
        documents[number] = document
    return documents
