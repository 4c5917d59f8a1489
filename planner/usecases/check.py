"""A plan or graph beside its base, made comparable: the same question asked of both graphs.

The question (mesh, hardware, request) is that of whichever is a plan, the base first. What is a graph is planned
under it, deterministically, with ops in the base's order. A plan that another version made, or that a clock may have
stopped, is planned again from its own graph, so that only the graphs differ. Where they do not, nothing is planned,
but for a plan of another version: what became of it is not the edit's doing, and is told apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from planner import pipeline
from planner.choose.cost import CostModel
from planner.choose.hardware import Hardware
from planner.documents.canonical_json import digest_document
from planner.documents.explain import load_request
from planner.documents.graphs import load_graph, load_mesh
from planner.documents.hardware import load_planned_hardware
from planner.documents.plans import dump_identity, dump_plan, parse_plan
from planner.documents.schemas import GraphDocument, PlanDocument
from planner.documents.versions import current_versions
from planner.errors import InvalidRequest
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.judge.check.equivalence import align_order, is_equivalent
from planner.judge.graph_matching import match_edited, match_graphs
from planner.planning.folded_solve import OnProgress
from planner.planning.plan_types import Request

PlanOrGraph = PlanDocument | GraphDocument
FindPlan = Callable[[str], PlanDocument | None]
"""Plans that somebody keeps, by their ids."""
SIDES = ("base", "new")
PlanAgain = Callable[[Graph, "CheckQuestion"], PlanDocument]
UNCHANGED = "the graphs say the same: nothing was planned"
CLOCKED = "it may depend on the clock that stopped it"
REPLANNED_NOTE = f"plan was made again: {CLOCKED}; keep a deterministic one, and this is spared"


@dataclass(frozen=True, slots=True)
class CheckQuestion:
    """Under what a graph is planned."""

    mesh: Mesh
    hardware: Hardware
    request: Request


@dataclass(frozen=True, slots=True)
class Replanned:
    """The base or new plan (`side`) as another version made it, and as this version makes it from the same graph."""

    side: str
    recorded: PlanDocument
    current: PlanDocument


@dataclass(frozen=True, slots=True)
class ComparedPlans:
    """Two plans of one question, both of this version. `same`: the new graph is the base's but for names and order;
    then a plan is None where none was given. `notes`: what was done to compare them."""

    base: PlanDocument | None
    new: PlanDocument | None
    graphs_equal: bool
    notes: tuple[str, ...]
    replanned: tuple[Replanned, ...] = ()


def question_from_plan(plan: PlanDocument) -> CheckQuestion:
    """What a plan answers, asked deterministically."""
    request = replace(load_request(plan), deterministic=True)
    return CheckQuestion(load_mesh(plan.mesh), load_planned_hardware(plan), request)


def compare_plans(
    base: PlanOrGraph,
    new: PlanOrGraph,
    question: CheckQuestion | None = None,
    on_progress: OnProgress | None = None,
    kept: FindPlan | None = None,
) -> ComparedPlans:
    """Base and new as plans of one question; `question` where neither is a plan. A plan that is kept is not made again.
    Raises InvalidRequest, or whatever planning raises."""
    plan_again = partial(_plan_document, on_progress, kept)
    plans = [given for given in (base, new) if isinstance(given, PlanDocument)]
    if len(plans) == 2:
        return _compare_finished(plans[0], plans[1], plan_again)
    if plans and question:
        raise InvalidRequest("a mesh beside a plan", where="check", wanted="none: a graph is planned as the plan was")
    asked = question_from_plan(plans[0]) if plans else question
    if asked is None:
        raise InvalidRequest("no mesh to plan on", where="check", got="two graphs", wanted="a mesh, or a plan as base")
    graphs = read_graph(base, asked.mesh), read_graph(new, asked.mesh)
    found = match_graphs(*graphs)
    if is_equivalent(*graphs, found):
        return _unchanged(base, new, plan_again)
    sides = (base, graphs[0]), (new, align_order(*graphs, match_edited(*graphs, found)))
    one, other = (_comparable(given) or plan_again(graph, asked) for given, graph in sides)
    notes = (
        f"the {side} {REPLANNED_NOTE}" for side, given in zip(SIDES, (base, new), strict=True) if _is_clocked(given)
    )
    return ComparedPlans(one, other, False, tuple(notes), _replanned((base, new), (one, other)))


def _unchanged(base: PlanOrGraph, new: PlanOrGraph, plan_again: PlanAgain) -> ComparedPlans:
    """Graphs that say the same, of which one may be that of a plan."""
    known = next((given for given in (base, new) if isinstance(given, PlanDocument)), None)
    if known is None or not _is_of_another_version(known):
        clocked = known is not None and _is_clocked(known)
        notes = (UNCHANGED, f"the plan is no measure for others: {CLOCKED}") if clocked else (UNCHANGED,)
        return ComparedPlans(known, known, True, notes)
    current = _current(known, plan_again)
    sides = [current if given is known else given for given in (base, new)]
    return ComparedPlans(current, current, True, (), _replanned((base, new), sides))


def read_graph(given: PlanOrGraph, mesh: Mesh) -> Graph:
    """The graph that a document is or holds."""
    return load_graph(given.graph.document if isinstance(given, PlanDocument) else given, mesh)


def _plan_document(
    on_progress: OnProgress | None, kept: FindPlan | None, graph: Graph, asked: CheckQuestion
) -> PlanDocument:
    if kept is not None:
        identity = dump_identity(graph, CostModel(asked.mesh, asked.hardware), asked.request)["id"]
        if (known := kept(identity)) is not None:
            return known
    found = pipeline.plan(graph, asked.mesh, asked.hardware, request=asked.request, on_progress=on_progress)
    return parse_plan(json.loads(json.dumps(dump_plan(found))), "the plan")


def _comparable(given: PlanOrGraph) -> PlanDocument | None:
    """A plan that can stand beside one made now."""
    if not isinstance(given, PlanDocument) or _is_of_another_version(given) or _is_clocked(given):
        return None
    return given


def _is_of_another_version(plan: PlanDocument) -> bool:
    return plan.solver.versions != current_versions()


def _is_clocked(given: PlanOrGraph) -> bool:
    """Whether a plan of this version may depend on the clock."""
    return isinstance(given, PlanDocument) and not given.request.deterministic and not _is_of_another_version(given)


def _current(plan: PlanDocument, plan_again: PlanAgain) -> PlanDocument:
    """A plan as this version makes it."""
    asked = question_from_plan(plan)
    return plan_again(read_graph(plan, asked.mesh), asked) if _is_of_another_version(plan) else plan


def _replanned(given: Sequence[PlanOrGraph], current: Sequence[PlanOrGraph]) -> tuple[Replanned, ...]:
    """Of what was given, the plans that another version made."""
    return tuple(
        Replanned(side, before, now)
        for side, before, now in zip(SIDES, given, current, strict=True)
        if isinstance(before, PlanDocument) and isinstance(now, PlanDocument) and _is_of_another_version(before)
    )


def _compare_finished(base: PlanDocument, new: PlanDocument, plan_again: PlanAgain) -> ComparedPlans:
    """Two finished plans. Raises InvalidRequest where they answer different questions."""
    if base.id == new.id:
        return ComparedPlans(base, new, True, ("the plans are one and the same",))
    for what, asked, got in _differing_conditions(base, new):
        if got != asked:
            wanted = f"{asked}, as the base has it; or check the graph document, which is planned as the base was"
            raise InvalidRequest(f"plans of another {what} cannot be compared", where="check", got=got, wanted=wanted)
    mesh = load_mesh(base.mesh)
    graphs = read_graph(base, mesh), read_graph(new, mesh)
    one, other = _current(base, plan_again), _current(new, plan_again)
    replanned = _replanned((base, new), (one, other))
    settled = one.request == other.request and one.solver.reproducible and other.solver.reproducible
    if settled and is_equivalent(*graphs, match_graphs(*graphs)):
        return ComparedPlans(one, other, True, ("the graphs say the same, but for names and order",), replanned)
    return ComparedPlans(one, other, False, (), replanned)


def _differing_conditions(base: PlanDocument, new: PlanDocument) -> Iterator[tuple[str, str, str]]:
    """What two plans must share, as text."""
    for what, told in (("mesh", _mesh_text), ("hardware", _hardware_text), ("memory limit", _limit_text)):
        yield what, told(base), told(new)
    yield "objective", base.request.objective, new.request.objective
    yield "recomputation", base.request.recompute, new.request.recompute


def _mesh_text(plan: PlanDocument) -> str:
    axes = load_mesh(plan.mesh).axes
    return ", ".join(f"{axis.name}={axis.size}" + (f" over {axis.link}" if axis.link else "") for axis in axes)


def _hardware_text(plan: PlanDocument) -> str:
    """The name, and enough of the digest to tell profiles of one name apart."""
    return f"{plan.hardware.name} ({digest_document(plan.hardware.model_dump(mode='json'))[:8]})"


def _limit_text(plan: PlanDocument) -> str:
    return f"{plan.request.memory_limit_bytes:,} bytes"
