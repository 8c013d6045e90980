"""Grace hook: gives torchrun's ranks as long to exit as the requested stop allows.

torchrun kills its ranks 30 s after it has passed SIGTERM on. It has an option for that since 2.12
(``--shutdown-timeout``, pytorch#172596), which is the same for every stop, and with pytorch#192815
also how long the failure of one rank is waited for. A stop's own grace is known only when it is
asked for.

Standard library only, for any Python of at least 3.8.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

MODULE = "torch.distributed.elastic.multiprocessing.api"
STOP_FILE = "stop.json"

SLACK_S = 5
"""The supervisor ends first what does not end within the grace: it says where that was."""


def give_grace(directory: str, after_import: Any) -> None:
    """Make torchrun wait for its ranks as long as the newest stop says, if there is one.

    Args:
        directory: the attempt's metrics.
        after_import: runs a function once a module has been imported.
    """
    stop = os.path.join(os.path.dirname(directory), STOP_FILE)

    def wrap() -> None:
        context = sys.modules[MODULE].PContext
        context.close = with_grace(context.close, stop)

    after_import(wrap, MODULE)


def with_grace(close: Any, stop: str) -> Any:
    """Wrap ``PContext.close`` so that its time-out is at least the stop's grace."""

    def wrapped(self: Any, death_sig: Any = None, timeout: float = 30) -> Any:
        return close(self, death_sig, max(timeout, _grace_s(stop)))

    return wrapped


def _grace_s(stop: str) -> float:
    try:
        with open(stop, encoding="utf-8") as file:
            return float(json.load(file)["grace_s"]) + SLACK_S
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0
