"""What a pipeline stage holds for micro-batches that have begun and not ended, beside the one that it runs.

A stage runs the forward pass of later micro-batches before the backward pass of earlier ones
(`planner.pipeline_stages.schedules`). Between the two it holds, for each, what the forward pass left for the backward
pass. Where gradients of parameters are computed apart and later, it also holds what the backward pass left for these.

What does not depend on data, such as a gathered copy of a parameter, is the same for all micro-batches. Where it is
left from pass to pass, one copy is held throughout the loop.
"""

from __future__ import annotations

from dataclasses import dataclass

NO_OPS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class InFlight:
    """Other micro-batches whose activations are held while one runs.

    after_forward   those between their forward and their backward pass
    after_backward  those between their backward pass and the ops `late`, which compute gradients of parameters
    """

    after_forward: int = 0
    after_backward: int = 0
    late: frozenset[str] = NO_OPS


ALONE = InFlight()
"""One micro-batch after the other."""
