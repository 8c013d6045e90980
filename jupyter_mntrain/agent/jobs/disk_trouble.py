"""Disk trouble: lets a job go on while its records cannot be written."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from jupyter_mntrain.model.ids import JobId

log = logging.getLogger("mntrain.agent")


class DiskTrouble:
    """Of one job."""

    def __init__(self, job_id: JobId) -> None:
        self._job_id = job_id
        self._said: tuple[int | None, str] | None = None

    @contextmanager
    def tolerated(self) -> Iterator[None]:
        """Carry on, and log each cause once: the write is retried ten times a second."""
        try:
            yield
        except OSError as error:
            # Not by all that it says: names of files next to the record are drawn at random.
            if (what := (error.errno, type(error).__name__)) != self._said:
                self._said = what
                log.error("job %s cannot be stored on disk: %s", self._job_id, error)
