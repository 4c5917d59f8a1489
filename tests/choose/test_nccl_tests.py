"""Output of nccl-tests is read back into the network that produced it, and links are fitted to it."""

from __future__ import annotations

import pytest

from planner.choose.hardware import load_profile
from planner.choose.hardware.fit import refit_hardware
from planner.choose.hardware.nccl_tests import COLLECTIVE_KINDS, read_runs
from planner.choose.hardware.network import Link
from planner.errors import InvalidDocument, InvalidHardware
from planner.ir.collectives import Kind
from tests.testing.nccl_output import SIZES, printed

NEAR = Link(9e-6, 300e9, 7e-7, 7e-7, 4e-6)
FAR = Link(2e-5, 40e9, 3e-6, 8e-6, 4e-5)
GOOD = printed("all_reduce", (NEAR, FAR), 8)

# A change to a good text; what the refusal says.
FAULTS = [
    ("no text at all", lambda text: "", "no table of nccl-tests"),
    ("no table", lambda text: text[: text.index("   4096")], "no table of nccl-tests"),
    ("cut in a row", lambda text: text[: text.index("  1073741824") + 70], "row is cut off"),
    ("wrong results", lambda text: text.replace("      0 ", "      7 ", 1), "wrong results"),
    ("no number", lambda text: _second_column(text, "fast"), "number of a row"),
    ("no time", lambda text: _second_column(text, "0.00"), "time of a row"),
    ("another time", lambda text: _second_column(text, "999.9"), "algbw of a row"),
    ("a rank left out", lambda text: "\n".join(x for x in text.split("\n") if "Rank  3" not in x), "ranks of a run"),
    ("a rank twice", lambda text: text.replace("Rank  3", "Rank  2"), "rank 2 twice"),
    ("hosts of unlike size", lambda text: text.replace("node-0 device  7", "node-1 device  0"), "ranks of the hosts"),
    ("another collective", lambda text: text.replace("all_reduce_perf", "all_gather_perf"), "busbw / algbw"),
    ("an unknown collective", lambda text: text.replace("all_reduce_perf", "gather_perf"), "collective of a run"),
]


def _second_column(text: str, time: str) -> str:
    """The time of the largest row replaced."""
    line = next(line for line in text.split("\n") if line.strip().startswith("1073741824"))
    columns = line.split()
    return text.replace(line, " ".join([*columns[:5], time, *columns[6:]]))


@pytest.mark.parametrize("name", COLLECTIVE_KINDS)
@pytest.mark.parametrize("launcher", ["", "[1,0]<stdout>:", "    ", "worker-0: "])
def test_a_run_is_read_back_as_it_was_printed(name: str, launcher: str) -> None:
    (run,) = read_runs(printed(name, (NEAR, FAR), 4, 2, launcher), "out.txt")
    assert (run.kind, run.ranks, run.hosts) == (COLLECTIVE_KINDS[name], 8, 2)
    assert [size for size, _ in run.rows] == [size for size in SIZES for _ in range(2)]
    for timing in run.timings():
        assert timing.counts == (4, 2)
        assert timing.predicted_s((NEAR, FAR)) == pytest.approx(timing.seconds, rel=1e-3)


def test_several_runs_of_one_text_are_told_apart() -> None:
    texts = [printed("all_reduce", (NEAR, FAR), 8), printed("all_gather", (NEAR, FAR), 4, 2)]
    runs = read_runs("\n".join(texts), "out.txt")
    assert [(run.kind, run.ranks, run.hosts) for run in runs] == [(Kind.ALL_REDUCE, 8, 1), (Kind.ALL_GATHER, 8, 2)]


@pytest.mark.parametrize(("what", "change", "message"), FAULTS, ids=[what for what, _, _ in FAULTS])
def test_a_damaged_text_is_refused(what: str, change, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidDocument, match=message) as caught:
        read_runs(change(GOOD), "out.txt")
    assert caught.value.where.startswith("out.txt")


def test_links_are_fitted_to_what_ran_on_them() -> None:
    names = list(COLLECTIVE_KINDS)
    runs = [run for name in names for run in read_runs(printed(name, (NEAR, FAR), 4), "near.txt")]
    runs += [run for name in names for run in read_runs(printed(name, (NEAR, FAR), 4, 4), "far.txt")]
    found = refit_hardware(load_profile("h100-sxm"), [timing for run in runs for timing in run.timings()])
    assert [each.name for each in found] == ["nvlink", "infiniband"]
    for each, made in zip(found, (NEAR, FAR), strict=True):
        assert each.after < 0.03 < each.before
        assert each.link.bandwidth == pytest.approx(made.bandwidth, rel=0.1)


def test_a_link_is_not_fitted_to_a_handful_of_measurements() -> None:
    (run,) = read_runs(GOOD, "out.txt")
    with pytest.raises(InvalidHardware, match="too few measurements"):
        refit_hardware(load_profile("h100-sxm"), run.timings()[:5])
    (run,) = read_runs(printed("all_reduce", (NEAR, FAR), 4, 2), "out.txt")
    with pytest.raises(InvalidHardware, match="one of nvlink, infiniband"):
        refit_hardware(load_profile("h100-sxm"), run.timings(), "string")
    with pytest.raises(InvalidHardware, match="no link between hosts"):
        refit_hardware(load_profile("cpu"), run.timings())
