"""What planners ask of a candidate: utilization, throughput, cost and energy, in units that the names say.

Energy is that of the devices at their rated power, without hosts, network and cooling.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.usecases.capacity_question import SECONDS_PER_HOUR
from planner.usecases.capacity_search import CapacitySearch

MILLION = 1e6
SECONDS_PER_DAY = 24 * SECONDS_PER_HOUR
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class TokenFigures:
    """Throughput, and what so many tokens take; None where tokens, price or power are unknown.

    Costs are in the currency of `price_per_device_hour`.
    """

    tokens_per_s: float | None = None
    tokens_per_device_s: float | None = None
    device_hours_per_million_tokens: float | None = None
    cost_per_million_tokens: float | None = None
    energy_kwh_per_million_tokens: float | None = None
    run_days: float | None = None
    run_device_hours: float | None = None
    run_cost: float | None = None
    run_energy_kwh: float | None = None


def token_figures(search: CapacitySearch, number: int, step_s: float) -> TokenFigures:
    """Return the figures of a step of a candidate that takes `step_s`."""
    question = search.question
    one = question.candidates[number]
    tokens, devices = question.count_tokens(one), one.devices
    if not tokens or not step_s:
        return TokenFigures()
    price, power_w = question.offers[one.hardware].price_per_device_hour, search.bounds.hardware[one.hardware].power_w
    device_s = devices * step_s / tokens
    hours, run = device_s / SECONDS_PER_HOUR, question.run_tokens
    cost = None if price is None else hours * price
    energy = None if power_w is None else device_s * power_w / JOULES_PER_KWH
    return TokenFigures(
        tokens_per_s=tokens / step_s,
        tokens_per_device_s=1 / device_s,
        device_hours_per_million_tokens=hours * MILLION,
        cost_per_million_tokens=_times(cost, MILLION),
        energy_kwh_per_million_tokens=_times(energy, MILLION),
        run_days=_times(run, step_s / tokens / SECONDS_PER_DAY),
        run_device_hours=_times(run, hours),
        run_cost=_times(cost, run),
        run_energy_kwh=_times(energy, run),
    )


def _times(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other
