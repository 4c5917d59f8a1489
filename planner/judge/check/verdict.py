"""Check two plans against limits: which are exceeded, by which edit, and what is proven of it.

A plan has the least time (or memory: its objective) that was found, and a lower bound. So a rise of the objective has a
certificate:

    proven     the new bound exceeds the limit: no plan of the new graph would be within it
    dearer     the new bound exceeds the base's figure: the graph costs more, but how much more is not proven
    in gaps    the new bound does not exceed the base's figure: the rise may be due to the solver, not to the graph

Nothing is proven of other measures, which the solver does not minimize. This includes bytes: the objective bytes is the
sum over collectives of the largest shard, not the bytes that one device receives.
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
    """The objective of a plan: its measure, figure and bound in whole units of it, and the gap in share units."""

    measure: str
    objective: int
    bound: int
    gap: int


@dataclass(frozen=True, slots=True)
class Waiver:
    """An accepted rise: up to a limit, for a reason, until a day, the last on which it holds."""

    limit: Threshold
    reason: str
    expires: date

    def covers(self, broken: Threshold, base: int, new: int) -> bool:
        return self.limit.where == broken.where and self.limit.allows(base, new)


@dataclass(frozen=True, slots=True)
class CheckedLimit:
    """A limit and the change of its figure. `waiver`: one that covers the rise, expired or not."""

    limit: Threshold
    change: MeasuredChange
    certificate: str | None
    causes: tuple[Edit, ...]
    waiver: Waiver | None

    @property
    def is_broken(self) -> bool:
        return not self.limit.allows(self.change.base, self.change.new)


def check_limits(
    diff: PlanDiff,
    proven: tuple[ProvenObjective, ProvenObjective],
    limits: Sequence[Threshold],
    *,
    known: Iterable[Waiver],
) -> list[CheckedLimit]:
    """Check every limit on two plans of one mesh. Raises InvalidRequest for a place that neither plan has.

    `known` are waivers.
    """
    revision = Revision(diff.base.graph, diff.new.graph, diff.exact_matching, diff.matching)
    checked, waivers = [], list(known)
    for limit in limits:
        change = (
            MeasuredChange(proven[0].gap, proven[1].gap, ()) if limit.measure == "gap" else measure_change(diff, limit)
        )
        if limit.allows(change.base, change.new):
            checked.append(CheckedLimit(limit, change, None, (), None))
            continue
        causes = revision.nearest_edits(change.changed_terms[0]) if change.changed_terms else revision.edits
        covering = [one for one in waivers if one.covers(limit, change.base, change.new)]
        latest = max(covering, key=lambda one: one.expires, default=None)
        checked.append(CheckedLimit(limit, change, _certify_rise(limit, *proven), tuple(causes[:MAX_CAUSES]), latest))
    return checked


def _certify_rise(limit: Threshold, base: ProvenObjective, new: ProvenObjective) -> str | None:
    if limit.measure != new.measure or limit.measure == "bytes" or limit.place is not None:
        return None
    if not limit.allows(base.objective, new.bound):
        return PROVEN
    return DEARER if new.bound > base.objective else IN_GAPS


def to_share_units(gap: float) -> int:
    """Convert a gap to whole share units."""
    return round(gap * SHARE_UNITS)
