"""The shape of proof documents."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from planner.documents.strict_model import Size, StrictModel, Version

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Exact = Annotated[int, Field(ge=-(1 << 62), le=1 << 62)]
MAX_POTENTIALS = 10_000_000


class PriceDocument(StrictModel):
    """The price of a byte at a time step, in units over 2**shift."""

    time_step: Size
    price: Annotated[int, Field(ge=0, le=1 << 62)]


class ProofDocument(StrictModel):
    """A lower bound of the step of every plan, and the integers that prove it (planner/judge/dual_certificate.py).

    plan_digest, problem_digest: SHA-256 of the plan document and of its choice problem. `step_ps`: the plan's step.
    `bound_ps`: what the integers prove; `solver_bound_ps`: what the solver says, which may be more. `scale`: units to a
    picosecond. `potentials`: for each edge those of the classes at its source, then those at its target.
    """

    format: Literal["shardplan.proof"]
    version: Version
    plan_digest: Annotated[str, Field(max_length=128)]
    problem_digest: Digest
    step_ps: Size
    bound_ps: Size
    solver_bound_ps: Size
    scale: Annotated[int, Field(ge=1, le=1 << 59)]
    shift: Annotated[int, Field(ge=0, le=60)]
    prices: Annotated[list[PriceDocument], Field(max_length=1_000_000, fail_fast=True)]
    potentials: Annotated[list[Exact], Field(max_length=MAX_POTENTIALS, fail_fast=True)]
