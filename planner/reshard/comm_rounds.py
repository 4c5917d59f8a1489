"""Rounds without contention: in each a device sends to at most one other and receives from at most one.

Messages are the edges of a bipartite graph, senders on one side and receivers on the other; rounds are colours of its
edges. As many are needed as the busiest device has messages, and as many are enough (König, "Über Graphen und ihre
Anwendung auf Determinantentheorie und Mengenlehre", 1916). The proof is the algorithm: a message takes a round that is
free at both ends. If none is, let a be free at its sender and b at its receiver: from the receiver on, the messages of
the rounds a and b alternate along a path that never comes to the sender, so that they can change rounds; then a is free
at both. Messages that go equally far around are taken together: an even exchange needs no such path.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.ir.transfers import DeviceMessages, Transfers

Integers = NDArray[np.int64]


def count_rounds(done: Transfers) -> tuple[int, int]:
    """How many rounds an exchange takes for its terms, and then for its copies."""
    terms, copies = (min_rounds(each, done.devices) for each in done.messages)
    return terms, copies


def min_rounds(messages: DeviceMessages, devices: int) -> int:
    """Messages of the device that sends or receives most."""
    ends = (messages.sender, messages.receiver)
    return int(max(np.bincount(each, minlength=devices).max(initial=0) for each in ends))


def color_edges(messages: DeviceMessages, devices: int) -> Integers:
    """[messages]: the round of each, `min_rounds` in all. Time grows with messages * rounds at worst."""
    pairs = list(zip(messages.sender.tolist(), messages.receiver.tolist(), strict=True))
    timetable = _EdgeColoring(pairs, devices, min_rounds(messages, devices))
    for number in sorted(range(len(pairs)), key=lambda n: ((pairs[n][1] - pairs[n][0]) % devices, pairs[n])):
        timetable.assign(number)
    return np.array(timetable.round, np.int64)


class _EdgeColoring:
    """By end (0 sends, 1 receives) and device: the message of every round, and its free rounds as bits."""

    def __init__(self, pairs: list[tuple[int, int]], devices: int, rounds: int) -> None:
        self.pairs = pairs
        self.round = [-1] * len(pairs)
        self.taken: tuple[list[dict[int, int]], ...] = ([{} for _ in range(devices)], [{} for _ in range(devices)])
        self.free = [[(1 << rounds) - 1] * devices for _ in range(2)]

    def assign(self, number: int) -> None:
        sender, receiver = self.pairs[number]
        sends, receives = self.free[0][sender], self.free[1][receiver]
        at = _lowest_bit(sends & receives or sends)
        if not sends & receives:
            self._swap_rounds(receiver, at, _lowest_bit(receives))
        self._set_round(number, at)

    def _set_round(self, number: int, at: int) -> None:
        self.round[number] = at
        for end, device in enumerate(self.pairs[number]):
            self.taken[end][device][at] = number
            self.free[end][device] &= ~(1 << at)

    def _swap_rounds(self, receiver: int, one: int, other: int) -> None:
        """Change rounds on the path from a receiver that begins with round `one`."""
        path, end, device, at = [], 1, receiver, one
        while at in self.taken[end][device]:
            number = self.taken[end][device][at]
            path.append(number)
            end, device, at = 1 - end, self.pairs[number][1 - end], one + other - at
        for number in path:
            for side, place in enumerate(self.pairs[number]):
                del self.taken[side][place][self.round[number]]
                self.free[side][place] |= 1 << self.round[number]
        for number in path:
            self._set_round(number, one + other - self.round[number])


def _lowest_bit(rounds: int) -> int:
    """The first of rounds given as bits."""
    return (rounds & -rounds).bit_length() - 1
