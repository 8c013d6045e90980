"""Clocks: corrects the ranks' clocks so that no message arrives before it was sent. Pure.

All ranks of an attempt go by the clock of the machine that started it, except for the delay of the
start request. Where messages show that this is wrong, the difference of two ranks is taken from
both directions between them, as NTP does (RFC 5905): half of what one direction is faster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import inf

from jupyter_mntrain.metrics.trace.messages import Message, Traces
from jupyter_mntrain.model.ids import Rank


def corrections(traces: Traces, exchanged: Sequence[Message]) -> dict[Rank, float]:
    """Return the seconds to add to each rank's clock; 0 for the first of each connected group."""
    least: dict[tuple[Rank, Rank], float] = defaultdict(lambda: inf)
    neighbors: dict[Rank, set[Rank]] = defaultdict(set)
    for one in exchanged:
        sent_s = traces[one.sender].begin_s + one.sent.begin_s
        used_s = traces[one.receiver].begin_s + one.used.begin_s
        pair = (one.sender, one.receiver)
        least[pair] = min(least[pair], used_s - sent_s)
        neighbors[one.sender].add(one.receiver)
        neighbors[one.receiver].add(one.sender)
    found: dict[Rank, float] = {}
    for first in sorted(traces):
        if first in found:
            continue
        found[first], todo = 0.0, [first]
        while todo:
            here = todo.pop(0)
            for there in sorted(neighbors[here] - found.keys()):
                found[there] = found[here] + _between(least[here, there], least[there, here])
                todo.append(there)
    return found


def _between(there_s: float, back_s: float) -> float:
    """Return the correction between two clocks, from the fastest message in each direction."""
    if there_s >= 0 and back_s >= 0:
        return 0.0
    if inf in {there_s, back_s}:
        return -there_s if there_s < 0 else back_s
    return (back_s - there_s) / 2
