"""Malformed calls: each is refused by a message of ours, and by the real tools where they can tell."""

from __future__ import annotations

import re

import pytest

from planner.errors import InvalidProgram
from tests.testing.malformed_spmd import ACCEPTED, FAULTS, WIDER, Fault
from tests.testing.spmd_programs import build
from tests.testing.upstream_spmd import VERSIONS, Case, accepted, missing


@pytest.mark.parametrize("wrong", FAULTS, ids=[f"{n} {f.case.op} {f.words[:40]}" for n, f in enumerate(FAULTS)])
def test_a_malformed_call_is_refused_with_a_message(wrong: Fault) -> None:
    with pytest.raises(InvalidProgram, match=re.escape(wrong.words)) as caught:
        build(wrong.case)
    assert f"{wrong.case.op}(" in str(caught.value), "names the value and its call"
    assert caught.value.got is not None
    assert caught.value.wanted is not None


@pytest.mark.parametrize("case", [*ACCEPTED, *WIDER], ids=lambda case: case.op)
def test_a_right_call_is_accepted(case: Case) -> None:
    build(case)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_real_tools_agree(version: int) -> None:
    """Exceptions are listed with what explains them; they are the only ones."""
    if reason := missing(version):
        pytest.skip(reason)
    verdicts = accepted([wrong.case for wrong in FAULTS], version)
    odd = [
        f"{w.case}: {w.exception}" for w, ok in zip(FAULTS, verdicts, strict=True) if ok != (w.exception is not None)
    ]
    assert not odd, "\n".join(odd)
    assert all(accepted(ACCEPTED, version))
    assert not any(accepted(WIDER, version))
