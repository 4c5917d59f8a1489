"""Processes by /proc: whose child each is, and which of them still run."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path


def list_children() -> dict[int, list[int]]:
    """Return the ids of the living children of each process that has any, from /proc."""
    found: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        if state[0] != "Z":
            found.setdefault(int(state[1]), []).append(int(name))
    return found


def children_of(process: int) -> list[int]:
    return list_children().get(process, [])


def borne(process: int) -> list[int]:
    """Return the children that a service's fork server has."""
    children = list_children()
    return [child for nursery in children.get(process, ()) for child in children.get(nursery, ())]


def descendants(process: int) -> list[int]:
    """Return the ids of all descendants of a process."""
    children, found = list_children(), [process]
    for each in found:
        found += children.get(each, ())
    return found[1:]


def lives(process: int) -> bool:
    try:
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(processes: Sequence[int], within_s: float = 120.0) -> bool:
    until = time.monotonic() + within_s
    while any(map(lives, processes)):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
