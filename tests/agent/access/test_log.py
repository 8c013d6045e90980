"""The agent's log: one safe line per message."""

from __future__ import annotations

import logging
import sys

from jupyter_mntrain.agent.access.log import SafeFormatter
from tests.hostile import HOSTILE, assert_safe


def formatted(error: Exception | None = None) -> str:
    raised = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("x", logging.INFO, "f", 1, "node %s", (HOSTILE,), raised)
    return SafeFormatter("%(asctime)s %(message)s").format(record)


def test_a_message_is_one_safe_line() -> None:
    assert_safe(formatted())
    assert "\n" not in formatted(), "else a name could forge the next line"


def test_a_traceback_is_safe() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        error = sys.exc_info()[1]
    assert isinstance(error, ValueError)
    assert_safe(formatted(error))
    assert "Traceback" in formatted(error)
