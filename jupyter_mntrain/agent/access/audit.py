"""Audit log: one line for each request that changes something: what, by whom, from where."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from jupyter_mntrain.model import tunables

log = logging.getLogger("mntrain.agent")

LARGEST_BYTES = tunables.size("limits.audit_log_bytes")

WORD_LIMIT = tunables.count("limits.audit_word_characters")


class Audit:
    """Appends to ``audit.log``, which only this user may read.

    Args:
        clock: Unix time.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock

    def note(self, what: str, *, job: str, who: str, where: str, outcome: str = "done") -> None:
        """Write one line. If the disk is full, the agent's log says so and the request continues.

        Args:
            what: ``start`` or ``stop``.
            who: the name that the caller gives.
            where: the address that the request came from.
        """
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
        line = {"time": stamp, "what": what, "job": job, "who": who, "from": where}
        line["outcome"] = outcome
        text = json.dumps({key: value[:WORD_LIMIT] for key, value in line.items()}) + "\n"
        try:
            self._turn()
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(text)
        except OSError as error:
            log.warning("%s of job %s by %s is not in the audit log: %s", what, job, who, error)

    def _turn(self) -> None:
        if self.path.exists() and self.path.stat().st_size > LARGEST_BYTES:
            self.path.replace(self.path.with_name(f"{self.path.name}.1"))
