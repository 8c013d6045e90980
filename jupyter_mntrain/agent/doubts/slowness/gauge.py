"""Gauge: turns steps and counters of a part into its pressure, now and before. Pure."""

from __future__ import annotations

from collections import Counter, deque
from statistics import fmean

from jupyter_mntrain.agent.doubts.slowness.counters import Counters, LinkCounters, RankCounters
from jupyter_mntrain.agent.doubts.slowness.history import HELD_S, RECENT_S, History
from jupyter_mntrain.agent.doubts.slowness.pace import StepPace
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import RankStep
from jupyter_mntrain.model.records.pressure import (
    LinkPressure,
    Measure,
    Pressure,
    RankPressure,
)
from jupyter_mntrain.model.records.stall import RankStack

COUNTED_LEAST_S = tunables.seconds("slowness.counted_least_s")
COUNTED_SUSTAINED_S = tunables.seconds("slowness.counted_sustained_s")
COUNTED_BYTES_PER_S = tunables.size("slowness.counted_bytes")
COUNTED_CORES = tunables.ratio("slowness.counted_cores")
MOST_LOOKS = tunables.count("slowness.most_looks")
MOST_UNIT_S = 60.0
"""Longest of what is counted instead of steps: nothing at all moved."""

SHARES = ("starved", "throttled", "disk", "stopped", "faults", "own")


class RankGauge:
    """One rank."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self.steps = StepPace()
        self.counted = StepPace(COUNTED_LEAST_S, COUNTED_SUSTAINED_S)
        self.own, self.rest = History(3), History(3)
        self.shares = {name: History() for name in SHARES}
        self.cores = History()
        self.tokens: int | None = None
        self.has_steps = False
        self.stacks: deque[tuple[float, RankStack]] = deque(maxlen=MOST_LOOKS)

    @property
    def pace(self) -> StepPace:
        return self.steps if self.has_steps else self.counted

    def take(self, step: RankStep, now_s: float) -> None:
        self.has_steps = True
        scale = 1.0
        if step.tokens:  # steps of more tokens take longer
            self.tokens = self.tokens or step.tokens
            scale = self.tokens / step.tokens
        if not self.steps.add(now_s, step.step_s * scale) or step.compute_s is None:
            return
        compute_s = step.compute_s + (step.optimizer_s or 0.0)
        self.own.add(now_s, compute_s * scale)
        if step.wait_s is not None:
            self.rest.add(now_s, max(0.0, step.step_s - compute_s - step.wait_s) * scale)

    def count(self, old: RankCounters, new: RankCounters, now_s: float, passed_s: float) -> None:
        """Take the difference of two readings."""
        own_s = new.run_s - old.run_s + new.ready_s - old.ready_s
        own_s += new.disk_s - old.disk_s + new.stopped_s - old.stopped_s
        differences = {
            "starved": new.ready_s - old.ready_s,
            "throttled": new.throttled_s - old.throttled_s,
            "disk": new.disk_s - old.disk_s,
            "stopped": new.stopped_s - old.stopped_s,
            "faults": float(new.faults - old.faults),
            "own": min(own_s, passed_s),
        }
        for name, difference in differences.items():
            self.shares[name].add(now_s, max(0.0, difference) / passed_s)
        self.cores.add(now_s, max(0.0, new.cpu_s - old.cpu_s) / passed_s)

    def count_instead(self, traffic: History, now_s: float) -> None:
        """Without steps: take what is sent, or else the CPU time used, as a measure of progress.

        The unit is what was usual in a second, of the last few seconds: steps come in bursts.
        """
        is_network = traffic.before >= COUNTED_BYTES_PER_S
        known = traffic if is_network else self.cores
        if self.has_steps or known.before < (COUNTED_BYTES_PER_S if is_network else COUNTED_CORES):
            return
        value = fmean(known.recent(now_s))
        self.counted.add(now_s, known.before / max(value, known.before / MOST_UNIT_S))

    def age(self, now_s: float) -> None:
        self.pace.look(now_s)
        is_slow = self.pace.is_suspect
        for one in (self.own, self.rest, self.cores, *self.shares.values()):
            one.age(now_s, is_slow=is_slow)
        begin_s = now_s - (0.0 if not self.pace.is_odd else self.pace.suspect_for(now_s))
        while self.stacks and self.stacks[0][0] < begin_s:
            self.stacks.popleft()

    def pressure(self, now_s: float) -> RankPressure:
        pace = self.pace
        unit_s = pace.measure(now_s) if pace.history.normal_count else None
        span_s = HELD_S if pace.is_by_mean else RECENT_S
        shares = {name: one.measure(now_s, span_s) for name, one in self.shares.items()}
        own_share = shares.pop("own")
        is_reported = self.own.normal_count > 0
        own_s = None
        if is_reported:
            own_s = self.own.measure(now_s, span_s)
        elif unit_s is not None and not pace.is_by_mean:
            own_s = Measure(now=own_share.now * unit_s.now, before=own_share.before * unit_s.before)
        busy = [one for _, one in self.stacks if one.doing != "waiting for others"]
        where = Counter(one.where for one in busy if one.where).most_common(1)
        return RankPressure(
            rank=self.rank,
            unit_s=unit_s,
            since_s=pace.since_s,
            is_counted=not self.has_steps,
            own_s=own_s,
            is_reported=is_reported,
            rest_s=self.rest.measure(now_s, span_s) if self.rest.normal_count else None,
            looks=len(self.stacks),
            busy=len(busy) / len(self.stacks) if self.stacks else 0.0,
            where=where[0][0] if where else "",
            **shares,
        )


class LinkGauge:
    """What is sent to one node."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.sent, self.received = History(), History()
        self.rate, self.busy, self.resent, self.rtt = (History() for _ in range(4))

    def count(self, old: LinkCounters, new: LinkCounters, now_s: float, passed_s: float) -> None:
        """Take the difference of two readings."""
        sent = max(0, new.sent_bytes - old.sent_bytes)
        busy_s = max(0.0, new.busy_s - old.busy_s)
        self.sent.add(now_s, sent / passed_s)
        self.received.add(now_s, max(0, new.received_bytes - old.received_bytes) / passed_s)
        self.busy.add(now_s, min(1.0, busy_s / passed_s))
        if sent and busy_s:
            self.rate.add(now_s, sent / busy_s)
        segments = new.segments - old.segments
        if segments > 0:
            self.resent.add(now_s, min(1.0, max(0, new.resent - old.resent) / segments))
        if new.rtt_s:
            self.rtt.add(now_s, new.rtt_s)

    def age(self, now_s: float, *, is_slow: bool) -> None:
        for one in (self.sent, self.received, self.rate, self.busy, self.resent, self.rtt):
            one.age(now_s, is_slow=is_slow)

    def pressure(self, now_s: float) -> LinkPressure:
        return LinkPressure(
            peer=self.peer,
            rate=self.rate.measure(now_s),
            busy=self.busy.measure(now_s),
            resent=self.resent.measure(now_s),
            rtt_s=self.rtt.measure(now_s),
        )


class Gauge:
    """One part of one attempt."""

    def __init__(self, interface: str) -> None:
        self._interface = interface
        self._ranks: dict[Rank, RankGauge] = {}
        self._links: dict[str, LinkGauge] = {}
        self._own, self._others = History(), History()
        self._own_traffic: tuple[float, float] | None = None
        self._clock, self._io, self._cpu = History(), History(), History()
        self._others_cores = History()
        self._last: Counters | None = None

    @property
    def is_odd(self) -> bool:
        """Whether a rank may be slow, so that it is worth looking closer."""
        return any(one.pace.is_odd for one in self._ranks.values())

    @property
    def looks(self) -> int:
        """The most stacks of one rank that were looked at in this slow time; they are bounded."""
        return max((len(one.stacks) for one in self._ranks.values()), default=0)

    def take(self, step: RankStep, now_s: float) -> None:
        """Take a step that a rank has reported, at this Unix time."""
        self._rank(step.rank).take(step, now_s)

    def take_stacks(self, stacks: list[RankStack], now_s: float) -> None:
        """Take where ranks were at this Unix time."""
        for one in stacks:
            if one.doing != "not known":
                self._rank(one.rank).stacks.append((now_s, one))

    def look(self, new: Counters) -> Pressure:
        """Take the counters of this moment. Call it about once a second."""
        old, self._last = self._last, new
        now_s = new.time_s
        if old is not None and now_s > old.time_s:
            self._count(old, new, now_s - old.time_s)
        for rank in self._ranks.values():
            rank.age(now_s)
        is_slow = any(one.pace.is_suspect for one in self._ranks.values())
        for link in self._links.values():
            link.age(now_s, is_slow=is_slow)
        machine = (self._clock, self._io, self._cpu, self._others_cores)
        for one in (self._own, self._others, *machine):
            one.age(now_s, is_slow=is_slow)
        return Pressure(
            interface=self._interface,
            ranks=tuple(one.pressure(now_s) for _, one in sorted(self._ranks.items())),
            links=tuple(one.pressure(now_s) for one in self._links.values()),
            other_traffic=self._others.measure(now_s),
            own_traffic=self._own_traffic,
            clock_hz=self._clock.measure(now_s),
            io=self._io.measure(now_s),
            cpu=self._cpu.measure(now_s),
            others_cores=self._others_cores.measure(now_s),
            competitor=new.competitor,
            competitor_cores=new.competitor_cores,
            slowed_gpus=new.slowed_gpus,
        )

    def _count(self, old: Counters, new: Counters, passed_s: float) -> None:
        now_s = new.time_s
        before = {one.peer: one for one in old.links}
        sent = received = 0
        for link in new.links:
            known = before.get(link.peer)
            if known is None:
                continue
            gauge = self._links.setdefault(link.peer, LinkGauge(link.peer))
            gauge.count(known, link, now_s, passed_s)
            sent += max(0, link.sent_bytes - known.sent_bytes)
            received += max(0, link.received_bytes - known.received_bytes)
        self._own.add(now_s, max(sent, received) / passed_s)
        self._own_traffic = (sent / passed_s, received / passed_s) if new.links else None
        others = max(
            new.sent_bytes - old.sent_bytes - sent,
            new.received_bytes - old.received_bytes - received,
            0,
        )
        if new.links:
            self._others.add(now_s, others / passed_s)
        self._io.add(now_s, min(1.0, max(0.0, new.io_s - old.io_s) / passed_s))
        self._cpu.add(now_s, min(1.0, max(0.0, new.cpu_s - old.cpu_s) / passed_s))
        if new.clock_hz:
            self._clock.add(now_s, new.clock_hz)
        known_ranks = {one.rank: one for one in old.ranks}
        others_s = new.machine_cpu_s - old.machine_cpu_s
        for rank in new.ranks:
            if (earlier := known_ranks.get(rank.rank)) is not None:
                one = self._rank(rank.rank)
                one.count(earlier, rank, now_s, passed_s)
                one.count_instead(self._own, now_s)
                others_s -= rank.cpu_s - earlier.cpu_s
        self._others_cores.add(now_s, max(0.0, others_s) / passed_s)

    def _rank(self, rank: Rank) -> RankGauge:
        return self._ranks.setdefault(rank, RankGauge(rank))
