"""Read the output of nccl-tests (https://github.com/NVIDIA/nccl-tests): collectives timed over the ranks of hosts.

    # Collective test starting: all_reduce_perf
    #  Rank  0 Group  0 Pid   1655 on host-1 device  0 [0000:06:00] NVIDIA H100 80GB HBM3
    #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
        33554432       8388608     float     sum      -1   183.52  182.84  319.97      0   180.10  186.31  326.05      0

A text may contain several runs, and lines may begin with a launcher's prefix. Both times of a row count, out of place
and in place. The columns of a row are checked against each other, up to rounding: algbw = size / time, and busbw /
algbw is 2 (n - 1) / n for an all_reduce of n ranks and (n - 1) / n for other collectives.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from planner.choose.hardware.fit import Timing
from planner.errors import InvalidDocument
from planner.ir.collectives import COLLECTIVES, Kind

COLLECTIVE_KINDS = {
    "all_reduce": Kind.ALL_REDUCE,
    "all_gather": Kind.ALL_GATHER,
    "reduce_scatter": Kind.REDUCE_SCATTER,
    "alltoall": Kind.ALL_TO_ALL,
}
_NAME = re.compile(r"\b([a-z_]+)_perf")
_RANK = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+")
_ROW = re.compile(r"(?:^|[\s:>])(\d+)\s+(\d+)\s+[a-z]\w*\s+[a-z]\w*\s+-?\d+\s+(\S.*)$")
_SMALLEST_BANDWIDTH = 1.0
"""In GB/s: below it, two printed decimals are too few for the check."""


@dataclass(frozen=True, slots=True)
class CollectiveRun:
    """One run over `hosts` hosts of `ranks` / `hosts` ranks each; `rows` are (size in bytes, seconds)."""

    kind: Kind
    ranks: int
    hosts: int
    rows: tuple[tuple[int, float], ...]

    def timings(self) -> list[Timing]:
        """Return the timings for two links, of which the first joins the ranks of a host and the second the hosts."""
        share = self.ranks if COLLECTIVES[self.kind].gathers else 1
        counts = (self.ranks // self.hosts, self.hosts)
        return [Timing(self.kind, counts, size / share, seconds) for size, seconds in self.rows if size]


def read_runs(text: str, where: str) -> list[CollectiveRun]:
    """Read the runs in a text. Raises InvalidDocument for a text without a run, or with contradicting numbers."""
    drafts = list(_split_runs(text.splitlines(), where))
    if not drafts:
        raise InvalidDocument("no table of nccl-tests", where=where, wanted="what all_reduce_perf or its like printed")
    return [draft.finish() for draft in drafts]


@dataclass
class _RunParser:
    where: str
    name: str = ""
    hosts: dict[int, str] = field(default_factory=dict)
    rows: list[tuple[int, float]] = field(default_factory=list)
    factors: list[tuple[float, float, int]] = field(default_factory=list)

    def finish(self) -> CollectiveRun:
        if self.name not in COLLECTIVE_KINDS:
            known = ", ".join(f"{name}_perf" for name in COLLECTIVE_KINDS)
            raise InvalidDocument("collective of a run", where=self.where, got=self.name or "none", wanted=known)
        ranks, counts = len(self.hosts), Counter(self.hosts.values())
        if ranks < 2 or sorted(self.hosts) != list(range(ranks)):
            wanted = "a line `# Rank ...` of every rank, two or more"
            raise InvalidDocument("ranks of a run", where=self.where, got=sorted(self.hosts), wanted=wanted)
        if len(set(counts.values())) > 1:
            raise InvalidDocument("ranks of the hosts", where=self.where, got=dict(counts), wanted="as many on each")
        self._check_factors(ranks)
        return CollectiveRun(COLLECTIVE_KINDS[self.name], ranks, len(counts), tuple(self.rows))

    def add_rank(self, number: int, host: str) -> None:
        if number in self.hosts:
            wanted = "every rank once: a build with MPI"
            raise InvalidDocument(f"rank {number} twice", where=self.where, wanted=wanted)
        self.hosts[number] = host

    def add_row(self, size: int, columns: list[str], where: str) -> None:
        if len(columns) not in (4, 8):
            wanted = "time, algbw, busbw, #wrong, once or twice"
            raise InvalidDocument("row is cut off", where=where, got=" ".join(columns), wanted=wanted)
        for time, algbw, busbw, wrong in zip(*[iter(columns)] * 4, strict=True):
            self.add_measurement(size, _parse_numbers((time, algbw, busbw), where), where)
            if wrong not in ("0", "N/A", "0e+00"):
                raise InvalidDocument("wrong results", where=where, got=wrong, wanted="#wrong 0: a run to trust")

    def add_measurement(self, size: int, numbers: list[float], where: str) -> None:
        time, algbw, busbw = numbers
        if size and not time > 0:
            raise InvalidDocument("time of a row", where=where, got=time, wanted="microseconds above 0")
        if size and abs(size / time / 1e3 - algbw) > 0.01 + 0.01 * algbw:
            wanted = f"size / time, {size / time / 1e3:.2f}"
            raise InvalidDocument("algbw of a row", where=where, got=algbw, wanted=wanted)
        self.rows.append((size, time * 1e-6))
        self.factors.append((algbw, busbw, size))

    def _check_factors(self, ranks: int) -> None:
        factor = (ranks - 1) / ranks * (2 if self.name == "all_reduce" else 1)
        for algbw, busbw, size in self.factors:
            if algbw >= _SMALLEST_BANDWIDTH and abs(busbw / algbw - factor) > 0.03 * factor:
                wanted = f"{factor:.3f} for {self.name} of {ranks} ranks"
                where = f"{self.where}: size {size}"
                raise InvalidDocument("busbw / algbw", where=where, got=round(busbw / algbw, 3), wanted=wanted)


def _split_runs(lines: Iterable[str], where: str) -> Iterator[_RunParser]:
    """Yield the runs. A new run begins with the first header line after a table."""
    now = _RunParser(where)
    for number, line in enumerate(lines, start=1):
        named, ranked, row = _NAME.search(line), _RANK.search(line), _ROW.search(line)
        if (named or ranked or "nThread" in line) and now.rows:
            yield now
            now = _RunParser(where)
        if named and (named[1] in COLLECTIVE_KINDS or not now.name):
            now.name = named[1]
        if ranked:
            now.add_rank(int(ranked[1]), ranked[2])
        elif row and "#" not in line:
            now.add_row(int(row[1]), row[3].split(), f"{where}: line {number}")
    if now.rows:
        yield now


def _parse_numbers(columns: Iterable[str], where: str) -> list[float]:
    found = []
    for text in columns:
        try:
            found.append(float(text))
        except ValueError:
            raise InvalidDocument("number of a row", where=where, got=text, wanted="a number") from None
        if not (math.isfinite(found[-1]) and found[-1] >= 0):
            raise InvalidDocument("number of a row", where=where, got=text, wanted="0 or more")
    return found
