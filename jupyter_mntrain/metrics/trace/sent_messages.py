"""Sent messages: how long the messages of recorded steps took, as derived from traces. Pure.

A trace has no arrivals. It has when a message was sent, and when its receiver began to compute with
it, which is later if the receiver was busy or had no core.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from jupyter_mntrain.metrics.downsampled.samples import MOST_TRACES
from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.metrics.trace.messages import Traces, messages, working
from jupyter_mntrain.metrics.trace.recorded import aligned, recorded_steps
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import RankTrace

Pair = tuple[Rank, Rank]
"""Sender and receiver."""

LEAST_STEPS: Final = min(3, MOST_TRACES)
"""Recorded steps that tell of a link: a process that had no core for a while keeps every message of
a step."""

USUAL = 0.9
"""Quantile of a rank's delays that counts as usual."""


class SentMessages(NamedTuple):
    """The messages from one rank to another in recorded steps.

    Args:
        number: in a step.
        least_s: of all of them, of which none was faster.
        late_s: of that, what may be processes instead: late on both ends, or busy as it arrived.
        waits_s: of its receiver, in a step, for each message that it idled for.
    """

    number: int
    least_s: float
    late_s: float = 0.0
    waits_s: tuple[float, ...] = ()

    def took_s(self, planned_s: float) -> float:
        """Return the time of one message: of all possible values, the closest to the plan."""
        return min(self.least_s, max(self.least_s - self.late_s, planned_s))


class RecentMessages:
    """The messages of a job's newest recorded steps."""

    def __init__(self) -> None:
        self._told = 0
        self._found: dict[Pair, SentMessages] = {}

    def of(self, history: JobHistory) -> Mapping[Pair, SentMessages]:
        first = next(iter(history.ranks.values()), None)
        told = first.traces[-1].step if first is not None and first.traces else 0
        if told > self._told:
            steps = recorded_steps(history)
            if told in steps:
                self._told = told
            self._found = sent_in([*steps.values()])
        return self._found


def sent_in(steps: Sequence[Traces]) -> dict[Pair, SentMessages]:
    """Return the messages of recorded steps by direction, where a rank waited for any.

    Args:
        steps: oldest first; nothing is told of fewer than :data:`LEAST_STEPS`.
    """
    if len(steps) < LEAST_STEPS:
        return {}
    lasted: dict[Pair, list[tuple[float, float]]] = defaultdict(list)
    waits: dict[Pair, list[float]] = {}
    for traces in steps:
        waits = defaultdict(list)
        exchanged = [*messages(traces)]
        from_origin = aligned(traces, exchanged)
        for one in exchanged:
            pair = (one.sender, one.receiver)
            begin = one.sent.begin_s + from_origin[one.sender]
            took_s = max(0.0, one.used.begin_s + from_origin[one.receiver] - begin)
            lasted[pair].append((took_s, max(0.0, took_s - one.waited_s)))
            if one.is_awaited:
                waits[pair].append(one.waited_s)
    late = {rank: _late_s([one[rank] for one in steps if rank in one]) for rank in steps[-1]}
    found = {}
    for pair, told in waits.items():
        least_s, busy_s = min(lasted[pair])
        late_s = sum(late[rank] for rank in pair) + busy_s
        # Clocks may differ by as much as the way back seems longer for its busy receiver.
        late_s += min(lasted[pair[::-1]], default=(0.0, 0.0))[1]
        found[pair] = SentMessages(len(lasted[pair]) // len(steps), least_s, late_s, tuple(told))
    return found


def _late_s(traces: Sequence[RankTrace]) -> float:
    """Return how much longer a rank usually computes than at its fastest, as its lateness."""
    took: dict[tuple[str, int], list[float]] = defaultdict(list)
    for trace in traces:
        for one in working(trace):
            took[one.kind, one.stage].append(one.end_s - one.begin_s)
    late = sorted(one - min(alike) for alike in took.values() for one in alike)
    return late[int(USUAL * (len(late) - 1))] if late else 0.0
