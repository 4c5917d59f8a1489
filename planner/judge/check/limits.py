"""Parse limits on rises from text.

    limits  = limit {"," limit}
    limit   = measure ["[" place "]"] ">" amount
    measure = "time" | "bytes" | "memory" | "gap"
    place   = a mesh axis (time and bytes of the collectives over it) | a scope, with all scopes below
    amount  = number ("%" | unit): a share of the base's figure, or an absolute amount in
              ps ns us ms s (time) · B KB KiB MB MiB GB GiB TB TiB (bytes, memory)

`time` is that of the step, `bytes` those of the device that receives most, `memory` the peak. A gap is already a share:
`gap>1%` allows a rise by one percentage point. A limit is exceeded by a *rise* above the amount; comparisons are exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from planner.errors import InvalidRequest

SHARE_UNITS = 10**12
"""Units of a gap of 1: gaps are counted in whole units, like other measures."""
_TIMES = {"ps": 1, "ns": 10**3, "us": 10**6, "ms": 10**9, "s": 10**12}
_SIZES = {"B": 1, **{f"{p}B": 1000**i for i, p in enumerate("KMGT", 1)}}
_SIZES |= {f"{p}iB": 1024**i for i, p in enumerate("KMGT", 1)}
UNITS = {"time": _TIMES, "bytes": _SIZES, "memory": _SIZES, "gap": dict[str, int]()}
MEASURE_UNITS = {"time": "ps", "bytes": "bytes", "memory": "bytes", "gap": "share"}
_LIMIT = re.compile(
    r"\s*(?P<measure>\w*)\s*(?P<place>\[[^\]]*\])?\s*(?P<more>>?)\s*(?P<number>\d{0,12}(?:\.\d{1,6})?)\s*(?P<unit>%|\w*)\s*",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit on a rise: `amount` in units of the measure, or a share of the base's figure if `relative`."""

    measure: str
    place: str | None
    amount: Fraction
    relative: bool
    text: str

    @property
    def where(self) -> str:
        """The limit without its amount: `time[h.0.mlp]`."""
        return self.measure + (f"[{self.place}]" if self.place is not None else "")

    def allows(self, base: int, new: int) -> bool:
        """Return whether a figure may change from `base` to `new`."""
        return new - base <= (self.amount * base if self.relative else self.amount)


def parse_limits(text: str, where: str = "limits") -> tuple[Threshold, ...]:
    """Parse a list of limits. Raises InvalidRequest with the position of the first error."""
    return tuple(dict.fromkeys(_scan_limits(text, where))) if text.strip() else ()


def _scan_limits(text: str, where: str) -> Iterator[Threshold]:
    at = 0
    while True:
        match = _LIMIT.match(text, at)
        assert match is not None
        yield _parse_limit(match, text, where)
        at = match.end()
        if at == len(text):
            return
        if text[at] != ",":
            raise _limit_error(
                "cannot be read", where, text, at=at, wanted="limits with commas between, such as time>5%,memory>1GiB"
            )
        at += 1


def _parse_limit(match: re.Match[str], text: str, where: str) -> Threshold:
    measure, unit = match["measure"], match["unit"]
    if measure not in UNITS:
        raise _limit_error(
            "unknown measure", where, text, at=match.start("measure"), wanted=f"one of {', '.join(UNITS)}"
        )
    place = None if match["place"] is None else match["place"][1:-1].strip()
    if place == "" or (place and measure == "gap"):
        wanted = "gap without a place" if measure == "gap" else f"{measure}[AXIS] or {measure}[SCOPE]"
        raise _limit_error("place", where, text, at=match.start("place"), wanted=wanted)
    if not match["more"]:
        raise _limit_error(
            "no limit", where, text, at=match.start("more"), wanted=f"> and an amount, such as {measure}>5%"
        )
    units = ("%", *UNITS[measure])
    if not match["number"] or unit not in units:
        wanted = f"a number with {', '.join(units)}"
        raise _limit_error(
            "amount", where, text, at=match.start("unit" if match["number"] else "number"), wanted=wanted
        )
    number = Fraction(match["number"])
    if unit == "%":
        share = number / 100
        amount, relative = (share * SHARE_UNITS, False) if measure == "gap" else (share, True)
    else:
        amount, relative = number * UNITS[measure][unit], False
    return Threshold(measure, place, amount, relative, match[0].strip())


def _limit_error(what: str, where: str, text: str, *, at: int, wanted: str) -> InvalidRequest:
    got = text[at : at + 40] or "the end"
    return InvalidRequest(what, where=f"{where}, character {at + 1}", got=got, wanted=wanted)
