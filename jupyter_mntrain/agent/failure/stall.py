"""Stall watchdog: detects that an attempt makes no progress, and asks its ranks for stacks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from statistics import median

from jupyter_mntrain.agent.failure.stacks import ANSWER_S, StackRequest
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.clock import Clock
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.events import PartEvent, Resumed, Stalled
from jupyter_mntrain.model.records.stall import Doing, Stall

LEAST_S = tunables.seconds("watchdog.least_s")
TIMES_A_STEP = tunables.ratio("watchdog.steps")

FIRST_STEP_S = tunables.seconds("watchdog.first_step_s")

EARLY_S = tunables.seconds("watchdog.early_look_s")

IDLE: frozenset[Doing] = frozenset({"waiting for others", "stopped", "in the kernel"})

ASK_AGAIN_S = tunables.seconds("watchdog.stacks_interval_s")

REMEMBERED_STEPS = tunables.count("watchdog.steps_remembered")


class Watchdog:
    """Watches one attempt on one node.

    Only ranks that report are watched: without a Recorder, progress is unknown.

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

    @property
    def limit_s(self) -> float:
        if not self._durations:
            return FIRST_STEP_S
        return max(LEAST_S, TIMES_A_STEP * median(self._durations))

    def stepped(self, rank: Rank, step: int, step_s: float, now_s: float) -> None:
        """Note that a rank has finished a step."""
        self._durations.append(step_s)
        self._steps[rank] = step
        self.got_on(now_s)

    def got_on(self, now_s: float) -> None:
        """Note that a rank makes progress: it loads, or finishes steps."""
        self._last_s, self._last_time_s = now_s, self._clock()

    def look(self, now_s: float) -> PartEvent | None:
        """Check for a stall or its end; call often. Returns an event if the state changed."""
        if self._last_s is None:
            return None
        idle_s = now_s - self._last_s
        limit_s = self.limit_s
        is_early = not self._durations and idle_s < limit_s
        if idle_s < (EARLY_S if is_early else limit_s):
            self._asked, self._answers_until_s, self._ask_at_s = [], None, 0.0
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
        self._is_stalled = True
        return Stalled(
            stall=Stall(
                since_s=self._last_time_s,
                limit_s=EARLY_S if is_early else limit_s,
                step=max(self._steps.values(), default=None),
                stacks=stacks,
            )
        )
