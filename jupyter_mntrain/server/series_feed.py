"""Series feed: sends a job's rows to every page that watches it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from jupyter_mntrain.cluster import Job, JobHistory
from jupyter_mntrain.cluster.loop import ClosedError
from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.metrics.series_builder import SeriesBuilder
from jupyter_mntrain.metrics.summary import JobNumbers
from jupyter_mntrain.model.errors import job_not_found
from jupyter_mntrain.model.records.job import TERMINAL

Send = Callable[[JobSeries], None]


class JobFeed:
    """Follows the journals of a job; sends each watcher the rows it lacks.

    Args:
        stream: prefix of the stream id.
    """

    def __init__(self, job: Job, stream: str) -> None:
        self._job = job
        self._builder = SeriesBuilder(job.id, stream)
        self._watchers: dict[Send, tuple[str, int]] = {}
        self.history: JobHistory | None = None
        self.numbers: JobNumbers | None = None
        """Headline figures; ``None`` before the first look."""
        self.unwatched_since_s: float | None = None
        """Monotonic time since when it is over and no page watches it."""

    @property
    def is_over(self) -> bool:
        """Whether the job has ended and is read to its end."""
        history = self.history
        return history is not None and history.view.state in TERMINAL and history.is_complete

    @property
    def is_watched(self) -> bool:
        return bool(self._watchers)

    def close(self) -> None:
        """Free the rows."""
        with suppress(ClosedError):  # they went with its cluster
            self._job.unwatch()

    def look(self, now_s: float | None = None) -> None:
        """Take what has been read; :meth:`send` then sends the new rows.

        Raises:
            JobNotFoundError: every node has forgotten the job, or its cluster was closed.
        """
        if not self.is_over or self.numbers is None:
            try:
                history = self._job.history()
            except ClosedError:
                raise job_not_found(self._job.id) from None
            self._builder.extend(history, time.time() if now_s is None else now_s)
            self.history = history
            self.numbers = self._builder.summary.numbers

    def send(self) -> None:
        """Send every watcher the rows it lacks; rows that several lack are computed once."""
        derived: dict[tuple[str, int], JobSeries] = {}
        for send, had in tuple(self._watchers.items()):
            if had != (self._builder.stream, self._builder.seq):
                if had not in derived:
                    derived[had] = self.series(*had, None)
                self._send(send, derived[had])

    def watch(self, send: Send, stream: str, since: int) -> None:
        """Send the rows after ``since`` of ``stream`` now, and new ones as they come.

        Only after a :meth:`look`.
        """
        self._send(send, self.series(stream, since, None))

    def unwatch(self, send: Send) -> None:
        self._watchers.pop(send, None)

    def series(self, stream: str, since: int, points: int | None) -> JobSeries:
        """Return rows after ``since`` of ``stream``, or all rows downsampled to ``points``."""
        if stream == self._builder.stream and since > 0:
            return self._builder.since(since)
        return self._builder.whole() if points is None else self._builder.whole(points)

    def _send(self, send: Send, series: JobSeries) -> None:
        self._watchers[send] = (series.stream, series.seq)
        send(series)
