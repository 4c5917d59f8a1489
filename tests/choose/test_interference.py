"""What running at the same time costs, in hardware profiles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.choose.hardware import Hardware, list_profiles, load_profile, parse_hardware
from planner.choose.hardware.interference import Interference
from planner.documents.hardware import read_profile
from planner.errors import InvalidHardware

# Shares, and words of the message.
WRONG: list[tuple[dict[str, dict[str, float]], str]] = [
    ({"compute": {"compute": 0.1}}, "two different kinds"),
    ({"compute": {"disk": 0.1}}, "two different kinds"),
    ({"network": {"compute": 0.1}}, "two different kinds"),
    ({"compute": {"collective": -0.1}}, "compute.collective"),
    ({"compute": {"collective": float("nan")}}, "compute.collective"),
]


@pytest.mark.parametrize(("shares", "words"), WRONG)
def test_shares_that_cannot_be_are_refused(shares: dict[str, dict[str, float]], words: str) -> None:
    with pytest.raises(InvalidHardware, match=words):
        Interference(shares)


def test_kinds_that_are_not_listed_do_not_slow_down() -> None:
    one = Interference({"compute": {"collective": 0.25}})
    assert one.share("compute", "collective") == 0.25
    assert one.share("collective", "compute") == one.share("compute", "to_device") == 0.0


def test_a_link_that_the_profile_lacks_is_refused() -> None:
    with pytest.raises(InvalidHardware, match="unknown link"):
        replace(load_profile("h100-sxm"), interference={"smoke": Interference({})})


def overlapping() -> list[Hardware]:
    return [each for each in map(load_profile, list_profiles()) if each.overlap]


def test_profiles_count_overlap_where_its_cost_was_measured_and_name_the_source() -> None:
    assert {"a100-sxm", "v100-sxm"} <= {each.name for each in overlapping()}
    for profile in overlapping():
        document = read_profile(profile.name)
        assert set(profile.interference) == set(profile.links)
        assert parse_hardware(document) == profile
        for link in profile.links:
            assert "left out of the fit" in document["sources"][f"interference.{link}"]
