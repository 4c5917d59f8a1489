"""How sure the step of a pipeline is: an interval from the errors of what prices the instructions of its stages.

As without stages (`planner.judge.step_interval`), errors within a class of instructions are taken to go together, and
those of different classes to be independent. What an error does to the step is simulated. With T(c) the step in which
all instructions of class c take as long as the upper end of their interval (sends are collectives),

    high = step + sqrt(sum over classes of (T(c) - step) ** 2)

and the lower end alike, so that an error of a stage that others wait for counts, and one that is hidden does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.choose.cost import PICO
from planner.choose.hardware.intervals import NETWORK_INTERVAL
from planner.judge.step_interval import COLLECTIVES, Factors, list_factors
from planner.pipeline_stages.pipeline_plan import PipelinePlan, simulate_stages

LOW, HIGH = "low", "high"


def find_pipeline_interval(plan: PipelinePlan) -> tuple[float, float]:
    """Return the ends of the interval of a pipeline's step in seconds; the plan has stages."""
    factors = [list(list_factors(stage.analysis)) for stage in plan.stages]
    names = sorted({each.name for stage in factors for each in stage} | {COLLECTIVES})
    below, above = (
        math.hypot(*(plan.timeline.step_ps - _simulate_step(plan, factors, name=name, end=end) for name in names))
        for end in (LOW, HIGH)
    )
    return (plan.timeline.step_ps - below) * PICO, (plan.timeline.step_ps + above) * PICO


def _simulate_step(plan: PipelinePlan, factors: Sequence[Sequence[Factors]], *, name: str, end: str) -> int:
    """Return the step in ps with all instructions of a class at one end of their interval."""
    assert plan.schedule is not None, "a plan with stages"
    times = [
        [
            round(time * getattr(factor, end)) if factor.name == name else time
            for time, factor in zip(stage.analysis.times_ps, own, strict=True)
        ]
        for stage, own in zip(plan.stages, factors, strict=True)
    ]
    slower = NETWORK_INTERVAL[end == HIGH] if name == COLLECTIVES else 1.0
    return simulate_stages(
        plan.schedule,
        plan.stages,
        times=times,
        slower_sends=slower,
        sends=plan.sends,
        exchanges=plan.exchanges,
    ).step_ps
