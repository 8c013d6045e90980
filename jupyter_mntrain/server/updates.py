"""Page updates: numbered changes of the cluster, sent to every open page."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from jupyter_mntrain import __version__
from jupyter_mntrain.cluster import Cluster, NodeView
from jupyter_mntrain.metrics.entry_builder import job_entry, node_entries
from jupyter_mntrain.metrics.page_entries import JobEntry, NodeEntry
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import TERMINAL, JobView
from jupyter_mntrain.server.allocations.waiting_launches import WaitingLaunches
from jupyter_mntrain.server.allocations.watched_clusters import WatchedClusters
from jupyter_mntrain.server.log_searches import LogSearches
from jupyter_mntrain.server.messages import (
    EVENTS_VERSION,
    JobGone,
    JobSet,
    NodeGone,
    NodeHeartbeat,
    NodeSet,
    ServerStatus,
    Snapshot,
    StatusSet,
    StreamResumed,
    WaitingSet,
    page_json,
)
from jupyter_mntrain.server.series_feed import JobFeed, Send

ROUND_S = 0.25
"""Interval of sending changes to pages. Changes in between are sent together."""

SERIES_S = 0.9
"""Minimum interval of sending new rows: with ROUND_S it is about once a second, as often as a page
draws."""

UNSEEN_ROUND_S = 60.0
"""Interval of deriving rows while no page is open."""

RELEASED_AFTER_S = 60.0
"""The rows of an ended job that no page watches are freed after this. Its nodes keep them."""

MOST_READ_BACK = 10
"""Number of the newest ended jobs that are read at the start, for their last figures."""

MOST_KEPT = 4000
"""Messages kept for a page that reconnects. A page away for longer gets a full snapshot."""


class PageUpdates:
    """The cluster's state as pages know it, and the pages to notify of changes.

    Runs on the Jupyter server's event loop and never waits for a node. While no page listens,
    nothing is derived: reading the state updates it first.

    Args:
        cluster: an open one.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.log_searches = LogSearches()
        self.stream = secrets.token_hex(6)
        self._loop = asyncio.get_running_loop()
        self._seq = 0
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=MOST_KEPT)
        self._nodes: dict[str, NodeEntry] = {}
        self._jobs: dict[JobId, JobEntry] = {}
        self._feeds: dict[JobId, JobFeed] = {}
        self._feed_numbers = itertools.count(1)
        self._ended: dict[JobId, JobEntry] = {}
        """Last entries of jobs whose rows were freed."""
        self._status = self._read_status()
        self._listeners: set[Callable[[bytes], None]] = set()
        self._changed = asyncio.Event()
        self._is_woken = False
        """Whether the cluster's thread has set the event for the next round."""
        self.clusters = WatchedClusters(cluster, self._wake)
        self._launches = WaitingLaunches(
            self._look_at_launches, self.clusters.watch, self.clusters.end
        )
        self._waiting = self._launches.shown()
        self.look_now()
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop watching; the clusters stay open."""
        self._listeners.clear()  # nothing wakes this loop any more, which may end
        await self._launches.close()
        self._task.cancel()
        await asyncio.wait([self._task])

    @property
    def status(self) -> ServerStatus:
        self._catch_up()
        return self._status

    @property
    def nodes(self) -> tuple[NodeEntry, ...]:
        self._catch_up()
        return tuple(self._nodes.values())

    @property
    def jobs(self) -> tuple[JobEntry, ...]:
        self._catch_up()
        return tuple(self._jobs.values())

    def job(self, job_id: JobId) -> JobEntry | None:
        self._catch_up()
        return self._jobs.get(job_id)

    def feed(self, job_id: JobId) -> JobFeed:
        """Return the job's feed, which starts following its nodes.

        Raises:
            JobNotFoundError: no node reached so far knows the job.
        """
        feed = self._feeds.get(job_id)
        if feed is None:
            feed = self._follow(job_id)
        feed.unwatched_since_s = None
        feed.look()
        return feed

    def watch(self, job_id: JobId, send: Send, stream: str, since: int) -> Callable[[], None]:
        """Send the job's rows until the returned function is called."""
        feed = self.feed(job_id)
        feed.watch(send, stream, since)
        return lambda: feed.unwatch(send)

    # pages

    def listen(self, tell: Callable[[bytes], None]) -> None:
        """Pass every new message to ``tell``, which must not block."""
        self._listeners.add(tell)
        self._launches.begin()
        self._changed.set()

    def forget(self, tell: Callable[[bytes], None]) -> None:
        self._listeners.discard(tell)
        if not self._listeners:
            self._launches.pause()
        self._changed.set()  # ends a wait that only a listener's rounds would end

    def greeting(self, stream: str, since: int) -> list[bytes]:
        """Return the messages that bring a page up to date."""
        self._catch_up()
        first = self._kept[0][0] if self._kept else self._seq + 1
        if stream == self.stream and first - 1 <= since <= self._seq:
            missed = [message for seq, message in self._kept if seq > since]
            return [page_json(StreamResumed(stream=self.stream, seq=self._seq)), *missed]
        whole = Snapshot(
            stream=self.stream,
            seq=self._seq,
            status=self._status,
            nodes=tuple(self._nodes.values()),
            jobs=tuple(self._jobs.values()),
            waiting=self._waiting,
        )
        return [page_json(whole)]

    # rounds

    def _wake(self) -> None:
        """Wake the loop, at most once a round. Called in the cluster's thread, after every line."""
        if self._listeners and not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._changed.set)

    async def _run(self) -> None:
        series_due = time.monotonic()
        while True:
            with suppress(TimeoutError):
                limit_s = None if self._listeners else UNSEEN_ROUND_S
                await asyncio.wait_for(self._changed.wait(), limit_s)
            self._is_woken = False
            self._changed.clear()
            self.look_now()
            now = time.monotonic()
            if now >= series_due:
                self._look_at_series()
                series_due = now + SERIES_S
            await asyncio.sleep(ROUND_S)
            if self._listeners and any(not feed.is_over for feed in self._feeds.values()):
                # New rows alone do not set the event.
                self._changed.set()

    def look_now(self) -> None:
        """Send what has changed; also called after a request that changes something."""
        status = self._read_status()
        if status != self._status:
            self._status = status
            self._tell(StatusSet, status=status)
        self._look_at_nodes(self.cluster.nodes())
        self._look_at_jobs()

    def _catch_up(self) -> None:
        """Look now if no page listens, as there are no rounds then."""
        if not self._listeners:
            self.look_now()
            self._look_at_series()

    # State is updated before listeners are notified: they may request a snapshot at once.

    def _look_at_nodes(self, views: Sequence[NodeView]) -> None:
        entries = {entry.key: entry for entry in node_entries(views)}
        before, self._nodes = self._nodes, entries
        for key in before.keys() - entries.keys():
            self._tell(NodeGone, key=key)
        for key, entry in entries.items():
            self._tell_node(before.get(key), entry)

    def _tell_node(self, before: NodeEntry | None, entry: NodeEntry) -> None:
        if entry == before:
            return
        heartbeat = entry.view.heartbeat
        if (
            before is None
            or heartbeat is None
            or _without_heartbeat(before) != _without_heartbeat(entry)
        ):
            self._tell(NodeSet, node=entry)
            return
        view = entry.view
        self._tell(
            NodeHeartbeat,
            key=entry.key,
            liveness=view.liveness,
            last_seen_s=view.last_seen_s,
            heartbeat=heartbeat,
        )

    def _look_at_jobs(self) -> None:
        before = self._jobs
        self._jobs = {view.job_id: self._job_entry(view) for view in self.clusters.known_jobs()}
        for job_id in before.keys() - self._jobs.keys():
            self._forget_rows(job_id)
            self._ended.pop(job_id, None)
            self._tell(JobGone, job_id=job_id)
        for job_id, entry in tuple(self._jobs.items()):
            if entry != before.get(job_id):
                self._tell(JobSet, job=entry)

    def forget_launch(self, cluster: str) -> None:
        """Stop showing a launch that was canceled, before its scheduler reports it."""
        self._launches.forget(cluster)
        self._look_at_launches()

    def _look_at_launches(self) -> None:
        waiting = self._launches.shown()
        if waiting != self._waiting:
            self._waiting = waiting
            self._tell(WaitingSet, waiting=waiting)

    def _job_entry(self, view: JobView) -> JobEntry:
        feed = self._feeds.get(view.job_id)
        if feed is None and (last := self._ended.get(view.job_id)):
            if view.state in TERMINAL and last.attempt == view.attempt.number:
                return job_entry(view, submitted_by=view.submitted_by, numbers=last.numbers)
            del self._ended[view.job_id]  # it was restarted
        if feed is None and view.state not in TERMINAL:
            feed = self._follow(view.job_id)
        return job_entry(
            view,
            submitted_by=view.submitted_by,
            numbers=feed.numbers if feed else None,
            history=feed.history if feed else None,
        )

    def _look_at_series(self) -> None:
        now_s = time.time()
        for job_id, feed in list(self._feeds.items()):
            try:
                feed.look(now_s)
            except MntrainError:
                self._forget_rows(job_id)  # no node knows it any longer
        self._read_back()
        # Entries first, then rows: rows make the page redraw both.
        self._look_at_jobs()
        for feed in self._feeds.values():
            feed.send()
        self._release()

    def _read_back(self) -> None:
        """Start reading the next job that ended before this server started."""
        reading = [
            job_id
            for job_id, entry in self._jobs.items()
            if entry.state in TERMINAL and job_id in self._feeds and not self._feeds[job_id].is_over
        ]
        if reading:
            return
        there = self.clusters.nodes_up()
        for view in self.clusters.known_jobs()[:MOST_READ_BACK]:
            is_known = view.job_id in self._feeds or view.job_id in self._ended
            # A silent node would block the jobs after it.
            can_be_read = all(part.node_id in there for part in view.parts)
            if view.state in TERMINAL and not is_known and can_be_read:
                self._follow(view.job_id)
                return

    def _release(self) -> None:
        """Free the rows of ended jobs that no page has watched for a while."""
        now = time.monotonic()
        for job_id, feed in list(self._feeds.items()):
            if not feed.is_over or feed.is_watched:
                feed.unwatched_since_s = None
                continue
            feed.unwatched_since_s = feed.unwatched_since_s or now
            if now - feed.unwatched_since_s >= RELEASED_AFTER_S:
                self._ended[job_id] = self._jobs[job_id]
                self._forget_rows(job_id)

    def _follow(self, job_id: JobId) -> JobFeed:
        # A new stream id: pages must not resume from an older feed.
        stream = f"{self.stream}.{next(self._feed_numbers)}"
        feed = self._feeds[job_id] = JobFeed(self.clusters.known_job(job_id), stream)
        return feed

    def _forget_rows(self, job_id: JobId) -> None:
        feed = self._feeds.pop(job_id, None)
        if feed is not None:
            feed.close()

    def _tell(self, message_of: Callable[..., object], **content: object) -> None:
        """Number a message and send it to every page."""
        self._seq += 1
        message = page_json(message_of(seq=self._seq, **content))
        self._kept.append((self._seq, message))
        for tell in tuple(self._listeners):
            tell(message)

    def _read_status(self) -> ServerStatus:
        return ServerStatus(
            version=__version__,
            events_version=EVENTS_VERSION,
            cluster=self.cluster.name,
            discovery_problem=self.cluster.discovery.problem,
            strangers=self.cluster.discovery.strangers,
            is_driver=self.cluster.membership.is_driver,
            is_read_only=self.cluster.membership.is_read_only,
        )


def _without_heartbeat(entry: NodeEntry) -> NodeEntry:
    view = msgspec.structs.replace(entry.view, heartbeat=None, last_seen_s=None, liveness="up")
    return msgspec.structs.replace(entry, view=view)
