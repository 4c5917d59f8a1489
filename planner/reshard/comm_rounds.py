"""Schedule messages in rounds: in each round a device sends to at most one other and receives from at most one.

Messages are the edges of a bipartite graph of senders and receivers; rounds are colours of its edges. As many rounds
are needed as the busiest device has messages, and as many are enough (König, "Über Graphen und ihre
Anwendung auf Determinantentheorie und Mengenlehre", 1916). The proof is the algorithm. A message takes a round that is
free at both ends. If there is none, let a be free at its sender and b at its receiver. From the receiver on, messages
of the rounds a and b alternate along a path that never reaches the sender, so that they can swap rounds; then a is free
at both ends. Messages are assigned in order of their distance around the ring of devices, so that an even exchange
needs no swap.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.ir.transfers import DeviceMessages, Transfers

Integers = NDArray[np.int64]


def count_rounds(done: Transfers) -> tuple[int, int]:
    """Return the number of rounds that an exchange takes for its terms, and then for its copies."""
    terms, copies = (min_rounds(each, done.devices) for each in done.messages)
    return terms, copies


def min_rounds(messages: DeviceMessages, devices: int) -> int:
    """Return the number of messages of the device that sends or receives most."""
    ends = (messages.sender, messages.receiver)
    return int(max(np.bincount(each, minlength=devices).max(initial=0) for each in ends))


def color_edges(messages: DeviceMessages, devices: int) -> Integers:
    """Return the round of each message, `[messages]`; there are `min_rounds` rounds.

    Time grows with messages * rounds at worst.
    """
    pairs = list(zip(messages.sender.tolist(), messages.receiver.tolist(), strict=True))
    timetable = _EdgeColoring(pairs, devices, min_rounds(messages, devices))
    for number in sorted(range(len(pairs)), key=lambda n: ((pairs[n][1] - pairs[n][0]) % devices, pairs[n])):
        timetable.assign(number)
    return np.array(timetable.round, np.int64)


class _EdgeColoring:
    """The message of each round and the free rounds as bits, by end (0 sends, 1 receives) and device."""

    def __init__(self, pairs: list[tuple[int, int]], devices: int, rounds: int) -> None:
        self.pairs = pairs
        self.round = [-1] * len(pairs)
        self.message_at: tuple[list[dict[int, int]], ...] = ([{} for _ in range(devices)], [{} for _ in range(devices)])
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
            self.message_at[end][device][at] = number
            self.free[end][device] &= ~(1 << at)

    def _swap_rounds(self, receiver: int, one: int, other: int) -> None:
        """Swap two rounds along the path that leaves a receiver by its message of round `one`."""
        path, end, device, at = [], 1, receiver, one
        while at in self.message_at[end][device]:
            number = self.message_at[end][device][at]
            path.append(number)
            end, device, at = 1 - end, self.pairs[number][1 - end], one + other - at
        for number in path:
            for side, place in enumerate(self.pairs[number]):
                del self.message_at[side][place][self.round[number]]
                self.free[side][place] |= 1 << self.round[number]
        for number in path:
            self._set_round(number, one + other - self.round[number])


def _lowest_bit(rounds: int) -> int:
    """Return the number of the first round in a set of bits."""
    return (rounds & -rounds).bit_length() - 1
