"""Slowness observer: measures the pressure on a running part, and looks closer when it is odd."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from jupyter_mntrain.agent.doubts.slowness.gauge import MOST_LOOKS, Gauge
from jupyter_mntrain.agent.doubts.slowness.loading import Loading
from jupyter_mntrain.agent.doubts.slowness.reader import CountersReader
from jupyter_mntrain.agent.failure.stacks import ANSWER_S, StackRequest
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import PartStatus
from jupyter_mntrain.model.records.metrics import RankProgress, RankStep
from jupyter_mntrain.model.records.pressure import Pressure

INTERVAL_S = tunables.seconds("slowness.interval_s")
LOOK_INTERVAL_S = tunables.seconds("slowness.look_interval_s")
LATER_LOOK_INTERVAL_S = tunables.seconds("slowness.later_look_interval_s")


class Observation(NamedTuple):
    """What was seen in a second.

    Args:
        loading: of ranks that do not report it themselves.
        exchanged_bytes: with other nodes, over all connections that there are.
    """

    pressure: Pressure
    loading: tuple[RankProgress, ...]
    exchanged_bytes: int = 0


class SlownessObserver:
    """Observes one attempt on one node.

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
        """Take a step of a rank of this node."""
        self._gauge.take(step, step.time_s)

    def reports(self, rank: Rank) -> None:
        """Note that a rank reports itself what it does before its first step."""
        self._loading.reports(rank)

    def look(self, part: PartStatus) -> Observation | None:
        """Look again; call several times a second. Returns something once a second."""
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
        """Sample where the ranks are, while they may be slow."""
        if self._asked:
            is_late = now_s - self._asked_s > ANSWER_S
            if is_late or all(one.is_answered for one in self._asked):
                self._gauge.take_stacks([one.result() for one in self._asked], self._asked_s)
                self._asked = []
            return
        interval_s = LOOK_INTERVAL_S if self._gauge.looks < MOST_LOOKS else LATER_LOOK_INTERVAL_S
        if self._gauge.is_odd and now_s - self._asked_s >= interval_s:
            self._asked, self._asked_s = list(self._ask()), now_s
