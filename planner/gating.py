"""A plan or graph beside its base, made comparable: the same question asked of both graphs.

The question (mesh, hardware, request) is that of whichever is a plan, the base first. What is a graph is planned
under it, deterministically, with ops in the base's order. A base plan of other versions, or one that a clock may have
stopped, is planned again from its own graph, so that only the graphs differ. Where they do not, nothing is planned.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from planner import pipeline
from planner.choose.cost import CostModel
from planner.choose.hardware import Hardware
from planner.documents.explanations import request_from
from planner.documents.graphs import graph_from, mesh_from
from planner.documents.hardware import planned_hardware
from planner.documents.ids import digest
from planner.documents.plans import VERSIONS, checked_plan, identified, plan_document
from planner.documents.schemas import GraphDocument, PlanDocument
from planner.errors import InvalidRequest
from planner.folding import OnProgress
from planner.judge.gate.alignment import aligned, says_the_same
from planner.judge.matching import likened, matched
from planner.model.graph import Graph
from planner.model.mesh import Mesh
from planner.plans import Request

Given = PlanDocument | GraphDocument
Kept = Callable[[str], PlanDocument | None]
"""Plans that somebody keeps, by their ids."""
ANEW = "a plan of this version: plan its graph again, deterministically"
AGAIN = "plan was made again: {}; keep a deterministic one of this version, and this is spared"


@dataclass(frozen=True, slots=True)
class Question:
    """Under what a graph is planned."""

    mesh: Mesh
    hardware: Hardware
    request: Request


@dataclass(frozen=True, slots=True)
class Compared:
    """Two plans of one question. `same`: the new graph is the base's but for names and order; then a plan is None
    where none was given. `notes`: what was done to compare them."""

    base: PlanDocument | None
    new: PlanDocument | None
    same: bool
    notes: tuple[str, ...]


def question_of(plan: PlanDocument) -> Question:
    """What a plan answers, asked deterministically."""
    request = replace(request_from(plan), deterministic=True)
    return Question(mesh_from(plan.mesh), planned_hardware(plan), request)


def compared(
    base: Given,
    new: Given,
    question: Question | None = None,
    on_progress: OnProgress | None = None,
    kept: Kept | None = None,
) -> Compared:
    """Base and new as plans of one question; `question` where neither is a plan. A plan that is kept is not made again.
    Raises InvalidRequest, or whatever planning raises."""
    plans = [given for given in (base, new) if isinstance(given, PlanDocument)]
    if len(plans) == 2:
        return _beside(plans[0], plans[1])
    if plans and question:
        raise InvalidRequest("a mesh beside a plan", where="check", wanted="none: a graph is planned as the plan was")
    asked = question_of(plans[0]) if plans else question
    if asked is None:
        raise InvalidRequest("no mesh to plan on", where="check", got="two graphs", wanted="a mesh, or a plan as base")
    graphs = graph_of(base, asked.mesh), graph_of(new, asked.mesh)
    found = matched(*graphs)
    if says_the_same(*graphs, found):
        known = plans[0] if plans else None
        old = [f"the plan is no measure for others: {why}" for why in map(_stale, plans) if why]
        return Compared(known, known, True, ("the graphs say the same: nothing was planned", *old))
    sides = (base, graphs[0]), (new, aligned(*graphs, likened(*graphs, found)))
    stale = [_stale(given) for given, _ in sides]
    one, other = (
        given if isinstance(given, PlanDocument) and not why else _planned(graph, asked, on_progress, kept)
        for (given, graph), why in zip(sides, stale, strict=True)
    )
    notes = (f"the {which} {AGAIN.format(why)}" for which, why in zip(("base", "new"), stale, strict=True) if why)
    return Compared(one, other, False, tuple(notes))


def graph_of(given: Given, mesh: Mesh) -> Graph:
    """The graph that a document is or holds."""
    return graph_from(given.graph.document if isinstance(given, PlanDocument) else given, mesh)


def _planned(graph: Graph, asked: Question, on_progress: OnProgress | None, kept: Kept | None) -> PlanDocument:
    if kept is not None:
        identity = identified(graph, CostModel(asked.mesh, asked.hardware), asked.request)["id"]
        if (known := kept(identity)) is not None:
            return known
    found = pipeline.plan(graph, asked.mesh, asked.hardware, asked.request, on_progress)
    return checked_plan(json.loads(json.dumps(plan_document(found))), "the plan")


def _stale(given: Given) -> str:
    """Why a plan cannot stand beside one made now; nothing where it can."""
    if isinstance(given, PlanDocument) and given.solver.versions != VERSIONS:
        versions = (
            ", ".join(f"{key} {each[key]}" for key in sorted(each)) for each in (given.solver.versions, VERSIONS)
        )
        return "it is of {}, this is {}".format(*versions)
    clocked = isinstance(given, PlanDocument) and not given.request.deterministic
    return "it may depend on the clock that stopped it" if clocked else ""


def _beside(base: PlanDocument, new: PlanDocument) -> Compared:
    """Two finished plans. Raises InvalidRequest where they answer different questions."""
    if base.id == new.id:
        return Compared(base, new, True, ("the plans are one and the same",))
    for which, plan in (("base", base), ("new", new)):
        if plan.solver.versions != VERSIONS:
            raise InvalidRequest(f"the {which} plan cannot be compared", where="check", got=_stale(plan), wanted=ANEW)
    for what, one, other in _conditions(base, new):
        if one != other:
            wanted = f"{one}, as the base has it; or check the graph document, which is planned as the base was"
            raise InvalidRequest(f"plans of another {what} cannot be compared", where="check", got=other, wanted=wanted)
    mesh = mesh_from(base.mesh)
    graphs = graph_of(base, mesh), graph_of(new, mesh)
    settled = base.request == new.request and base.solver.reproducible and new.solver.reproducible
    if settled and says_the_same(*graphs, matched(*graphs)):
        return Compared(base, new, True, ("the graphs say the same, but for names and order",))
    return Compared(base, new, False, ())


def _conditions(base: PlanDocument, new: PlanDocument) -> Iterator[tuple[str, str, str]]:
    """What two plans must share, as text."""
    for what, told in (("mesh", _mesh), ("hardware", _hardware), ("memory limit", _limit)):
        yield what, told(base), told(new)
    yield "objective", base.request.objective, new.request.objective
    yield "recomputation", base.request.recompute, new.request.recompute


def _mesh(plan: PlanDocument) -> str:
    axes = mesh_from(plan.mesh).axes
    return ", ".join(f"{axis.name}={axis.size}" + (f" over {axis.link}" if axis.link else "") for axis in axes)


def _hardware(plan: PlanDocument) -> str:
    """The name, and enough of the digest to tell profiles of one name apart."""
    return f"{plan.hardware.name} ({digest(plan.hardware.model_dump(mode='json'))[:8]})"


def _limit(plan: PlanDocument) -> str:
    return f"{plan.request.memory_limit_bytes:,} bytes"
