"""Make a plan or graph comparable with its base: plan both graphs under the same question.

The question (mesh, hardware, request) is that of the base if it is a plan, else that of the new plan. A graph is
planned under it, deterministically, with its ops in the base's order. A plan that another version made, or that a time
limit may have stopped, is planned again from its own graph, so that only the graphs differ. Where the graphs are equal,
nothing is planned, except where a plan is of another version: then the differences between the versions are reported
separately from those of an edit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from planner import pipeline
from planner.choose.cost import CostModel
from planner.choose.hardware import Hardware
from planner.documents.canonical_json import digest_document
from planner.documents.explain import load_request
from planner.documents.graphs import load_graph, load_mesh
from planner.documents.hardware import load_planned_hardware
from planner.documents.pipeline_sections import AnyPlanDocument, PipelineDocument
from planner.documents.pipelines import dump_pipeline, identify_pipeline, load_pipeline_request, parse_any_plan
from planner.documents.plans import dump_identity, dump_plan
from planner.documents.schemas import GraphDocument
from planner.documents.versions import current_versions
from planner.errors import InvalidRequest
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.judge.analyzed_plan import AnalyzedPlan
from planner.judge.check.equivalence import align_order, is_equivalent
from planner.judge.graph_matching import match_edited, match_graphs
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.request import AUTO, SEPARATOR, PipelineRequest
from planner.planning.deadline import Deadline, OnPlanProgress
from planner.planning.plan_types import Request

PlanOrGraph = AnyPlanDocument | GraphDocument
FindPlan = Callable[[str], AnyPlanDocument | None]
"""Looks up a stored plan by its id; None: it is not stored."""
SIDES = ("base", "new")
PlanAgain = Callable[[Graph, "CheckQuestion"], AnyPlanDocument]
UNCHANGED = "the graphs are equal: nothing was planned"
CLOCKED = "a time limit may have stopped it"
REPLANNED_NOTE = f"plan was planned again: {CLOCKED}; a deterministic plan is not planned again"
COMPARE_SHARE = 2.0
"""Comparing two plans takes about so many times as long as matching their graphs, which is a part of it."""
LIMITED_NOTE = "planned within {:g} s: part of a change may be due to the time limit"


@dataclass(frozen=True, slots=True)
class CheckQuestion:
    """Mesh, hardware and request under which a graph is planned; `pipeline`: in which stages, None for without."""

    mesh: Mesh
    hardware: Hardware
    request: Request
    pipeline: PipelineRequest | None = None


@dataclass(frozen=True, slots=True)
class Replanned:
    """The base or new plan (`side`) as another version made it, and as this version plans the same graph."""

    side: str
    recorded: AnyPlanDocument
    current: AnyPlanDocument


@dataclass(frozen=True, slots=True)
class ComparedPlans:
    """Two plans of one question, both by this version.

    graphs_equal  whether the graphs differ in names and order only; then a plan is None where none was given
    notes         what was done to compare the plans
    replanned     plans of other versions, as they were and as this version plans them
    analyses      the figures of plans that were made here, by the plan's id
    """

    base: AnyPlanDocument | None
    new: AnyPlanDocument | None
    graphs_equal: bool
    notes: tuple[str, ...]
    replanned: tuple[Replanned, ...] = ()
    analyses: Mapping[str, AnalyzedPlan] = field(default_factory=dict, compare=False)


def question_from_plan(plan: AnyPlanDocument) -> CheckQuestion:
    """Return the question that a plan answers, with a deterministic request."""
    request = replace(load_request(plan), deterministic=True)
    stages = load_pipeline_request(plan) if isinstance(plan, PipelineDocument) else None
    return CheckQuestion(load_mesh(plan.mesh), load_planned_hardware(plan), request, stages)


def compare_plans(
    base: PlanOrGraph,
    new: PlanOrGraph,
    question: CheckQuestion | None = None,
    on_progress: OnPlanProgress | None = None,
    kept: FindPlan | None = None,
    *,
    deadline: Deadline | None = None,
) -> ComparedPlans:
    """Return base and new as plans of one question.

    `question` is used where neither is a plan; a stored plan that `kept` returns is not planned again. With a
    `deadline` plans are not deterministic, but the best that are known then. Raises InvalidRequest where base and new
    cannot be compared, and the errors of planning.
    """
    to_plan = sum(_comparable(given) is None for given in (base, new))
    planner = _Planner(on_progress, kept, deadline or Deadline(), max(1, to_plan))
    plan_again = planner.plan_document
    plans = [given for given in (base, new) if not isinstance(given, GraphDocument)]
    if len(plans) == 2:
        return _compare_finished(plans[0], plans[1], plan_again)
    if plans and question:
        raise InvalidRequest("a mesh beside a plan", where="check", wanted="none: a graph is planned as the plan was")
    asked = question_from_plan(plans[0]) if plans else question
    if asked is None:
        raise InvalidRequest("no mesh to plan on", where="check", got="two graphs", wanted="a mesh, or a plan as base")
    graphs, began_s = (read_graph(base, asked.mesh), read_graph(new, asked.mesh)), planner.deadline.elapsed_s
    matching = match_graphs(*graphs)
    if is_equivalent(*graphs, matching):
        return _unchanged(base, new, plan_again)
    edited = match_edited(*graphs, matching)
    planner.compare_s = COMPARE_SHARE * (planner.deadline.elapsed_s - began_s)
    sides = (base, graphs[0]), (new, align_order(*graphs, edited))
    one, other = (_comparable(given) or plan_again(graph, asked) for given, graph in sides)
    notes = (
        f"the {side} {REPLANNED_NOTE}" for side, given in zip(SIDES, (base, new), strict=True) if _is_clocked(given)
    )
    limited = [] if deadline is None or deadline.seconds is None else [LIMITED_NOTE.format(deadline.seconds)]
    replanned = _replanned((base, new), (one, other))
    return ComparedPlans(one, other, False, (*notes, *limited), replanned, planner.analyses)


def _unchanged(base: PlanOrGraph, new: PlanOrGraph, plan_again: PlanAgain) -> ComparedPlans:
    """Compare equal graphs, one of which may be that of a plan."""
    known = next((given for given in (base, new) if not isinstance(given, GraphDocument)), None)
    if known is None or not _is_of_another_version(known):
        clocked = known is not None and _is_clocked(known)
        notes = (UNCHANGED, f"the plan is not reproducible: {CLOCKED}") if clocked else (UNCHANGED,)
        return ComparedPlans(known, known, True, notes)
    current = _current(known, plan_again)
    sides = [current if given is known else given for given in (base, new)]
    return ComparedPlans(current, current, True, (), _replanned((base, new), sides))


def read_graph(given: PlanOrGraph, mesh: Mesh) -> Graph:
    """Load the graph of a graph document or plan."""
    return load_graph(given if isinstance(given, GraphDocument) else given.graph.document, mesh)


@dataclass
class _Planner:
    """Plans graphs, `remaining` of them before the deadline, each in an equal part of the time that is left.

    `compare_s`: how long comparing the plans will take.
    """

    on_progress: OnPlanProgress | None
    kept: FindPlan | None
    deadline: Deadline
    remaining: int
    compare_s: float = 0.0
    analyses: dict[str, AnalyzedPlan] = field(default_factory=dict)

    def plan_document(self, graph: Graph, asked: CheckQuestion) -> AnyPlanDocument:
        if self.kept is not None and (known := self.kept(_identify(graph, asked))) is not None:
            return known
        request, deadline, left_s = asked.request, None, self.deadline.sooner(self.compare_s).left_s
        if left_s is not None:
            deadline = self.deadline.sooner(self.compare_s + left_s - left_s / max(1, self.remaining))
            request = replace(request, deterministic=False, time_limit_s=self.deadline.seconds)
        self.remaining -= 1
        how: dict[str, Any] = {"request": request, "on_progress": self.on_progress, "deadline": deadline}
        analyzed: AnalyzedPlan | None
        if asked.pipeline is not None:
            staged = plan_pipeline(graph, asked.mesh, asked.hardware, pipeline=asked.pipeline, **how)
            document, analyzed = dump_pipeline(staged, asked.pipeline), staged.analyzed if staged.stages else None
        else:
            plan = pipeline.plan(graph, asked.mesh, asked.hardware, **how)
            document = dump_plan(plan, with_overlap=left_s is None)
            analyzed = AnalyzedPlan.of(plan.analysis) if plan.analysis is not None else None
        if analyzed is not None:
            self.analyses[document["id"]] = analyzed
        return parse_any_plan(json.loads(json.dumps(document)), "the plan")


def _identify(graph: Graph, asked: CheckQuestion) -> str:
    """Return the id that the plan of a question has."""
    model = CostModel(asked.mesh, asked.hardware)
    if asked.pipeline is not None:
        return identify_pipeline(graph, model, asked.request, asked=asked.pipeline)
    return str(dump_identity(graph, model, asked.request)["id"])


def _comparable(given: PlanOrGraph) -> AnyPlanDocument | None:
    """Return a plan that can be compared with one planned now; None: it has to be planned again."""
    if isinstance(given, GraphDocument) or _is_of_another_version(given) or _is_clocked(given):
        return None
    return given


def _is_of_another_version(plan: AnyPlanDocument) -> bool:
    return plan.solver.versions != current_versions()


def _is_clocked(given: PlanOrGraph) -> bool:
    """Return whether a time limit may have stopped a plan of this version."""
    if isinstance(given, GraphDocument):
        return False
    return not given.request.deterministic and not _is_of_another_version(given)


def _current(plan: AnyPlanDocument, plan_again: PlanAgain) -> AnyPlanDocument:
    """Return a plan as this version plans it."""
    asked = question_from_plan(plan)
    return plan_again(read_graph(plan, asked.mesh), asked) if _is_of_another_version(plan) else plan


def _replanned(given: Sequence[PlanOrGraph], current: Sequence[PlanOrGraph]) -> tuple[Replanned, ...]:
    """Return the given plans that another version made, beside the current ones."""
    return tuple(
        Replanned(side, before, now)
        for side, before, now in zip(SIDES, given, current, strict=True)
        if not isinstance(before, GraphDocument)
        and not isinstance(now, GraphDocument)
        and _is_of_another_version(before)
    )


def _compare_finished(base: AnyPlanDocument, new: AnyPlanDocument, plan_again: PlanAgain) -> ComparedPlans:
    """Compare two plans. Raises InvalidRequest where they answer different questions."""
    if base.id == new.id:
        return ComparedPlans(base, new, True, ("the plans are identical",))
    for what, asked, got in _differing_conditions(base, new):
        if got != asked:
            wanted = f"{asked}, as the base has it; or the graph document, which is planned as the base was"
            raise InvalidRequest(f"plans of another {what} cannot be compared", where="check", got=got, wanted=wanted)
    mesh = load_mesh(base.mesh)
    graphs = read_graph(base, mesh), read_graph(new, mesh)
    one, other = _current(base, plan_again), _current(new, plan_again)
    replanned = _replanned((base, new), (one, other))
    settled = one.request == other.request and _is_reproducible(one) and _is_reproducible(other)
    if settled and is_equivalent(*graphs, match_graphs(*graphs)):
        return ComparedPlans(one, other, True, ("the graphs differ in names and order only",), replanned)
    return ComparedPlans(one, other, False, (), replanned)


def _is_reproducible(plan: AnyPlanDocument) -> bool:
    if isinstance(plan, PipelineDocument):
        return plan.request.deterministic and all(stage.plan.solver.reproducible for stage in plan.stages)
    return plan.solver.reproducible


def _differing_conditions(base: AnyPlanDocument, new: AnyPlanDocument) -> Iterator[tuple[str, str, str]]:
    """Yield the conditions that two plans must share, as text: name, base, new."""
    yield "pipeline", _pipeline_text(base), _pipeline_text(new)
    for what, describe in (("mesh", _mesh_text), ("hardware", _hardware_text), ("memory limit", _limit_text)):
        yield what, describe(base), describe(new)
    yield "objective", base.request.objective, new.request.objective
    yield "recomputation", base.request.recompute, new.request.recompute
    yield "layout", base.request.layout or "any", new.request.layout or "any"


def _pipeline_text(plan: AnyPlanDocument) -> str:
    if not isinstance(plan, PipelineDocument):
        return "no stages"
    asked = plan.request.pipeline
    virtual = f", {asked.virtual_stages} virtual stages each" if (asked.virtual_stages or 1) > 1 else ""
    return f"{AUTO if asked.stages is None else asked.stages} stages in the schedule {asked.schedule}{virtual}"


def _mesh_text(plan: AnyPlanDocument) -> str:
    axes = load_mesh(plan.mesh).axes
    first = ", ".join(f"{axis.name}={axis.size}" + (f" over {axis.link}" if axis.link else "") for axis in axes)
    ranks = plan.request.pipeline.meshes if isinstance(plan, PipelineDocument) else None
    return first if ranks is None else f"{first}, of all ranks {SEPARATOR.join(ranks)}"


def _hardware_text(plan: AnyPlanDocument) -> str:
    """Return the name, and enough of the digest to distinguish profiles of one name."""
    return f"{plan.hardware.name} ({digest_document(plan.hardware.model_dump(mode='json'))[:8]})"


def _limit_text(plan: AnyPlanDocument) -> str:
    return f"{plan.request.memory_limit_bytes:,} bytes"
