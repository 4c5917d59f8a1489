"""Compares predicted with published times of collectives, for the shipped profiles and for fits that omit a source.

`python -m benchmarks.collective_costs [FILE]`: FILE has rows of other sources, in the format of data/collectives.json.
The rows of data/collectives_held_out.json are compared as well; no profile is fitted to them. Sources also disagree on
the same collective, devices, link and size: a model that does not know the cluster is off by half of that difference.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.record import write
from planner.choose.hardware import list_profiles, load_profile
from planner.choose.hardware.fit import Timing, fit_links
from planner.choose.hardware.network import InSwitchReduction, Link
from planner.ir.collectives import Kind

DATA = Path(__file__).parent / "data" / "collectives.json"
HELD_OUT = DATA.with_name("collectives_held_out.json")
LARGE = 1 << 20
SIZES = {
    "below 16 KiB": 0,
    "from 16 KiB": 1 << 14,
    "from 256 KiB": 1 << 18,
    "from 1 MiB": 1 << 20,
    "from 16 MiB": 1 << 24,
}
"""Classes of whole bytes, each from its number up to the next one's."""
NOT_FITTED = "C"
"""The quality of sources that lack details which a comparison needs."""
# What a fit starts from, and what a link without measurements is taken for: round figures of links of its kind, hops as
# NCCL takes them (LL in src/graph/tuning.cc: 0.6 us over NVLink, 2.7 and 5 us by network in rings and trees).
NEAR = {
    "h100-sxm": Link(1e-5, 360e9, 6e-7, None, 3e-6, InSwitchReduction(1.33, 8e-6, 6)),
    "h200-sxm": Link(1e-5, 360e9, 6e-7, None, 3e-6, InSwitchReduction(1.33, 8e-6, 6)),
    "b200-sxm": Link(1e-5, 720e9, 6e-7, None, 3e-6, InSwitchReduction(1.33, 8e-6, 6)),
    "a100-sxm": Link(1e-5, 240e9, 6e-7, None, 3e-6),
    "mi300x": Link(1e-5, 336e9, 6e-7, None, 3e-6),
}
LINE_RATES = {"infiniband": 50e9, "roce": 50e9, "efa": 50e9, "tcpxo": 25e9}
SLOWER = {("a100-sxm", "infiniband"): 25e9, ("a100-sxm", "roce"): 25e9, ("a100-sxm", "efa"): 6.25e9}


@dataclass(frozen=True, slots=True)
class Row:
    """A published time, and the profile whose links predict it."""

    source: str
    profile: str
    link: str | None
    large: bool
    timing: Timing


def read(path: Path) -> list[Row]:
    """Read the rows of sources for which a profile has links."""
    document = json.loads(path.read_text())
    rows = []
    for source, nodes, devices, collective, size, time_us in document["rows"]:
        about = document["sources"][source]
        unknown = about["profile"] not in list_profiles() or (nodes > 1 and about.get("link") is None)
        if unknown or about.get("quality") == NOT_FITTED:
            continue
        local = size / devices if collective == "all_gather" else size
        timing = Timing(Kind(collective), (devices // nodes, nodes), local, time_us * 1e-6)
        rows.append(Row(source, about["profile"], about.get("link"), size >= LARGE, timing))
    return rows


Ratios = list[tuple[Row, float]]
"""Rows with predicted over measured seconds."""


@cache
def shipped(profile: str, link: str | None) -> tuple[Link, Link]:
    links = load_profile(profile).links
    near = next(iter(links))
    return links[near], links[link or near]


def without(source: str, rows: Sequence[Row]) -> dict[tuple[str, str | None], tuple[Link, ...]]:
    """Fit links to all other sources: first the link inside a node, then each link between nodes with it fixed."""
    profiles = {row.profile for row in rows if row.source == source}
    found: dict[tuple[str, str | None], tuple[Link, ...]] = {}
    for profile in profiles:
        others = [row for row in rows if row.profile == profile and row.source != source]
        inside = [row.timing for row in others if row.link is None]
        near, far = fit_links((NEAR[profile], NEAR[profile]), inside)[0], sorted({row.link for row in rows if row.link})
        found[profile, None] = (near, near)
        for link in far:
            rate = SLOWER.get((profile, link), LINE_RATES[link])
            start = (near, Link(2e-5, rate, 2.7e-6, 5e-6, 3e-5))
            found[profile, link] = fit_links(start, [row.timing for row in others if row.link == link], held=1)
    return found


def by_shipped(rows: Iterable[Row]) -> Ratios:
    """Return each row with what the shipped profile predicts, over what was measured."""
    return [(row, _find_ratio(row, shipped(row.profile, row.link))) for row in rows]


def _find_ratio(row: Row, links: Sequence[Link]) -> float:
    return row.timing.predicted_s(links) / row.timing.seconds


def between(rows: Iterable[Row]) -> Ratios:
    """Return how far two sources of the same measurement differ: the slower over the faster."""
    alike = defaultdict(list)
    for row in rows:
        timing = row.timing
        alike[row.profile, row.link, timing.kind, timing.counts, timing.local_bytes].append(row)
    pairs = (pair for each in alike.values() for pair in combinations(each, 2) if pair[0].source != pair[1].source)
    seconds = [(one, one.timing.seconds, other.timing.seconds) for one, other in pairs]
    return [(row, max(first, second) / min(first, second)) for row, first, second in seconds]


def summary(ratios: Ratios) -> dict[str, Any]:
    """Return median and 90th percentile of the relative error, by message size."""
    found: dict[str, Any] = {}
    for name, large in (("from_1_mib", True), ("below_1_mib", False)):
        part = [abs(ratio - 1) for row, ratio in ratios if row.large is large]
        found[name] = {"rows": len(part)}
        if len(part) > 1:
            found[name] |= {"median": round(median(part), 4), "p90": round(quantiles(part, n=10)[-1], 4)}
    return found


def by_size(ratios: Ratios) -> dict[str, Any]:
    """Return median error and median ratio of all_reduces, inside a node and between nodes, by size."""
    found: dict[str, Any] = {}
    for where, is_inside in (("inside a node", True), ("between nodes", False)):
        parts = defaultdict(list)
        for row, ratio in ratios:
            if row.timing.kind is Kind.ALL_REDUCE and (row.timing.counts[1] == 1) is is_inside:
                size = row.timing.whole_bytes
                parts[next(name for name, least in reversed(SIZES.items()) if size >= least)].append(ratio)
        found[where] = {
            name: {
                "rows": len(part),
                "median": round(median(abs(ratio - 1) for ratio in part), 4),
                "ratio": round(median(part), 4),
            }
            for name, part in ((name, parts[name]) for name in SIZES)
            if part
        }
    return found


def table(result: dict[str, Any]) -> str:
    """Return the result as Markdown tables."""
    return f"{_collectives_table(result)}\n\n{_sizes_table(result['all_reduce'])}"


def _sizes_table(result: dict[str, Any]) -> str:
    lines = [f"| all_reduce | {' | '.join(SIZES)} |", "|---" * (len(SIZES) + 1) + "|"]
    for group, places in result.items():
        for where, parts in places.items():
            cells = [
                f"{parts[name]['median']:.1%} of {parts[name]['rows']} ({parts[name]['ratio']:.2f})"
                if name in parts
                else "no rows"
                for name in SIZES
            ]
            lines.append(f"| {group}, {where} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _collectives_table(result: dict[str, Any]) -> str:
    head = "| collectives | rows | median error, 1 MiB or more | median error, below 1 MiB |"
    found = result["collectives"]
    named = {
        "all shipped profiles": found["shipped"],
        **found["by_profile"],
        "sources to which no profile is fitted": found["held_out"],
        f"fitted without the row's source, all sizes {found['leave_one_source_out_median']:.1%}": found[
            "leave_one_source_out"
        ],
        "difference of two sources of the same measurement": found["between_sources"],
    }
    return "\n".join([head, "|---|---|---|---|", *(_row(name, part) for name, part in named.items())])


def _row(name: str, part: dict[str, Any]) -> str:
    rows = sum(each["rows"] for each in part.values())
    shown = [f"{each['median']:.1%}" if "median" in each else "no rows" for each in part.values()]
    return f"| {name} | {rows:,} | {' | '.join(shown)} |"


def main() -> None:
    """Compare, and write results/collective_costs.json (or print, for rows of one's own)."""
    other = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    rows = read(other or DATA)
    ratios = by_shipped(rows)
    by_profile = defaultdict(list)
    for row, ratio in ratios:
        by_profile[row.profile].append((row, ratio))
    result: dict[str, Any] = {
        "shipped": summary(ratios),
        "by_profile": {profile: summary(part) for profile, part in sorted(by_profile.items())},
    }
    if other:
        sys.stdout.write(json.dumps(result, indent=1) + "\n")
        return
    left_out = []
    for source in sorted({row.source for row in rows}):
        links = without(source, rows)
        left_out += [(row, _find_ratio(row, links[row.profile, row.link])) for row in rows if row.source == source]
    held_out = by_shipped(read(HELD_OUT))
    result["held_out"] = summary(held_out)
    result["leave_one_source_out"] = summary(left_out)
    result["leave_one_source_out_median"] = round(median(abs(ratio - 1) for _, ratio in left_out), 4)
    result["between_sources"] = summary(between(rows + read(HELD_OUT)))
    groups = {"shipped profiles": ratios, "sources not fitted to": held_out, "source left out": left_out}
    all_reduce = {name: by_size(each) for name, each in groups.items()}
    write("collective_costs", {"collectives": result, "all_reduce": all_reduce})


if __name__ == "__main__":
    main()
