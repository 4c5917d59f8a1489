"""`capacity`: finds the fewest, the cheapest and the fastest devices for a model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.command_start import command_start
from api.cli.errors import INTERRUPTED
from api.cli.options import JsonOption, OutputOption, console, print_json
from api.cli.parameters import with_options
from api.cli.progress import show_capacity_progress, show_sweep_progress
from api.cli.render_capacity import print_capacity_tables
from api.client import ServiceClient
from api.options import CapacityOptions, ModelOptions, ModelSeries
from api.pipeline_options import PipelineOptions
from api.remote_capacity import RetryingClient, describe_question, search_on_server
from planner import pipeline
from planner.documents.capacity import dump_capacity, dump_journal_line, load_journal
from planner.documents.graphs import read_mesh
from planner.documents.hardware import read_profile
from planner.documents.json_reader import read_json
from planner.documents.json_writer import check_writable, write_json
from planner.documents.pipelines import dump_pipeline
from planner.documents.plans import add_verdict, dump_plan
from planner.documents.schemas import GraphDocument, validate_document
from planner.errors import InvalidDocument, InvalidRequest
from planner.frontends import zoo
from planner.judge.mesh_candidates import enumerate_candidates, parse_device_counts
from planner.pipeline_stages.pipeline_plan import PipelinePlan
from planner.pipeline_stages.request import PipelineRequest
from planner.pipeline_stages.validate import validate_pipeline
from planner.planning.deadline import Deadline, TimeLimitReached
from planner.usecases import capacity as planning
from planner.usecases.capacity_question import CapacityBudget, CapacityQuestion, CapacityWorkload, HardwareOffer
from planner.usecases.capacity_search import CapacitySearch
from planner.usecases.capacity_workloads import (
    MAX_HALVINGS,
    MAX_HALVINGS_WITH_STAGES,
    list_pass_batches,
    read_workload,
    zoo_workloads,
)

WRITE_SHARE = 0.3
"""Share of the time limit for the plans of the frontier, where they are asked for."""
DEFAULT_BATCH: int = ModelOptions.model_fields["batch"].default
Graphs = Annotated[
    list[str], typer.Argument(metavar="GRAPH...", help=f"Graph documents, or one of {', '.join(zoo.MODELS)}.")
]
Server = Annotated[
    str | None, typer.Option(help="A server that searches with its workers; its API key in SHARDPLAN_KEY.")
]
Journal = Annotated[Path | None, typer.Option(help="A file of finished candidates: a later run resumes from it.")]


@with_options
def capacity(
    graphs: Graphs,
    hardware: Annotated[
        str, typer.Option(help="Profiles (names or files); a price per device-hour may follow: h100-sxm=2.5,a100-sxm.")
    ],
    options: CapacityOptions,
    pipeline_options: PipelineOptions,
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

    A named model takes the options of `import zoo`. With --pipeline, the devices may be shared by stages, and each mesh
    is that of one stage.
    """
    for path in filter(None, (output, journal, plans and plans / "plan.json")):
        check_writable(path)
    deadline = Deadline(options.time_limit_s, command_start())
    stages = _read_stages(pipeline_options, server)
    question = _build_question(graphs, hardware, mesh, models=models, options=options, stages=stages)
    if server is not None:
        request = describe_question(question, options, read_mesh(mesh) if mesh else None, jobs=jobs)
        _print_capacity(_search_on_server(server, request, plans, validate=validate, journal=journal), output, as_json)
        return
    rest_s = deadline.elapsed_s  # the answer is written in about the time in which the question was read
    if plans or validate:
        rest_s += WRITE_SHARE * (options.time_limit_s or 0.0)
    search = _search(question, jobs, deadline=deadline.sooner(rest_s), journal=journal)
    budget, documents = CapacityBudget(options.max_step_s, options.max_cost), {}
    if (plans or validate) and not search.is_cancelled:
        documents = _write_plans(search, budget, plans, validate=validate, deadline=deadline)
    _print_capacity(dump_capacity(search, budget, documents), output, as_json)
    if search.is_cancelled:
        raise typer.Exit(INTERRUPTED)


def _read_stages(options: PipelineOptions, server: str | None) -> PipelineRequest | None:
    stages = options.to_pipeline("auto")
    if stages is not None and server is not None:
        raise InvalidRequest("--pipeline with --server", wanted="one of them")
    return stages


def _build_question(
    graphs: list[str],
    hardware: str,
    mesh: str | None,
    *,
    models: ModelSeries,
    options: CapacityOptions,
    stages: PipelineRequest | None,
) -> CapacityQuestion:
    halvings = MAX_HALVINGS if stages is None else MAX_HALVINGS_WITH_STAGES
    batches = None if options.global_batch is None else list_pass_batches(options.global_batch, halvings)
    workloads = tuple(w for name in graphs for w in _read_graphs(name, models, batches or [DEFAULT_BATCH]))
    offers = tuple(map(_parse_offer, hardware.split(",")))
    candidates = enumerate_candidates(
        len(workloads),
        len(offers),
        parse_device_counts(options.devices),
        axes=options.axes,
        template=read_mesh(mesh) if mesh else None,
        stages=stages.list_stage_counts() if stages else (1,),
    )
    return CapacityQuestion(workloads, offers, candidates, options.to_request(), options.tokens, stages)


def _print_capacity(document: dict[str, Any], output: Path | None, as_json: bool) -> None:
    if output:
        write_json(output, document)
    if as_json:
        print_json(document)
    else:
        print_capacity_tables(console(), document)


def _read_graphs(text: str, models: ModelSeries, batches: list[int]) -> Iterator[CapacityWorkload]:
    """Yield a graph document, or a built-in model for every batch size and sequence length."""
    if text not in zoo.MODELS:
        if not Path(text).exists():
            raise InvalidRequest("neither a file nor a model", got=text, wanted=f"one of {', '.join(zoo.MODELS)}")
        document = validate_document(GraphDocument, read_json(Path(text)), text).model_dump(exclude_unset=True)
        yield read_workload(document)
        return
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


def _search_on_server(
    server: str, request: Mapping[str, Any], folder: Path | None, *, validate: bool, journal: Path | None
) -> dict[str, Any]:
    """Return a server's answer; fetch, run and write the plans of its frontier where that is asked for."""
    if journal:
        raise InvalidRequest("--journal with --server", wanted="one of them: a server keeps what it has planned")
    client = RetryingClient(ServiceClient(server))
    try:
        with show_sweep_progress() as on_progress:
            document = search_on_server(client, request, on_progress)
    except KeyboardInterrupt:
        typer.echo("The search goes on: the same command follows it.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    for reference in (point["plan"] for point in document["frontier"] if folder or validate):
        if validate:
            reference["verdict"] = client.request("/v1/validations", {"plan": reference["id"]})["verdict"]
        if folder:
            document_path = f"/v1/plans/{reference['id']}/document"
            write_json(folder / f"{reference['id']}.json.gz", client.request(document_path))
    return document


def _search(question: CapacityQuestion, jobs: int, *, deadline: Deadline, journal: Path | None) -> CapacitySearch:
    """Search with a line of progress on a terminal. What the deadline has cut short is not journaled."""
    journaled = load_journal(question, journal.read_text(), str(journal)) if journal and journal.exists() else {}
    with show_capacity_progress() as on_change:

        def on_outcome(search: CapacitySearch, number: int) -> None:
            if journal and deadline.left_s != 0.0 and search.outcomes[number].is_searched:
                _append_line(journal, dump_journal_line(question, number, search.outcomes[number]))
            on_change(search, number)

        return planning.search_meshes(
            question,
            processes=jobs,
            deadline=deadline,
            known=journaled,
            on_start=on_change,
            on_outcome=on_outcome,
        )


def _append_line(path: Path, line: str) -> None:
    """Append a line to a file and flush it to the disk."""
    with path.open("a", encoding="utf-8") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _write_plans(
    search: CapacitySearch, budget: CapacityBudget, folder: Path | None, *, validate: bool, deadline: Deadline
) -> dict[int, Mapping[str, Any]]:
    """Return the plan documents of the frontier within a budget, by candidate; write them to the folder under their
    ids. Plans for which no time is left are left out.
    """
    documents: dict[int, Mapping[str, Any]] = {}
    for number in search.frontier_within(budget):
        try:
            document = _write_plan(search, number, validate=validate, deadline=deadline)
        except TimeLimitReached:
            continue
        if document is None:
            continue
        if folder:
            write_json(folder / f"{document['id']}.json.gz", document)
        documents[number] = document
    return documents


def _write_plan(search: CapacitySearch, number: int, *, validate: bool, deadline: Deadline) -> dict[str, Any] | None:
    """Return the document of a candidate's plan, or None where its program was not reached in time."""
    plan = planning.plan_in_full(search, number, deadline)
    if isinstance(plan, PipelinePlan):
        asked = search.make_task(number).pipeline or PipelineRequest()
        return dump_pipeline(validate_pipeline(plan, deadline) if validate else plan, asked) if plan.stages else None
    if plan.analysis is None:
        return None
    document = dump_plan(plan)
    return add_verdict(document, pipeline.validate_plan(plan, deadline=deadline).verdict) if validate else document
