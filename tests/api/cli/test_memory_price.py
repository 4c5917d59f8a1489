"""The printed worth of more memory: never more than is proven, and the layouts that were found beyond the limit."""

from __future__ import annotations

import pytest

from api.cli.memory_price import describe_memory_price, describe_next_layout

LAYOUTS = [
    {"name": "fast", "step_s": 0.001, "peak_bytes": 3 << 20},
    {"name": "near", "step_s": 0.003, "peak_bytes": 2 << 20},
    {"name": "slow", "step_s": 0.009, "peak_bytes": (1 << 20) + 1},
    {"name": "small", "step_s": 0.002, "peak_bytes": 1},
]


def test_the_price_is_stated_for_memory_near_the_limit() -> None:
    assert describe_memory_price(1.024).endswith("one more MiB per device saves at most 1.000 ms")
    assert describe_memory_price(0.0) == ""


@pytest.mark.parametrize(("step_s", "told"), [(0.005, "1.0 MiB more let near save 2.000 ms"), (0.0005, "")])
def test_the_next_layout_is_the_faster_one_that_needs_the_least_extra_memory(step_s: float, told: str) -> None:
    assert describe_next_layout(step_s, 1 << 20, LAYOUTS) == told
