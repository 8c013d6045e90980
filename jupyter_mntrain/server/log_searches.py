"""Log searches of pages, continued from where they ended: pages ask every 2 s."""

from __future__ import annotations

import threading
from collections import OrderedDict

from jupyter_mntrain.cluster import Job, LogLine
from jupyter_mntrain.cluster.history.logs import LogSearch

MOST_KEPT = 8
"""Maximum number of searches in logs that go on where they were."""


class LogSearches:
    """Keeps the newest searches. Calls block, and may come from several threads."""

    def __init__(self) -> None:
        self._kept = OrderedDict[tuple[object, ...], LogSearch]()
        self._lock = threading.Lock()
        """One search at a time: two of the same page would read the same lines twice."""

    def find(
        self, job: Job, text: str, *, rank: int | None, node: str | None, most: int
    ) -> list[LogLine]:
        """Return the newest lines of a job that contain a text.

        Raises:
            SpecError: the job has no such rank or node.
        """
        key = (job.id, job.view().attempt.number, text, rank, node, most)
        with self._lock:
            search = self._kept.pop(key, None)
            if search is None:
                search = job.log_search(text, rank=rank, node=node, most=most)
            found = job.search_log(search)
            self._kept[key] = search
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return found
