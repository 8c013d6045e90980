"""Stall watchdog: detects that an attempt makes no progress, and asks its ranks for stacks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from jupyter_mntrain.agent.failure.stacks import ANSWER_S, StackRequest
from jupyter_mntrain.metrics.recent import STALL_S
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.sites import Site
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.clock import Clock
from jupyter_mntrain.model.lifecycle.events import PartEvent, Resumed, Stalled
from jupyter_mntrain.model.records.job import Doing, RankStack, Stall

# Exchange pace: progress of ranks that report none, by what they exchange with other nodes.
#
# Every step of distributed training exchanges something. So a pause that is much longer than all
# pauses before is a stall, whatever script it is.


LEAST_S = tunables.seconds("watchdog.exchange_least_s")
TIMES_A_PAUSE = 3.0
"""A script that reports nothing is stalled if its ranks exchange nothing with other nodes for this
many times their longest pause, and at least LEAST_S: an evaluation is such a pause."""
LEAST_BYTES = 4 * 2**10
"""Fewer bytes in a second are no exchange: connections are kept alive."""
KNOWN_PAUSES = 20
"""Pauses that must be known, and pauses remembered: ten minutes of one per second."""
REMEMBERED = 600


class ExchangePace:
    """Tracks how often the ranks of one attempt on one node exchange data."""

    def __init__(self) -> None:
        self._bytes: int | None = None
        self._last_s: float | None = None
        self._pauses_s: deque[float] = deque(maxlen=REMEMBERED)

    @property
    def limit_s(self) -> float | None:
        """Longest pause that is not yet a stall; ``None`` while the pace is unknown."""
        if len(self._pauses_s) < KNOWN_PAUSES:
            return None
        return max(LEAST_S, TIMES_A_PAUSE * max(self._pauses_s))

    def take(self, exchanged_bytes: int, now_s: float) -> bool:
        """Take a reading; return whether ranks have exchanged data since the last one.

        Args:
            exchanged_bytes: over all connections that they have now.
            now_s: monotonic seconds.
        """
        before, self._bytes = self._bytes, exchanged_bytes
        if before is None or exchanged_bytes - before < LEAST_BYTES:
            return False
        if self._last_s is not None:
            self._pauses_s.append(now_s - self._last_s)
        self._last_s = now_s
        return True


TIMES_A_STEP = tunables.ratio("watchdog.steps")

CONFIRMED_AFTER_S = 5.0
"""Such a script is reported only if its ranks are still in the same place after this time."""

FIRST_STEP_S = tunables.seconds("watchdog.first_step_s")

EARLY_S = tunables.seconds("watchdog.early_look_s")

IDLE: frozenset[Doing] = frozenset({"waiting for others", "stopped", "in the kernel"})

STARTING: frozenset[Site | None] = frozenset({"build", "rendezvous", "new group"})
"""Places of a start: a rank that is there twice has not gone on."""

ASK_AGAIN_S = 20.0
"""Interval of reading stacks during a stall: the cause may become visible later."""

REMEMBERED_STEPS = 101
"""Number of steps that the median is taken over."""


class Watchdog:
    """Detects stalls of one attempt on one node.

    Progress is what ranks report. Of those that report nothing it is what they exchange with other
    nodes; then ranks are looked at twice, for progress of another kind is not seen.

    Args:
        ask: requests the stacks of every living rank.
        clock: Unix time, for people.
    """

    def __init__(self, ask: Callable[[], Iterable[StackRequest]], clock: Clock = time.time) -> None:
        self._ask = ask
        self._clock = clock
        self._durations: deque[float] = deque(maxlen=REMEMBERED_STEPS)
        self._steps: dict[Rank, int] = {}
        self._last_s: float | None = None
        self._last_time_s = 0.0
        self._asked: list[StackRequest] = []
        self._answers_until_s: float | None = None
        self._ask_at_s = 0.0
        self._is_stalled = False
        self._pace = ExchangePace()
        self._has_reports = False
        self._places: tuple[object, ...] = ()

    @property
    def progress_s(self) -> float | None:
        """Unix time of the last progress; ``None`` before the first."""
        return None if self._last_s is None else self._last_time_s

    @property
    def limit_s(self) -> float:
        if not self._durations:
            return self._exchange_limit_s or FIRST_STEP_S
        return max(STALL_S, TIMES_A_STEP * median(self._durations))

    @property
    def _exchange_limit_s(self) -> float | None:
        return None if self._has_reports else self._pace.limit_s

    def stepped(self, rank: Rank, step: int, step_s: float, now_s: float) -> None:
        """Note that a rank has finished a step."""
        self._durations.append(step_s)
        self._steps[rank] = step
        self.got_on(now_s)

    def got_on(self, now_s: float) -> None:
        """Note that a rank reports progress: it is loading, or finishing steps."""
        self._has_reports = True
        self._last_s, self._last_time_s = now_s, self._clock()

    def began(self, now_s: float) -> None:
        """Note that a rank's process exists."""
        if not self._has_reports:
            self._last_s, self._last_time_s = now_s, self._clock()

    def exchanged(self, sent_and_received: int, now_s: float) -> None:
        """Note the total number of bytes that ranks have exchanged with other nodes."""
        if self._pace.take(sent_and_received, now_s) and not self._has_reports:
            self._last_s, self._last_time_s = now_s, self._clock()

    def look(self, now_s: float) -> PartEvent | None:
        """Check whether a stall begins or ends; call often. Returns an event on a change."""
        if self._last_s is None:
            return None
        idle_s = now_s - self._last_s
        limit_s = self.limit_s
        is_paced = bool(self._durations or self._exchange_limit_s)
        is_early = not is_paced and idle_s < limit_s
        if idle_s < (EARLY_S if is_early else limit_s):
            self._asked, self._answers_until_s, self._ask_at_s = [], None, 0.0
            self._places = ()
            if self._is_stalled:
                self._is_stalled = False
                return Resumed()
            return None
        if self._answers_until_s is None:
            if now_s >= self._ask_at_s:
                self._asked = list(self._ask())
                self._answers_until_s = now_s + ANSWER_S
            return None
        if now_s < self._answers_until_s and not all(one.is_answered for one in self._asked):
            return None
        self._answers_until_s, self._ask_at_s = None, now_s + ASK_AGAIN_S
        stacks = tuple(one.result() for one in self._asked)
        # Of no stacks, too: ranks that have ended do not load anything.
        if is_early and not all(stack.doing in IDLE for stack in stacks):
            return None
        if not self._has_reports and not self._is_confirmed(stacks):
            self._ask_at_s = now_s + CONFIRMED_AFTER_S
            return None
        self._is_stalled = True
        return Stalled(
            stall=Stall(
                since_s=self._last_time_s,
                limit_s=EARLY_S if is_early else limit_s,
                step=max(self._steps.values(), default=None),
                stacks=stacks,
                is_reported=self._has_reports,
                seen_s=self._clock(),
            )
        )

    def _is_confirmed(self, stacks: Sequence[RankStack]) -> bool:
        """Return whether ranks that report nothing are in the same place as at the last look."""
        before, self._places = self._places, tuple(map(_place, stacks))
        return self._places == before and all(
            stack.calls or stack.site in STARTING or stack.doing != "waiting for others"
            for stack in stacks
        )


def _place(stack: RankStack) -> tuple[object, ...]:
    """Return where a rank is: its line, and the sequence numbers of its last calls."""
    numbers = tuple((one.group, one.calls[-1].seq if one.calls else 0) for one in stack.calls)
    return stack.rank, stack.doing, stack.where, stack.site, numbers
