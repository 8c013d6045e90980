"""Own errors: collects errors of the agent itself from its log, with their times."""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque

from jupyter_mntrain.agent.failure.printed import LINE_LIMIT
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.failure.system_errors import KINDS, told_of
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


log = logging.getLogger("mntrain.agent")

_NO_THREAD = "can't start new thread"
"""CPython's, at a limit of the system."""


def unexpected(error: BaseException, doing: str, *, node: str, kind: Kind | None = None) -> Problem:
    """Log an error with its traceback, and return its problem.

    Args:
        doing: what failed, for people, like "cannot start its part".
        kind: if the error itself does not say; default: ``BROKEN``.
    """
    number = secrets.token_hex(4)
    log.error("error %s: %s", number, doing, exc_info=error)
    told = f"{type(error).__name__}: {error}"
    fix = f"see the agent's log on {node} for {number}"
    if isinstance(error, OSError) and error.strerror is not None:
        told, known = told_of(error), KINDS.get(error.errno or 0)
        if known is not None:
            kind, fix = known, f"{fix_of(known)}; {fix}"
    elif isinstance(error, RuntimeError) and _NO_THREAD in str(error):
        kind = Kind.TOO_MANY_PROCESSES
        fix = f"{fix_of(kind)}; {fix}"
    return Problem(kind=kind or Kind.BROKEN, cause=f"{doing}: {told}", fix=fix, id=number)
