"""Two plans under limits: which are broken, by what, and what is known of it beyond the plans themselves.

A plan has the least time (or memory: its objective) that was found, and a bound below which no plan is. So of a rise
in the objective there is more to say:

    proven     the new bound is beyond the limit: no plan of the new graph would be within it
    dearer     the new bound is above the base's figure: the graph is dearer, by how much is not proven
    in gaps    the new bound is not above the base's figure: it may be the solver that is to blame, not the graph

Nothing is proven of the other measures, which a plan spends freely for its objective; nor of bytes, where what is
least is the sum over collectives of the largest shard, not what one device receives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from planner.judge.check.edits import Edit, Revision
from planner.judge.check.limits import SHARE_UNITS, Threshold
from planner.judge.check.measures import MeasuredChange, measure_change
from planner.judge.diff import PlanDiff

PROVEN, DEARER, IN_GAPS = "proven", "dearer", "in gaps"
MAX_CAUSES = 3


@dataclass(frozen=True, slots=True)
class ProvenObjective:
    """Of a plan: the measure that is its objective, what was found of it and the bound in whole units, and the gap in
    those of a share."""

    measure: str
    objective: int
    bound: int
    gap: int


@dataclass(frozen=True, slots=True)
class Waiver:
    """A rise that somebody answers for: up to a limit, for a reason, until a day (the last on which it holds)."""

    limit: Threshold
    reason: str
    expires: date

    def covers(self, broken: Threshold, base: int, new: int) -> bool:
        return self.limit.where == broken.where and self.limit.allows(base, new)


@dataclass(frozen=True, slots=True)
class CheckedLimit:
    """A limit and what it is on. `acknowledgement`: one that covers the rise, expired or not."""

    limit: Threshold
    change: MeasuredChange
    certificate: str | None
    causes: tuple[Edit, ...]
    waiver: Waiver | None

    @property
    def is_broken(self) -> bool:
        return not self.limit.allows(self.change.base, self.change.new)


def check_limits(
    found: PlanDiff,
    proven: tuple[ProvenObjective, ProvenObjective],
    limits: Sequence[Threshold],
    *,
    known: Iterable[Waiver],
) -> list[CheckedLimit]:
    """Every limit on two plans of one mesh. Raises InvalidRequest for a place that neither has."""
    revision = Revision(found.base.program.graph, found.new.program.graph, found.exact_matching, found.matching)
    answers, kept = [], list(known)
    for limit in limits:
        on = (
            MeasuredChange(proven[0].gap, proven[1].gap, ()) if limit.measure == "gap" else measure_change(found, limit)
        )
        if limit.allows(on.base, on.new):
            answers.append(CheckedLimit(limit, on, None, (), None))
            continue
        causes = revision.nearest_edits(on.changed_terms[0]) if on.changed_terms else revision.edits
        covering = [one for one in kept if one.covers(limit, on.base, on.new)]
        latest = max(covering, key=lambda one: one.expires, default=None)
        answers.append(CheckedLimit(limit, on, _certify_rise(limit, *proven), tuple(causes[:MAX_CAUSES]), latest))
    return answers


def _certify_rise(limit: Threshold, base: ProvenObjective, new: ProvenObjective) -> str | None:
    if limit.measure != new.measure or limit.measure == "bytes" or limit.place is not None:
        return None
    if not limit.allows(base.objective, new.bound):
        return PROVEN
    return DEARER if new.bound > base.objective else IN_GAPS


def to_share_units(gap: float) -> int:
    """A gap as a limit counts it."""
    return round(gap * SHARE_UNITS)
