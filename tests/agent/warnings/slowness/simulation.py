"""Simulated pipelines: their steps and counters, with noise and one slowdown, second by second.

What a gauge is given here has the form of what an agent reads; what is slowed is known.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from jupyter_mntrain.agent.gang.slowness_watch import SlownessWatch
from jupyter_mntrain.agent.warnings.slowness.counters import Counters, LinkCounters, RankCounters
from jupyter_mntrain.agent.warnings.slowness.observer import Gauge
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import Episode, RankStack
from jupyter_mntrain.model.records.metrics import RankStep

Reports = Literal["everything", "steps", "nothing"]
"""What ranks report: as the trainer, as a script with a Recorder, as one without."""

OF_RANKS = ("throttled", "starved", "stopped", "clock", "code", "disk")
OF_LINKS = ("narrow", "lossy", "other traffic", "far")
FAULTS = (*OF_RANKS, *OF_LINKS, "loader", "save")
KIND_OF = {"disk": "slow-disk", "loader": "slow-loader"} | dict.fromkeys(OF_LINKS, "link-slow")

START_S = 1_700_000_000.0
OTHER_KINDS = {"save": ("slow-rank", "slow-disk", "slow-loader"), "disk": ("slow-disk",)}


@dataclass
class Fault:
    """What is slowed, from when on, and how many times longer steps take.

    Args:
        rank: of the slowed rank, or the one whose link to the next one is.
    """

    what: str
    rank: int
    begin_s: float
    times: float
    end_s: float = math.inf

    def kinds(self, reports: Reports) -> tuple[str, ...]:
        """What may be said of it: only who reports its times can be told to wait for a batch."""
        if self.what == "loader" and reports != "everything":
            return ("slow-rank",)
        return OTHER_KINDS.get(self.what, (KIND_OF.get(self.what, "slow-rank"),))


@dataclass
class Totals:
    """Counters of one rank and of its link to the next one, that grow with every step."""

    run_s: float = 0.0
    ready_s: float = 0.0
    cpu_s: float = 0.0
    throttled_s: float = 0.0
    disk_s: float = 0.0
    stopped_s: float = 0.0
    sent: float = 0.0
    busy_s: float = 0.0
    segments: float = 0.0
    resent: float = 0.0
    others: float = 0.0

    def plus(self, more: Totals, share: float) -> Totals:
        return Totals(
            *(getattr(self, one) + share * getattr(more, one) for one in Totals.__annotations__)
        )


@dataclass
class Pipeline:
    """A training job: one rank per node or several, each computing, then sending to the next.

    Args:
        step_s: of a normal step.
        noise: standard deviation of the logarithm of every duration.
        send_share: share of a step in which it sends.
    """

    chance: random.Random
    nodes: int
    per_node: int
    step_s: float
    noise: float
    send_share: float
    reports: Reports
    fault: Fault | None = None
    later: tuple[Fault, ...] = ()
    """Faults that follow, each in the place of the one before."""
    save_every: int = 0
    save_steps: float = 1.0
    evaluate_every: int = 0
    gauges: dict[str, Gauge] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world = self.nodes * self.per_node
        self.names = [f"node{index + 1}" for index in range(self.nodes)]
        self.gauges = {name: Gauge("eth1") for name in self.names}
        share = (1 - self.send_share) * self.step_s
        self.own_s = [share * self.chance.uniform(0.5, 0.95) for _ in range(self.world)]
        self.totals = [Totals() for _ in range(self.world)]
        self.base_ready = self.chance.uniform(0.0, 0.05)
        self.bytes_per_step = self.chance.uniform(1e6, 1e8) * max(0.2, self.step_s)

    def node_of(self, rank: int) -> str:
        return self.names[rank // self.per_node]

    def run(self, until_s: float) -> Iterator[tuple[float, tuple[Episode, ...]]]:
        """The job's slowdowns at every second."""
        watch, known = SlownessWatch(), ()
        now_s, tick_s, step = 0.0, 1.0, 0
        while now_s < until_s:
            step += 1
            if self.later and now_s >= self.later[0].begin_s:
                self.fault, *rest = self.later
                self.later = tuple(rest)
            end_s, own, added = self._step(step, now_s)
            while tick_s <= end_s:
                share = (tick_s - now_s) / (end_s - now_s)
                known = self._tick(watch, known, tick_s, added, share, own, end_s - now_s)
                yield tick_s, known
                tick_s += 1.0
            self.totals = [old.plus(new, 1.0) for old, new in zip(self.totals, added, strict=True)]
            self._report(step, end_s, end_s - now_s, own)
            now_s = end_s

    def _vary(self, value: float, noise: float | None = None) -> float:
        sigma = self.noise if noise is None else noise
        return value * math.exp(self.chance.gauss(0.0, sigma) - sigma * sigma / 2)

    def _step(self, step: int, now_s: float) -> tuple[float, list[float], list[Totals]]:
        """End of a step, each rank's own seconds, and what its counters grow by."""
        fault = self.fault
        is_on = fault is not None and fault.begin_s <= now_s < fault.end_s
        own = [self._vary(one) for one in self.own_s]
        send_s = [self._vary(self.send_share * self.step_s) for _ in own]
        pause_s = 0.0
        if self.save_every and step % self.save_every == 0:
            pause_s += self._vary(self.save_steps * self.step_s, 0.3)
        if self.evaluate_every and step % self.evaluate_every == 0:
            pause_s += self._vary(20 * self.step_s, 0.2)
        if self.chance.random() < 0.01:  # garbage collection, a network hiccup
            pause_s += self.chance.uniform(0, 3) * self.step_s
        added = [
            Totals(
                run_s=one,
                cpu_s=one * 1.2,
                ready_s=one * self.base_ready * self.chance.uniform(0.3, 2),
                sent=self.bytes_per_step,
                busy_s=sent_s,
                segments=self.bytes_per_step / 1448,
                resent=self.bytes_per_step / 1448 * (0.001 if self.chance.random() < 0.1 else 0),
            )
            for one, sent_s in zip(own, send_s, strict=True)
        ]
        duration_s = max(own) + max(send_s) + pause_s
        extra_s = 0.0
        if is_on and fault is not None:
            extra_s = self._slow_down(fault, own, added, step)
        return now_s + duration_s + extra_s, own, added

    def _slow_down(self, fault: Fault, own: list[float], added: list[Totals], step: int) -> float:  # noqa: C901 - one line per fault
        """Lengthen what is slowed; returns by how much the step takes longer."""
        normal_s = max(own) + self.send_share * self.step_s
        extra_s = self._vary(normal_s * (fault.times - 1))
        mine = added[fault.rank]
        match fault.what:
            case "throttled":
                mine.throttled_s += extra_s * 0.9
                mine.ready_s += extra_s * 0.9
            case "starved":
                mine.ready_s += extra_s * 0.95
            case "stopped":
                mine.stopped_s += extra_s * self.chance.uniform(0.8, 1)
            case "disk" | "loader":
                mine.disk_s += extra_s * (0.9 if fault.what == "disk" else 0.0)
            case "clock" | "code":
                mine.run_s += extra_s
                mine.cpu_s += extra_s
            case "save":
                # As many seconds as all the steps between two saves, and more.
                every = max(self.save_every, 10)
                extra_s = extra_s * every if step % every == 0 else 0.0
            case "narrow" | "far":
                mine.busy_s += extra_s
            case "lossy":
                mine.busy_s += extra_s
                mine.resent += mine.segments * self.chance.uniform(0.05, 0.3)
            case "other traffic":
                mine.busy_s += extra_s
                mine.others += self.bytes_per_step / self.send_share
        if fault.what in OF_RANKS:
            own[fault.rank] += extra_s
        self.extra_s = extra_s
        return extra_s

    def _tick(
        self,
        watch: SlownessWatch,
        known: tuple[Episode, ...],
        now_s: float,
        added: list[Totals],
        share: float,
        own: list[float],
        step_s: float,
    ) -> tuple[Episode, ...]:
        time_s = START_S + now_s
        now = [old.plus(new, share) for old, new in zip(self.totals, added, strict=True)]
        pressures = {}
        for index, name in enumerate(self.names):
            ranks = range(index * self.per_node, (index + 1) * self.per_node)
            gauge = self.gauges[name]
            if gauge.is_odd:
                gauge.take_stacks([self._stack(rank, own, step_s) for rank in ranks], time_s)
            pressures[name] = gauge.look(self._counters(time_s, ranks, now))
        return watch.look(known, pressures, time_s)

    def _stack(self, rank: int, own: list[float], step_s: float) -> RankStack:
        fault = self.fault
        busy_s = own[rank]
        if fault and fault.rank == rank and fault.what in ("loader", "save"):
            busy_s += getattr(self, "extra_s", 0.0)
        is_busy = self.chance.random() < busy_s / step_s
        doing = "busy" if is_busy else "waiting for others"
        return RankStack(rank=Rank(rank), doing=doing, where="load (data.py:12)")

    def _counters(self, time_s: float, ranks: range, now: list[Totals]) -> Counters:
        links: dict[str, LinkCounters] = {}
        sent = 0.0
        is_far = self.fault is not None and self.fault.what == "far"
        for rank in ranks:
            peer = self.node_of((rank + 1) % self.world)
            if peer == self.node_of(rank):
                continue
            mine = now[rank]
            sent += mine.sent + mine.others
            is_on = self.fault is not None and time_s - START_S >= self.fault.begin_s
            links[peer] = LinkCounters(
                peer=peer,
                sent_bytes=int(mine.sent),
                received_bytes=int(mine.sent),
                busy_s=mine.busy_s,
                segments=int(mine.segments),
                resent=int(mine.resent),
                rtt_s=0.02 if is_far and is_on and self.fault.rank == rank else 0.0005,
            )
        clocks = self.fault is not None and self.fault.what == "clock"
        is_low = clocks and time_s - START_S > self.fault.begin_s and self.fault.rank in ranks
        return Counters(
            time_s=time_s,
            interface="eth1",
            ranks=tuple(
                RankCounters(
                    rank=Rank(rank),
                    run_s=now[rank].run_s,
                    ready_s=now[rank].ready_s,
                    cpu_s=now[rank].cpu_s,
                    throttled_s=now[rank].throttled_s,
                    disk_s=now[rank].disk_s,
                    stopped_s=now[rank].stopped_s,
                )
                for rank in ranks
            ),
            links=tuple(links.values()),
            sent_bytes=int(sent),
            received_bytes=int(sent),
            clock_hz=(1.2e9 if is_low else 3.4e9) * self.chance.uniform(0.95, 1.05),
            competitor="ffmpeg, pid 4711",
            competitor_cores=0.95,
        )

    def _report(self, step: int, end_s: float, step_s: float, own: list[float]) -> None:
        if self.reports == "nothing":
            return
        for rank in range(self.world):
            fields = {}
            if self.reports == "everything":
                rest_s = 0.0
                fault = self.fault
                is_mine = fault is not None and fault.rank == rank and fault.begin_s <= end_s
                if is_mine and fault.what in ("loader", "save", "disk"):
                    rest_s = getattr(self, "extra_s", 0.0)
                compute_s = own[rank] - (rest_s if fault and fault.what == "disk" else 0.0)
                wait_s = max(0.0, step_s - compute_s - rest_s)
                fields = {"compute_s": compute_s, "wait_s": wait_s}
            sample = RankStep(
                time_s=START_S + end_s, rank=Rank(rank), step=step, step_s=step_s, **fields
            )
            self.gauges[self.node_of(rank)].take(sample, sample.time_s)
