"""Messages: matches sends with the computation that used them, in the traces of one step. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import RankTrace, TracedAction

IDLE_SHARE = 0.002
"""Share of a step; a shorter gap between two actions is Python's overhead, not a wait."""

Traces = Mapping[Rank, RankTrace]


class Message(NamedTuple):
    """A message that one rank sent and another one computed with.

    Args:
        sent: and when, on the sender's clock.
        used: what the receiver computed with it, on the receiver's.
        waited_s: that the receiver idled before ``used``; 0: it did not.
    """

    sender: Rank
    receiver: Rank
    sent: TracedAction
    used: TracedAction
    waited_s: float

    @property
    def is_awaited(self) -> bool:
        """Whether the receiver idled for the message, so that it arrived when ``used`` began."""
        return self.waited_s > 0


def least_idle_s(trace: RankTrace) -> float:
    """Return the shortest gap between two actions, in seconds, that counts as a wait."""
    return IDLE_SHARE * trace.step_s


def working(trace: RankTrace) -> list[TracedAction]:
    """Return what a rank computed, updates included, in order."""
    return [one for one in trace.actions if not one.kind.startswith("SEND")]


def messages(traces: Traces) -> Iterator[Message]:
    """Yield all messages whose two ends were both traced."""
    used = {rank: _used(trace) for rank, trace in traces.items()}
    for rank, trace in traces.items():
        for sent in trace.actions:
            if not sent.kind.startswith("SEND"):
                continue
            kind = sent.kind[-1]
            stage = sent.stage + (1 if kind == "F" else -1)
            peer = Rank(sent.peer)
            found = used.get(peer, {}).get((kind, stage, sent.microbatch))
            if found is not None:
                yield Message(rank, peer, sent, *found)


def _used(trace: RankTrace) -> dict[tuple[str, int, int], tuple[TracedAction, float]]:
    """Return a rank's actions by direction, stage and microbatch, with idle times before them."""
    least_s, actions = least_idle_s(trace), working(trace)
    begun = TracedAction("update", 0.0, 0.0)
    found = {}
    for before, one in pairwise([begun, *actions]):
        if one.kind in {"F", "B", "I"}:
            key = ("F" if one.kind == "F" else "B", one.stage, one.microbatch)
            idle_s = one.begin_s - before.end_s
            found[key] = (one, idle_s if idle_s > least_s else 0.0)
    return found
