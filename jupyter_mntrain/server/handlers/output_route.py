"""Output resource: the output of a job that a page saves in a notebook."""

from __future__ import annotations

import asyncio
import time

from jupyter_mntrain.metrics.series_builder import POINTS
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.server.handlers.base import allowed
from jupyter_mntrain.server.handlers.job_routes import OneJobResource
from jupyter_mntrain.server.messages import SavedOutput
from jupyter_mntrain.server.series_feed import JobFeed
from jupyter_mntrain.server.updates import ROUND_S, PageUpdates
from jupyter_mntrain.show.job_output import (
    LAST_SAMPLES_S,
    JobOutput,
    saved_bundle,
    saved_points,
    written_note,
)


class OutputResource(OneJobResource):
    """Data, picture and text of one moment, as the kernel shows them."""

    @allowed
    async def get(self, job_id: str) -> None:
        updates, entry = await self.entry(job_id)
        feed = await self._read_to_end(updates, entry.job_id)
        history, now_s = feed.history, time.time()
        assert history is not None  # noqa: S101  # feed() has looked
        entry = updates.job(entry.job_id) or entry
        view = history.view
        points = saved_points(view.attempt.world_size)
        cluster = updates.clusters.of_job(entry.job_id).name
        saved = saved_bundle(cluster, entry, feed.series("", 0, points), now_s)
        drawn = feed.series("", 0, POINTS)
        has_picture = view.state in TERMINAL or any(rank.time_s for rank in drawn.ranks)
        data, metadata = await self.work(
            JobOutput().make,
            saved,
            drawn.summary,
            drawn if has_picture else None,
            view,
            now_s=now_s,
            note=written_note(view, now_s),
        )
        self.answer(
            SavedOutput(
                job=saved,
                text=data["text/plain"],
                picture=data.get("image/png"),
                width_px=metadata.get("image/png", {}).get("width", 0),
            )
        )

    async def _read_to_end(self, updates: PageUpdates, job_id: JobId) -> JobFeed:
        """Return a job's feed; for an ended job, once its last rows are read or are unavailable."""
        deadline = time.monotonic() + LAST_SAMPLES_S
        feed = updates.feed(job_id)
        while not feed.is_over and time.monotonic() < deadline:
            if feed.history is None or feed.history.view.state not in TERMINAL:
                break
            await asyncio.sleep(ROUND_S)
            feed = updates.feed(job_id)
        updates.look_now()
        return feed
