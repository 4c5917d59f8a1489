"""A network captured by another version of its framework equals the network captured by this one."""

from __future__ import annotations

import pytest

pytest.importorskip("jax", reason="jax is not installed: pip install shardplan[jax]")

from benchmarks.check import FAMILIES, KINDS, version_pair

pytestmark = pytest.mark.frameworks("jax")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_newer_jax_raises_no_alarm_and_needs_no_plan(family: str, kind: str) -> None:
    pair = version_pair(family, kind)
    assert pair["unplanned"]
    assert not pair["alarms"]
