"""Audit log: records who started or stopped a job, or changed who is trusted, and from where. Nodes
keep one, as does the driver that made the cluster.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from jupyter_mntrain.model.text.secrets import redacted

log = logging.getLogger("mntrain.audit")

FILE = "audit.log"
PRIVATE = 0o600

LARGEST_BYTES = 4 * 2**20
"""Size at which audit.log is renamed to audit.log.1, replacing the previous one."""

WORD_LIMIT = 200
"""Maximum number of characters of a word in audit.log that the caller chooses: anyone may send
long ones."""


class Audit:
    """Appends to ``audit.log``, which only this user may read.

    Args:
        clock: Unix time.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock

    def note(
        self, what: str, *, who: str, where: str = "", outcome: str = "done", **about: str
    ) -> None:
        """Write one line. If the disk is full, the agent's log says so and the request continues.

        Args:
            what: ``start``, ``stop``, ``join``, ``revoke`` and so on.
            who: caused it; a caller by the name in its certificate.
            where: the address that the request came from; empty if it began here.
            about: what it concerns: a job, a member, an invitation.
        """
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
        line = {"time": stamp, "what": what, **about, "who": who, "from": where}
        line["outcome"] = outcome
        cut = {key: redacted(value)[:WORD_LIMIT] for key, value in line.items()}
        try:
            self._turn()
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
            with os.fdopen(handle, "w") as file:
                os.fchmod(handle, PRIVATE)  # an older file may have another
                file.write(json.dumps(cut) + "\n")
        except OSError as error:
            log.warning("%s by %s is not in the audit log: %s", what, who, error)

    def _turn(self) -> None:
        if self.path.exists() and self.path.stat().st_size > LARGEST_BYTES:
            self.path.replace(self.path.with_name(f"{self.path.name}.1"))
