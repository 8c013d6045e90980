"""Link rows: how busy one node's link was, with this job's own bytes and with all traffic."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address

import msgspec

from jupyter_mntrain.metrics.downsampled.rank_series import RankSeries, together
from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.metrics.rows.columns import Table
from jupyter_mntrain.metrics.rows.rank_rows import WARM_UP, all_tell, exchanges, short, take_rows
from jupyter_mntrain.metrics.summary import Basis, Direction, LinkSummary
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import Placement
from jupyter_mntrain.model.records.metrics import LinkSample, RankStep
from jupyter_mntrain.model.records.node import Capacity, LinkMeasurement
from jupyter_mntrain.telemetry import formulas

LEAST_WINDOW_S = 3.0
"""Link counters are averaged over this time, or over two steps: a step sends in bursts."""
MOST_WINDOW_S = 120.0
"""Longest such average, for very long steps."""

NO_SAMPLE = "no sample yet"

COLUMNS = ("time_s", "sent", "received", "own_sent", "own_received")

DIRECTIONS: tuple[Direction, ...] = ("sent", "received")

Rates = dict[str, float | None]
"""By direction."""

NO_RATES: Rates = {"sent": None, "received": None}


class LinkRows:
    """The rows of one participant's network interface."""

    def __init__(self, placement: Placement, room: float = 1.0) -> None:
        self.placement = placement
        self._ranks = placement.ranks
        self.basis: Basis = (
            # Several nodes on one machine share the counters of its loopback interface.
            "ranks" if ip_address(placement.address).is_loopback else "interface"
        )
        self.given: Capacity | None = None
        self.links: tuple[LinkMeasurement, ...] = ()
        """Capacities measured while the node sent."""
        self._room = room
        self._begin(0)
        self._steps = 0
        self._most: dict[Direction, float] = dict.fromkeys(DIRECTIONS, 0.0)
        """The highest rates seen over :data:`LEAST_WINDOW_S` or longer."""
        self._gathered, self._gathered_s = dict.fromkeys(DIRECTIONS, 0.0), 0.0
        self._accounts: dict[tuple[Rank, Direction], tuple[Mapping[int, int], int]] = {}
        """What each rank exchanged last, and the part of it that other nodes got: neighboring steps
        that exchange the same share one account."""

    def _begin(self, writers: int) -> None:
        self._writers = writers
        """Of the node's ranks, those that have made a step. With another one all rows are made
        again: what a sample says is of the steps that ran then, and lines may come later.
        """
        self.table = Table(COLUMNS, extremes=("sent", "received"), room=self._room)
        self._samples = 0
        self._times: array[float] = array("d")
        self._totals: dict[str, array[float]] = {one: array("d") for one in DIRECTIONS}

    @property
    def capacity_bytes_per_s(self) -> float | None:
        """The highest known capacity of the interface in one direction."""
        known = [one.capacity for one in self.links] + ([self.given] if self.given else [])
        return max((one.bytes_per_s for one in known), default=None)

    def extend(self, history: JobHistory, seq: int) -> int:
        """Add new samples; return the number of the last row."""
        ranks = [
            series
            for rank in self._ranks
            if (series := history.ranks.get(Rank(rank))) is not None and series.count
        ]
        if self.basis == "interface" and len(ranks) != self._writers:
            self._begin(len(ranks))
        samples = history.links.get(self.placement.node, ())
        gone = getattr(samples, "gone", 0)
        new = samples[max(0, self._samples - gone) :]
        self._samples = gone + len(samples)
        for sample in new:
            self.given = sample.given or self.given
            self.links = self.links if sample.links is None else sample.links
        if self.basis == "ranks":
            return self._extend_by_steps(ranks, seq)
        for sample in new:
            seq += 1
            self.table.append(seq, self._row(sample, ranks))
        return seq

    def _extend_by_steps(self, ranks: Sequence[RankSeries], seq: int) -> int:
        if len(ranks) < self.placement.nproc:
            return seq
        rows = []
        for both in together(ranks, self._steps):
            self._steps = both.end
            blocks = zip(ranks, both.rows, strict=True)
            rows.append(self._row_of([series.mean(block) for series, block in blocks]))
        seq = take_rows(self.table, rows, max(one.blocks.size for one in ranks), seq)
        if self._steps < max(series.first for series in ranks):
            return seq  # a rank has not reported steps that others already have in blocks
        ready = min(series.count for series in ranks)
        for index in range(self._steps, ready):
            seq += 1
            self.table.append(seq, self._row_of([series.step(index) for series in ranks]))
        self._steps = max(self._steps, ready)
        return seq

    def _row_of(self, steps: Sequence[RankStep]) -> dict[str, float | None]:
        rates = self._payload(steps)
        self._gather(rates, max(step.step_s for step in steps))
        return {"time_s": max(step.time_s for step in steps)} | _named(rates, rates)

    def _row(self, sample: LinkSample, ranks: Sequence[RankSeries]) -> dict[str, float | None]:
        # The running step has reported nothing yet: assume that it is like the one before.
        steps = [series.step_before(sample.time_s) for series in ranks]
        self._count(sample)
        window = max([LEAST_WINDOW_S, *(2 * step.step_s for step in steps)])
        end = self._times[-1]
        counted, seconds = self._rates(end - min(window, MOST_WINDOW_S), end)
        self._see(counted, seconds)
        return {"time_s": sample.time_s} | _named(counted, _own(self._payload(steps), counted))

    def _gather(self, rates: Rates, seconds: float) -> None:
        """Average the rates of neighboring steps until they span enough time to be meaningful."""
        self._gathered_s += seconds
        for one in DIRECTIONS:
            self._gathered[one] += (rates[one] or 0.0) * seconds
        if self._gathered_s >= LEAST_WINDOW_S:
            means: Rates = {one: of / self._gathered_s for one, of in self._gathered.items()}
            self._see(means, self._gathered_s)
            self._gathered, self._gathered_s = dict.fromkeys(DIRECTIONS, 0.0), 0.0

    def _payload(self, steps: Sequence[RankStep]) -> Rates:
        """Return the payload per second that ranks exchange with other nodes, in one step of each.

        Unknown unless all ranks report it.
        """
        if not all_tell(steps) or any(step.step_s <= 0 for step in steps):
            return NO_RATES
        return {
            one: sum(self._across(step, one) / step.step_s for step in steps) for one in DIRECTIONS
        }

    def _across(self, step: RankStep, direction: Direction) -> int:
        by_peer = step.sent_bytes if direction == "sent" else step.received_bytes
        key = (step.rank, direction)
        known = self._accounts.get(key)
        if known is None or known[0] is not by_peer:
            across = sum(size for peer, size in by_peer.items() if peer not in self._ranks)
            known = self._accounts[key] = by_peer, across
        return known[1]

    def _mean_payload(self, ranks: Sequence[Sequence[RankStep]]) -> Rates:
        """Return the payload per second that ranks exchange with other nodes, over several steps.

        Unknown unless all ranks report it.
        """
        seconds, all_sent, all_received = 0.0, 0, 0
        for steps in ranks:
            # Most are like the one before, and share its accounts.
            sent_by: object = None
            received_by: object = None
            sent = received = 0
            for step in steps:
                if step.sent_bytes is not sent_by or step.received_bytes is not received_by:
                    if not exchanges(step):
                        return NO_RATES
                    sent_by, received_by = step.sent_bytes, step.received_bytes
                    sent, received = (self._across(step, one) for one in DIRECTIONS)
                all_sent += sent
                all_received += received
                seconds += step.step_s
        if seconds <= 0:
            return NO_RATES
        return {
            "sent": len(ranks) * all_sent / seconds,
            "received": len(ranks) * all_received / seconds,
        }

    def _count(self, sample: LinkSample) -> None:
        if not self._times:
            self._times.append(sample.time_s - sample.interval_s)
            for totals in self._totals.values():
                totals.append(0.0)
        self._times.append(sample.time_s)
        self._totals["sent"].append(self._totals["sent"][-1] + sample.sent_bytes)
        self._totals["received"].append(self._totals["received"][-1] + sample.received_bytes)
        old = bisect_left(self._times, sample.time_s - MOST_WINDOW_S) - 1
        if old > len(self._times) // 2:
            for column in (self._times, *self._totals.values()):
                del column[:old]

    def _rates(self, begin_s: float, end_s: float) -> tuple[Rates, float]:
        """Return the mean rates between two times, and over how many seconds.

        If no whole sample lies between them, those that overlap are used.
        """
        begin = bisect_left(self._times, begin_s)
        end = bisect_right(self._times, end_s) - 1
        if end <= begin:
            begin, end = max(0, begin - 1), min(end + 1, len(self._times) - 1)
        if end <= begin:
            return NO_RATES, 0.0
        seconds = self._times[end] - self._times[begin]
        rates: Rates = {
            direction: (totals[end] - totals[begin]) / seconds
            for direction, totals in self._totals.items()
        }
        return rates, seconds

    def _see(self, rates: Rates, seconds: float) -> None:
        # A shorter burst says nothing: buffers take it.
        for one in DIRECTIONS if seconds >= LEAST_WINDOW_S else ():
            self._most[one] = max(self._most[one], rates[one] or 0.0)

    def _capacity(
        self, direction: Direction, known: Capacity | None, rate: float
    ) -> Capacity | None:
        """Return the capacity in the unit of this link's rates, or a higher rate that was seen.

        Args:
            rate: the recent one.
        """
        if known is None:
            return None
        if self.basis == "ranks":
            known = msgspec.structs.replace(
                known, bytes_per_s=known.payload_bytes_per_s, payload_share=1.0
            )
        most = max(rate, self._most[direction])
        if most <= known.bytes_per_s:
            return known
        return msgspec.structs.replace(known, bytes_per_s=most, is_exceeded=True)

    def newest_span(self) -> tuple[float, float] | None:
        """Return the Unix times between which the newest samples were taken, of a job that reports
        no steps; ``None`` without two.
        """
        if len(self._times) < 2:
            return None
        return self._times[-1] - LEAST_WINDOW_S, self._times[-1]

    def summary(
        self,
        span: tuple[float, float] | None,
        ranks: Sequence[RankSeries],
        peers: tuple[str, ...],
        capacities: dict[Direction, Capacity | None],
    ) -> Iterator[LinkSummary]:
        """Yield the recent figures of both directions.

        Args:
            span: Unix times between which the recent steps of the node's ranks ran; of a job that
                makes none, of the newest samples.
            ranks: the node's.
            peers: nodes that they exchange activations with.
            capacities: of each direction.
        """
        payload = NO_RATES
        if span and len(ranks) == self.placement.nproc:
            payload = self._mean_payload([series.within(*span) for series in ranks])
        rates, own, over_s = payload, payload, span[1] - span[0] if span else 0.0
        if self.basis == "interface":
            rates, over_s = self._rates(*span) if span else (NO_RATES, 0.0)
            own = _own(payload, rates)
        for one in DIRECTIONS:
            rate, used = rates[one], None
            # A shorter burst says nothing: buffers take it.
            lasting = (rate or 0.0) if over_s >= LEAST_WINDOW_S else 0.0
            capacity = self._capacity(one, capacities[one], lasting)
            if rate is not None and capacity is not None:
                used = formulas.link_utilization(rate, capacity.bytes_per_s)
                used = None if used is None else min(1.0, used)
            yield LinkSummary(
                node=self.placement.node,
                interface=self.placement.interface,
                direction=one,
                basis=self.basis,
                bytes_per_s=short(rate),
                own_bytes_per_s=short(own[one]),
                utilization=short(used),
                capacity=capacity,
                peers=peers,
                missing=self._missing(rate, capacity),
            )

    def _missing(self, rate: float | None, capacity: Capacity | None) -> str | None:
        if rate is None:
            if not (self._steps or self._samples):
                return NO_SAMPLE
            if self.basis == "ranks" and self._steps:
                return (
                    f"nodes share {self.placement.interface}, and their ranks do not report what "
                    "they exchange: recorder.step(sent_bytes=…, received_bytes=…)"
                )
            return WARM_UP
        return None if capacity else "the capacity is not measured"


def _named(rates: Rates, own: Rates) -> dict[str, float | None]:
    return rates | {f"own_{direction}": rate for direction, rate in own.items()}


def _own(payload: Rates, counted: Rates) -> Rates:
    """Return the job's own rates: the counters' if they fit the payload, else the payload's."""

    def own(paid: float | None, all_: float | None) -> float | None:
        return (
            all_
            if paid is not None and all_ is not None and all_ <= paid * formulas.MOST_OVERHEAD
            else paid
        )

    return {direction: own(payload[direction], counted[direction]) for direction in DIRECTIONS}
