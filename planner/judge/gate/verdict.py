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

from planner.judge.gate.causes import Edit, Revision
from planner.judge.gate.figures import Figure, figure
from planner.judge.gate.thresholds import SHARE_UNITS, Threshold
from planner.judge.regression import Regression

PROVEN, DEARER, IN_GAPS = "proven", "dearer", "in gaps"
MOST_CAUSES = 3


@dataclass(frozen=True, slots=True)
class Proven:
    """Of a plan: the measure that is its objective, what was found of it and the bound in whole units, and the gap in
    those of a share."""

    measure: str
    found: int
    bound: int
    gap: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A rise that somebody answers for: up to a limit, for a reason, until a day (the last on which it holds)."""

    limit: Threshold
    reason: str
    expires: date

    def covers(self, broken: Threshold, base: int, new: int) -> bool:
        return self.limit.where == broken.where and self.limit.allows(base, new)


@dataclass(frozen=True, slots=True)
class Checked:
    """A limit and what it is on. `acknowledgement`: one that covers the rise, expired or not."""

    limit: Threshold
    figure: Figure
    certificate: str | None
    causes: tuple[Edit, ...]
    acknowledgement: Acknowledged | None

    @property
    def is_broken(self) -> bool:
        return not self.limit.allows(self.figure.base, self.figure.new)


def checked(
    found: Regression, proven: tuple[Proven, Proven], limits: Sequence[Threshold], known: Iterable[Acknowledged]
) -> list[Checked]:
    """Every limit on two plans of one mesh. Raises InvalidRequest for a place that neither has."""
    revision = Revision(found.base.program.graph, found.new.program.graph, found.same, found.matching)
    answers, kept = [], list(known)
    for limit in limits:
        on = Figure(proven[0].gap, proven[1].gap, ()) if limit.measure == "gap" else figure(found, limit)
        if limit.allows(on.base, on.new):
            answers.append(Checked(limit, on, None, (), None))
            continue
        causes = revision.nearest(on.moved[0]) if on.moved else revision.edits
        covering = [one for one in kept if one.covers(limit, on.base, on.new)]
        latest = max(covering, key=lambda one: one.expires, default=None)
        answers.append(Checked(limit, on, _certificate(limit, *proven), tuple(causes[:MOST_CAUSES]), latest))
    return answers


def _certificate(limit: Threshold, base: Proven, new: Proven) -> str | None:
    if limit.measure != new.measure or limit.measure == "bytes" or limit.place is not None:
        return None
    if not limit.allows(base.found, new.bound):
        return PROVEN
    return DEARER if new.bound > base.found else IN_GAPS


def share_units(gap: float) -> int:
    """A gap as a limit counts it."""
    return round(gap * SHARE_UNITS)
