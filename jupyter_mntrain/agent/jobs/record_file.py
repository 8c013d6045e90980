"""Record file: stores a job's newest record on disk, and provides it to readers."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from jupyter_mntrain.agent.jobs.ended_jobs import place_of
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import TERMINAL, JobRecord

log = logging.getLogger("mntrain.agent")


# Disk trouble: lets a job go on while its records cannot be written.


class DiskTrouble:
    """Disk errors of one job."""

    def __init__(self, job_id: JobId) -> None:
        self._job_id = job_id
        self._said: tuple[int | None, str] | None = None

    @contextmanager
    def tolerated(self) -> Iterator[None]:
        """Ignore disk errors, and log each kind once: the write is retried ten times a second."""
        try:
            yield
        except OSError as error:
            # Not by all that it says: names of files next to the record are drawn at random.
            if (what := (error.errno, type(error).__name__)) != self._said:
                self._said = what
                log.error("job %s cannot be stored on disk: %s", self._job_id, error)


NAME = "record.json"
STEP_PUBLISH_INTERVAL_S = 1.0
"""Interval of progress in the node's stream. The journal has every step."""

_decoder = msgspec.msgpack.Decoder(JobRecord)


class RecordFile:
    """Holds the record. State changes are written at once, and progress with the next one."""

    def __init__(self, directory: Path, record: JobRecord) -> None:
        self._path = directory / NAME
        self._packed = b""
        self.place = place_of(record)
        self._hold(record)
        self.is_written = True
        self.has_news = True
        self._next_news_s = 0.0
        self.rest()

    @property
    def record(self) -> JobRecord:
        return self._record or _decoder.decode(zlib.decompress(self._packed))

    def _hold(self, record: JobRecord) -> None:
        self._record: JobRecord | None = record
        self.is_active = record.part.state not in TERMINAL
        self.is_live = record.is_live
        """Both are asked of all jobs several times a second."""

    def rest(self) -> None:
        """Pack the record of a job that has ended: a node has a thousand, which are rarely read."""
        if self._record is not None and not self.is_live:
            self._packed = zlib.compress(msgspec.msgpack.encode(self._record), zlib.Z_BEST_SPEED)
            self._record = None

    def update(self, *, is_progress: bool = False, **changes: Any) -> None:
        """Change fields. Progress alone is not written, and readers get it at intervals."""
        if all(getattr(self.record, name) == value for name, value in changes.items()):
            return
        self._hold(msgspec.structs.replace(self.record, **changes))
        self.has_news = True
        if not is_progress:
            self.is_written, self._next_news_s = False, 0.0

    def note(self, **changes: Any) -> None:
        """Change fields that readers get only with the next update."""
        if all(getattr(self.record, name) is value for name, value in changes.items()):
            return
        self._hold(msgspec.structs.replace(self.record, **changes))

    def write(self) -> None:
        """Write the record to disk.

        Raises:
            OSError: the disk is full; :meth:`write_changes` tries again.
        """
        write_atomically(self._path, msgspec.json.encode(self.record))
        self.is_written = True

    def write_changes(self) -> None:
        """Write changes that are not on disk yet."""
        if not self.is_written:
            self.write()

    def take_news(self, now_s: float) -> bool:
        """Return whether to notify readers now. Steps alone are reported once a second.

        Args:
            now_s: monotonic seconds.
        """
        if not self.has_news or now_s < self._next_news_s:
            return False
        self.has_news = False
        self._next_news_s = now_s + STEP_PUBLISH_INTERVAL_S
        self.rest()
        return True


def read_record(directory: Path) -> JobRecord:
    """Read the record in a job's directory.

    Raises:
        OSError, msgspec.MsgspecError: it is missing or damaged.
    """
    return msgspec.json.decode((directory / NAME).read_bytes(), type=JobRecord)
