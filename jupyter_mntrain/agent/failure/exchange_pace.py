"""Exchange pace: progress of ranks that report none, by what they exchange with other nodes.

Every step of distributed training exchanges something. So a pause that is much longer than all
pauses before is a stall, whatever script it is.
"""

from __future__ import annotations

from collections import deque

from jupyter_mntrain.model import tunables

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
    """Of all ranks of one attempt on one node."""

    def __init__(self) -> None:
        self._bytes: int | None = None
        self._last_s: float | None = None
        self._pauses_s: deque[float] = deque(maxlen=REMEMBERED)

    @property
    def limit_s(self) -> float | None:
        """Longest pause that is no stall; ``None`` while the pace is not known."""
        if len(self._pauses_s) < KNOWN_PAUSES:
            return None
        return max(LEAST_S, TIMES_A_PAUSE * max(self._pauses_s))

    def take(self, exchanged_bytes: int, now_s: float) -> bool:
        """Take a reading; return whether the ranks have exchanged something since the last one.

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
