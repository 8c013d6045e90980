"""Link rows: traffic of one node's link about once a second, this job's own and the total."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from typing import Literal

from jupyter_mntrain.metrics.columns import Table
from jupyter_mntrain.metrics.history import JobHistory, RankSeries
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import Placement
from jupyter_mntrain.model.records.metrics import LinkSample, RankStep
from jupyter_mntrain.model.records.node import Capacity

LEAST_WINDOW_S = 3.0
"""Counters are averaged over this, or two steps: a step sends in bursts."""

MOST_WINDOW_S = 120.0
"""Of counters that are kept for averaging."""

OVERHEAD = 1.1
"""Counters hold headers and acknowledgments, payload does not: up to this much more than the
payload is the job's own (TCP over Ethernet: 1.04 to 1.06, small messages a little more)."""

COLUMNS = ("time_s", "sent", "received", "own_sent", "own_received")


class LinkRows:
    """The rows of one participant's interface."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.basis: Literal["interface", "ranks"] = (
            # Several nodes on one machine share the counters of its loopback interface.
            "ranks" if ip_address(placement.address).is_loopback else "interface"
        )
        self.capacity: Capacity | None = None
        """Measured or given; what a card claims is none."""
        self.table = Table(COLUMNS)
        self._samples = 0
        self._times: array[float] = array("d")
        self._sent: array[float] = array("d")
        self._received: array[float] = array("d")

    def extend(self, history: JobHistory, seq: int) -> int:
        """Take the samples not yet taken; returns the number of the last row."""
        samples = history.links.get(self.placement.node, ())
        new = samples[self._samples :]
        self._samples = len(samples)
        self.capacity = _capacity(history, new[-1] if new else None) or self.capacity
        ranks = [
            series
            for rank in self.placement.ranks
            if (series := history.ranks.get(Rank(rank))) is not None and series.steps
        ]
        for sample in new:
            seq += 1
            self.table.append(seq, self._row(sample, ranks))
        return seq

    def _row(self, sample: LinkSample, ranks: Sequence[RankSeries]) -> dict[str, float | None]:
        own_sent, own_received = self._payload(sample.time_s, ranks)
        row: dict[str, float | None] = {"time_s": sample.time_s}
        if self.basis == "ranks":
            return row | {
                "sent": own_sent,
                "received": own_received,
                "own_sent": own_sent,
                "own_received": own_received,
            }
        self._count(sample)
        window = max([LEAST_WINDOW_S, *(2 * step.step_s for step in _steps_at(sample, ranks))])
        sent, received = self._rates(min(window, MOST_WINDOW_S))
        return row | {
            "sent": sent,
            "received": received,
            "own_sent": _own(own_sent, sent),
            "own_received": _own(own_received, received),
        }

    def _payload(self, time_s: float, ranks: Sequence[RankSeries]) -> tuple[float | None, ...]:
        """Bytes per second, sent and received, in the step that runs at ``time_s``.

        A step that has not ended yet is taken to be like the one before it.
        """
        if not ranks:
            return None, None
        sent = received = 0.0
        for series in ranks:
            step = _step_at(series, time_s)
            if step.step_s > 0:
                sent += self._across(step.sent_bytes) / step.step_s
                received += self._across(step.received_bytes) / step.step_s
        return sent, received

    def _across(self, by_peer: dict[int, int]) -> int:
        return sum(size for peer, size in by_peer.items() if peer not in self.placement.ranks)

    def _count(self, sample: LinkSample) -> None:
        if not self._times:
            self._times.append(sample.time_s - sample.interval_s)
            self._sent.append(0.0)
            self._received.append(0.0)
        self._times.append(sample.time_s)
        self._sent.append(self._sent[-1] + sample.sent_bytes)
        self._received.append(self._received[-1] + sample.received_bytes)
        old = bisect_left(self._times, sample.time_s - MOST_WINDOW_S) - 1
        if old > len(self._times) // 2:
            for column in (self._times, self._sent, self._received):
                del column[:old]

    def _rates(self, window_s: float) -> tuple[float | None, ...]:
        end = self._times[-1]
        begin = max(0, bisect_right(self._times, end - window_s) - 1)
        seconds = end - self._times[begin]
        if seconds <= 0:
            return None, None
        return tuple(
            (totals[-1] - totals[begin]) / seconds for totals in (self._sent, self._received)
        )


def _own(payload: float | None, counted: float | None) -> float | None:
    if payload is None or counted is None:
        return payload
    return counted if counted <= payload * OVERHEAD else payload


def _steps_at(sample: LinkSample, ranks: Sequence[RankSeries]) -> Iterator[RankStep]:
    return (_step_at(series, sample.time_s) for series in ranks)


def _step_at(series: RankSeries, time_s: float) -> RankStep:
    """The step that ran at a time, or the last one before it that has ended."""
    steps = series.steps
    index = bisect_left(steps, time_s, key=lambda step: step.time_s)
    return steps[min(index, len(steps) - 1)]


def _capacity(history: JobHistory, sample: LinkSample | None) -> Capacity | None:
    given = history.view.spec.link_capacity_bytes_per_s
    if given is not None:
        return Capacity(bytes_per_s=given, source="given")
    capacity = sample.capacity if sample else None
    return capacity if capacity is not None and capacity.source != "nominal" else None
