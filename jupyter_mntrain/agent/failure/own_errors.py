"""Own errors: collects errors of the agent itself from its log, with their times."""

from __future__ import annotations

import logging
import time
from collections import deque

from jupyter_mntrain.agent.failure.printed import LINE_LIMIT
from jupyter_mntrain.model.lifecycle.clock import Clock
from jupyter_mntrain.model.text.foreign import shown_line

MOST_ERRORS = 20
"""Maximum number of the agent's own errors that it remembers, and keeps with a failure."""


class OwnErrors(logging.Handler):
    """Keeps the latest errors that any part of this process has logged.

    An exception that escapes from a task is logged, too, by asyncio. The line that tornado logs of
    a request that failed is left out: the handler has logged its error.

    Args:
        clock: seconds since the machine's boot, as the kernel stamps its log.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        super().__init__(logging.ERROR)
        self._clock = clock
        self._kept: deque[tuple[float, str]] = deque(maxlen=MOST_ERRORS)

    @classmethod
    def listening(cls) -> OwnErrors:
        """Make an instance that receives the errors of all libraries in this process."""
        made = cls()
        logging.getLogger().addHandler(made)
        return made

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "tornado.access":
            return
        told = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            told = f"{told}: {type(error).__name__}: {error}"
        self._kept.append((self._clock(), shown_line(told, LINE_LIMIT)))

    def since(self, time_s: float) -> tuple[str, ...]:
        """Return the errors since a given time, the oldest first.

        Args:
            time_s: by the clock.
        """
        return tuple(told for at_s, told in self._kept if at_s >= time_s)
