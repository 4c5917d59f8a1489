"""What a pipeline stage holds for micro-batches that have begun and not ended, beside the one that it runs.

A stage runs the forward pass of later micro-batches before the backward pass of earlier ones
(`planner.pipeline_stages.schedules`). Between the two it holds, for each, what the forward pass left for the backward
pass. Where gradients of parameters are computed apart and later, it also holds what the backward pass left for these.

With few micro-batches, the most of both kinds do not wait at once: there are never more others than the step has. While
forward passes run, as many as can be wait for their backward pass; while late ops run, as many as can be for these; in
the backward pass either may be so, or anything in between, which holds no more than one of the two.

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
    gradients       the inputs that the backward pass is given, whichever pass reads them first
    """

    after_forward: int = 0
    after_backward: int = 0
    late: frozenset[str] = NO_OPS
    gradients: frozenset[str] = NO_OPS

    def count_at_once(self, microbatches: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return how many others wait for their backward pass, and for late ops, at once: most of either kind.

        A short step, which a bound is solved for, may have fewer others than wait in the step that it stands for.
        """
        forward, backward, others = self.after_forward, self.after_backward, microbatches - 1
        return (forward, min(backward, max(0, others - forward))), (min(forward, max(0, others - backward)), backward)


ALONE = InFlight()
"""One micro-batch after the other."""
