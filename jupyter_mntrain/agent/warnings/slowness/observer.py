"""Slowness: measures what slows a running part down, and detects when steps take longer."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from statistics import fmean, median
from typing import NamedTuple

from jupyter_mntrain.agent.failure.stacks import ANSWER_S, StackRequest
from jupyter_mntrain.agent.failure.stall import TIMES_A_STEP
from jupyter_mntrain.agent.warnings.slowness.counters import (
    Counters,
    CountersReader,
    LinkCounters,
    RankCounters,
)
from jupyter_mntrain.metrics.recent import STALL_S
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import PartStatus, RankStack
from jupyter_mntrain.model.records.metrics import RankProgress, RankStep
from jupyter_mntrain.model.records.pressure import LinkPressure, Measure, Pressure, RankPressure

LEAST_BYTES_PER_S = 2**20
"""A rank that reports nothing is loading while it reads at least this much per second from disks,
and until it has not for this long."""
OVER_AFTER_S = 5.0
WHAT = "loading"


class Loading:
    """Tracks the loading of one part's ranks, except those that report anything themselves."""

    def __init__(self) -> None:
        self._silent: dict[Rank, tuple[float, int, float]] = {}
        """Time and bytes of the last look, and when it last read much."""
        self._told: dict[Rank, int] = {}
        self._reports: set[Rank] = set()

    def reports(self, rank: Rank) -> None:
        """Note that a rank reports its own progress."""
        self._reports.add(rank)
        self._told.pop(rank, None)

    def see(self, counters: Counters) -> Iterator[RankProgress]:
        """Add a reading of the counters; yield the progress of ranks that report none."""
        for rank in counters.ranks:
            if rank.rank in self._reports:
                continue
            time_s, size, read_s = self._silent.get(
                rank.rank, (counters.time_s, rank.read_bytes, -OVER_AFTER_S)
            )
            passed_s = max(counters.time_s - time_s, 1e-3)
            if rank.read_bytes - size >= LEAST_BYTES_PER_S * passed_s:
                read_s = counters.time_s
            self._silent[rank.rank] = (counters.time_s, rank.read_bytes, read_s)
            if counters.time_s - read_s < OVER_AFTER_S:
                self._told[rank.rank] = rank.read_bytes
                yield _said(counters.time_s, rank.rank, rank.read_bytes)
            elif (done := self._told.pop(rank.rank, None)) is not None:
                yield _said(counters.time_s, rank.rank, done, total=float(done))


def _said(time_s: float, rank: Rank, done: int, total: float | None = None) -> RankProgress:
    return RankProgress(
        time_s=time_s, rank=rank, what=WHAT, done=float(done), total=total, unit="B"
    )


# History: values of one quantity over time, and what is normal for it. Pure.


RECENT_S = 6.0
"""Steps that ended within this time are recent, and the last three."""
HELD_S = 12.0
"""Steps become normal ones after this: until then a slowdown that has just begun is not one of
them."""
MOST_VALUES = 1800
"""Normal values kept: half an hour of one per second."""
HIGH = 0.98
NORMAL = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


class History:
    """Values that count as normal once they are old enough and nothing was slow.

    Args:
        fewest: so many newest values count as recent, however old they are.
    """

    def __init__(self, fewest: int = 1) -> None:
        self._fewest = fewest
        self._normal: deque[float] = deque(maxlen=MOST_VALUES)
        self._new: deque[tuple[float, float]] = deque(maxlen=MOST_VALUES)
        self._cache: tuple[int, float, float, float, float] | None = None
        self._changes = 0
        self.normal_s = 0.0
        """Time that the normal values span."""

    def add(self, time_s: float, value: float) -> None:
        self._new.append((time_s, value))

    def age(self, now_s: float, *, is_slow: bool) -> None:
        """Move old values to the normal ones, or drop them if they may be from a slow period."""
        while len(self._new) > self._fewest and self._new[0][0] < now_s - HELD_S:
            begin_s, value = self._new.popleft()
            if not is_slow:
                self._normal.append(value)
                self._changes += 1
                self.normal_s += min(HELD_S, self._new[0][0] - begin_s)

    @property
    def normal_count(self) -> int:
        return len(self._normal)

    @property
    def before(self) -> float:
        """Median of the normal values."""
        return self._statistics()[0]

    @property
    def mean_before(self) -> float:
        return self._statistics()[1]

    @property
    def high(self) -> float:
        """Level that few of the normal values exceed."""
        return self._statistics()[3]

    @property
    def spread(self) -> float:
        """Robust standard deviation of the normal values."""
        return self._statistics()[2]

    def timed(self, now_s: float, span_s: float = RECENT_S) -> list[tuple[float, float]]:
        """Return the recent values with their times."""
        new = list(self._new)
        values = [one for one in new if one[0] > now_s - span_s]
        few = new[-self._fewest :]
        return values if len(values) >= len(few) else few

    def recent(self, now_s: float, span_s: float = RECENT_S) -> list[float]:
        return [value for _, value in self.timed(now_s, span_s)]

    def measure(self, now_s: float, span_s: float = RECENT_S) -> Measure:
        """Return the mean of the recent values, and the median of the normal ones."""
        recent = self.recent(now_s, span_s)
        before = self.before
        return Measure(now=fmean(recent) if recent else before, before=before)

    def _statistics(self) -> tuple[float, float, float, float]:
        if self._cache is None or self._cache[0] != self._changes:
            values = self._normal
            middle = median(values) if values else 0.0
            spread = NORMAL * median(abs(one - middle) for one in values) if values else 0.0
            high = sorted(values)[int(HIGH * len(values))] if values else 0.0
            mean = fmean(values) if values else 0.0
            self._cache = (self._changes, middle, mean, spread, high)
        return self._cache[1:]


# Step pace: notices that the steps of a rank take longer than before. Pure.
#
# Two measures, because a job can be slow in two ways. Either the typical step takes longer: the
# median of the recent steps is compared with that of all normal ones. Or a few steps take so long,
# as when a disk hangs at every save, that the median does not show it: then the means are compared.


TIMES = tunables.ratio("slowness.times")
OVER_TIMES = 1.3
"""A slower job is no longer slower below this: less than TIMES, so that it does not flicker."""
NOISE = 3.0
"""It is above the median, too, by this many standard deviations of single steps: steps of some jobs
vary."""
SUSTAINED_S = tunables.seconds("slowness.sustained_s")
WARM_UP_STEPS = 3
"""First steps that never count: they allocate memory, compile kernels and connect."""
LEAST_STEPS = 15
"""Normal steps, and the time they took, that must be known before anything is called slow."""
LEAST_S = 4.0
RECENT_STEPS = 3
LONG_TIMES = 4.0
"""A step is a long one if it takes this many times the median, and this many times the longest
usual ones (the 98th percentile: those with a save), and at least this long. Two within the span
are looked at: a disk that hangs at every save does not change the median."""
LONG_TIMES_HIGH = 1.5
LONG_STEP_S = 0.8
LONG_STEPS_SPAN_S = 60.0
LONG_STEPS_APART = 8
"""Steps between two long ones, and time that was lost, at least: chance also makes two long
steps."""
LONG_STEPS_LOST_S = 3.0
LONG_STEPS_NORMAL = 60
"""Normal steps that must be known before long ones count: they include the usual saves."""


class StepPace:
    """Watches the durations of one rank's steps, or of what is counted in their place.

    Args:
        least_s: normal time that must be known.
        sustained_s: how long it must be slow.
    """

    def __init__(self, least_s: float = LEAST_S, sustained_s: float = SUSTAINED_S) -> None:
        self._least_s = least_s
        self._sustained_s = sustained_s
        self._skip = WARM_UP_STEPS
        self.history = History(RECENT_STEPS)
        self._steps: deque[tuple[float, float]] = deque(maxlen=MOST_VALUES)
        self._long: list[tuple[float, float]] = []
        self._suspect_s: float | None = None
        self._goes_on_s = 0.0
        """When the first of the slow steps had ended: a stall that is over is one long step."""
        self._is_slow = False
        self._is_by_mean = False

    @property
    def is_suspect(self) -> bool:
        """Whether the rank may be slow, so that its values do not count as normal."""
        return self._suspect_s is not None

    @property
    def is_odd(self) -> bool:
        """Whether the rank may be slow, or just had a long step, and is worth a closer look."""
        return self.is_suspect or bool(self._long)

    def suspect_for(self, now_s: float) -> float:
        """Return for how long the rank may have been slow; if it is not, the span in which long
        steps count.
        """
        return LONG_STEPS_SPAN_S if self._suspect_s is None else now_s - self._suspect_s

    @property
    def since_s(self) -> float | None:
        """When the rank became slower; ``None`` if it is not, or not for long enough."""
        return self._suspect_s if self._is_slow else None

    @property
    def is_by_mean(self) -> bool:
        """Whether it is slow because of a few long steps."""
        return self._is_by_mean

    def add(self, time_s: float, duration_s: float) -> bool:
        """Add a step that ended at ``time_s``. Returns ``False`` if it belongs to the warm-up."""
        if self._skip > 0:
            self._skip -= 1
            return False
        self.history.add(time_s, duration_s)
        if duration_s > max(STALL_S, TIMES_A_STEP * self.history.before):
            return True  # it was told as a stall
        self._steps.append((time_s, duration_s))
        usual_s = max(LONG_TIMES * self.history.before, LONG_TIMES_HIGH * self.history.high)
        if usual_s and duration_s > max(usual_s, LONG_STEP_S):
            self._long.append((time_s, duration_s))
        return True

    def look(self, now_s: float) -> None:
        """Decide whether the rank is slow. Call about once a second."""
        history = self.history
        history.age(now_s, is_slow=self.is_suspect)
        self._long = [one for one in self._long if one[0] > now_s - LONG_STEPS_SPAN_S]
        if history.normal_count < LEAST_STEPS or history.normal_s < self._least_s:
            return
        times = OVER_TIMES if self._is_slow else TIMES
        recent = history.recent(now_s)
        limit = max(times * history.before, history.before + NOISE * history.spread)
        is_by_median = len(recent) >= RECENT_STEPS and median(recent) > limit
        is_by_mean = not is_by_median and self._has_long_steps(times)
        if not (is_by_median or is_by_mean):
            self._suspect_s, self._is_slow, self._is_by_mean = None, False, False
            return
        self._is_by_mean = is_by_mean
        if self._suspect_s is None:
            self._suspect_s, self._goes_on_s = self._begin(now_s, limit)
        if now_s - self._goes_on_s >= self._sustained_s:
            self._is_slow = True

    def measure(self, now_s: float) -> Measure:
        """Return seconds per step, now and before."""
        history = self.history
        if self._is_by_mean:
            return Measure(now=fmean(self._since_long()), before=history.mean_before)
        recent = history.recent(now_s)
        return Measure(now=median(recent) if recent else history.before, before=history.before)

    def _has_long_steps(self, times: float) -> bool:
        """Return whether long steps recur, and cost more time than before."""
        if len(self._long) < 2 or self.history.normal_count < LONG_STEPS_NORMAL:
            return False
        steps, before = self._since_long(), self.history.mean_before
        lost_s = sum(steps) - before * len(steps)
        is_often = len(steps) >= LONG_STEPS_APART and lost_s > LONG_STEPS_LOST_S
        return is_often and fmean(steps) > times * before

    def _since_long(self) -> list[float]:
        """Return the steps since the first long one ended: whole cycles of short and long ones."""
        if not self._long:
            return [self.history.mean_before]
        first_s = self._long[0][0]
        return [duration for time_s, duration in self._steps if time_s > first_s]

    def _begin(self, now_s: float, limit_s: float) -> tuple[float, float]:
        """Return when the first of the slow steps began, and when it ended."""
        slow = [one for one in self.history.timed(now_s) if one[1] > limit_s]
        first = self._long[:1] if self._is_by_mean else slow[:1]
        return next(((time_s - taken_s, time_s) for time_s, taken_s in first), (now_s, now_s))


# Gauge: turns steps and counters of a part into its pressure, now and before. Pure.


COUNTED_LEAST_S = 30.0
"""Without a Recorder, bytes or CPU seconds are counted instead of steps. They say less: more
normal time must be known, and it must last longer."""
COUNTED_SUSTAINED_S = 10.0
COUNTED_BYTES_PER_S = 64 * 2**10
"""Traffic per second, or else cores, below which a rank does too little to be counted."""
COUNTED_CORES = 0.3
MOST_LOOKS = 24
"""The newest looks that count. Once there are so many, the interval gets longer."""
MOST_UNIT_S = 60.0
"""Longest of what is counted instead of steps: nothing at all moved."""

SHARES = ("starved", "throttled", "disk", "stopped", "faults", "own")


class RankGauge:
    """Measures one rank."""

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
        compute_s = step.compute_s + (step.optimizer_s or 0.0) + (step.coding_s or 0.0)
        self.own.add(now_s, compute_s * scale)
        if step.wait_s is not None:
            self.rest.add(now_s, max(0.0, step.step_s - compute_s - step.wait_s) * scale)

    def count(self, old: RankCounters, new: RankCounters, now_s: float, passed_s: float) -> None:
        """Add the difference of two readings."""
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
        """Without steps, use the traffic, or else the CPU time, as a measure of progress.

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
    """Measures the traffic to one node."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.sent, self.received = History(), History()
        self.rate, self.busy, self.resent, self.rtt = (History() for _ in range(4))

    def count(self, old: LinkCounters, new: LinkCounters, now_s: float, passed_s: float) -> None:
        """Add the difference of two readings."""
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
    """Measures one part of one attempt."""

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
        """Whether any rank may be slow, and is worth a closer look."""
        return any(one.pace.is_odd for one in self._ranks.values())

    @property
    def looks(self) -> int:
        """The highest number of stacks sampled from a rank in this slow period; it is bounded."""
        return max((len(one.stacks) for one in self._ranks.values()), default=0)

    def take(self, step: RankStep, now_s: float) -> None:
        """Add a step that a rank has reported, at this Unix time."""
        self._rank(step.rank).take(step, now_s)

    def take_stacks(self, stacks: list[RankStack], now_s: float) -> None:
        """Add the stacks of ranks, taken at this Unix time."""
        for one in stacks:
            if one.doing != "not known":
                self._rank(one.rank).stacks.append((now_s, one))

    def look(self, new: Counters) -> Pressure:
        """Add a reading of the counters, and return the pressure. Call about once a second."""
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


# Slowness observer: measures the pressure on a running part, and looks closer when it is odd.


INTERVAL_S = 1.0
"""Interval of reading counters of a running job: 2 ms per rank."""
LOOK_INTERVAL_S = 0.7
"""Interval of looking at ranks' stacks while they may be slow: each look stops a rank for a
millisecond."""
LATER_LOOK_INTERVAL_S = 7.0


class Observation(NamedTuple):
    """What was observed in one second.

    Args:
        loading: of ranks that do not report it themselves.
        exchanged_bytes: with other nodes, over all connections that there are.
    """

    pressure: Pressure
    loading: tuple[RankProgress, ...]
    exchanged_bytes: int = 0


class SlownessObserver:
    """Observes the speed of one attempt on one node.

    Args:
        ask: requests the stacks of every living rank.
        clock: Unix time, of the attempt.
    """

    def __init__(
        self,
        reader: CountersReader,
        ask: Callable[[], Iterable[StackRequest]],
        clock: Callable[[], float],
    ) -> None:
        self._reader = reader
        self._gauge = Gauge(reader.interface)
        self._loading = Loading()
        self._ask = ask
        self._clock = clock
        self._read_s = 0.0
        self._asked: list[StackRequest] = []
        self._asked_s = 0.0

    def take(self, step: RankStep) -> None:
        """Add a step of a rank of this node."""
        self._gauge.take(step, step.time_s)

    def reports(self, rank: Rank) -> None:
        """Note that a rank itself reports its progress before the first step."""
        self._loading.reports(rank)

    def look(self, part: PartStatus) -> Observation | None:
        """Read the counters; call several times a second. Returns a result once a second."""
        if part.state != "running":
            return None
        now_s = self._clock()
        pids = {Rank(one.rank): one.pid for one in part.ranks if one.pid and one.ended_s is None}
        self._reader.look(pids, now_s)
        self._look_at_stacks(now_s)
        if now_s - self._read_s < INTERVAL_S:
            return None
        self._read_s = now_s
        counters = self._reader.read(pids, now_s, is_odd=self._gauge.is_odd)
        exchanged = sum(one.sent_bytes + one.received_bytes for one in counters.links)
        loading = tuple(self._loading.see(counters))
        return Observation(self._gauge.look(counters), loading, exchanged)

    def _look_at_stacks(self, now_s: float) -> None:
        """Sample the ranks' stacks while they may be slow."""
        if self._asked:
            is_late = now_s - self._asked_s > ANSWER_S
            if is_late or all(one.is_answered for one in self._asked):
                self._gauge.take_stacks([one.result() for one in self._asked], self._asked_s)
                self._asked = []
            return
        interval_s = LOOK_INTERVAL_S if self._gauge.looks < MOST_LOOKS else LATER_LOOK_INTERVAL_S
        if self._gauge.is_odd and now_s - self._asked_s >= interval_s:
            self._asked, self._asked_s = list(self._ask()), now_s
