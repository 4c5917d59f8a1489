"""Interference: how much longer kinds of work take on a device while they run at the same time.

While a set of kinds of work runs, work of kind i takes

    1 + sum of shares[i][j] over the other kinds j that run

times as long as alone. So parts that are started together end when the last of them does, with the speeds changing
each time one ends. The shares are fitted to measurements of matrix products, all-gathers and copies to and from the
host that run at the same time (`benchmarks.overlap`); those of collectives differ by the link that they cross.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from planner.errors import InvalidHardware

KINDS = ("compute", "collective", "to_device", "from_device")
COMPUTE, COLLECTIVE = KINDS[:2]
MAX_SHARE = 100.0


@dataclass(frozen=True)
class Interference:
    """By kind of work, the share by which each other kind that runs makes it take longer; absent kinds do not."""

    shares: Mapping[str, Mapping[str, float]]

    def __post_init__(self) -> None:
        for kind, others in self.shares.items():
            for other, share in others.items():
                if not {kind, other} <= set(KINDS) or kind == other:
                    wanted = f"two different kinds of {', '.join(KINDS)}"
                    raise InvalidHardware("interference", got=f"{kind}, {other}", wanted=wanted)
                if not 0 <= share <= MAX_SHARE:
                    raise InvalidHardware("interference", where=f"{kind}.{other}", got=share, wanted="0 to 100")

    def share(self, kind: str, other: str) -> float:
        return self.shares.get(kind, {}).get(other, 0.0)


NO_INTERFERENCE = Interference(MappingProxyType({}))
