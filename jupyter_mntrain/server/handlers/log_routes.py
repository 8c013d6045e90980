"""Log resources: the last lines, a search in all lines, and all lines as one file."""

from __future__ import annotations

import msgspec
from tornado.iostream import StreamClosedError

from jupyter_mntrain.cluster import Job
from jupyter_mntrain.model.text.foreign import without_color
from jupyter_mntrain.server.handlers.base import allowed
from jupyter_mntrain.server.handlers.job_routes import OneJobResource
from jupyter_mntrain.server.messages import JobLog
from jupyter_mntrain.show.log_lines import written_line

DEFAULT_TAIL = 500
"""Number of log lines that a page gets if it does not say, and at most."""
MOST_TAIL = 5000


class LogResource(OneJobResource):
    """A route of a job's log, of all ranks or one."""

    async def asked(self, job_id: str) -> tuple[Job, int | None, str | None]:
        updates, entry = await self.entry(job_id)
        rank = self.number("rank", -1, 0, 1_000_000)
        node = self.get_query_argument("node", "") or None
        return updates.clusters.known_job(entry.job_id), None if rank < 0 else rank, node


class LogsResource(LogResource):
    @allowed
    async def get(self, job_id: str) -> None:
        job, rank, node = await self.asked(job_id)
        tail = self.number("tail", DEFAULT_TAIL, 1, MOST_TAIL)
        search = self.get_query_argument("search", "")
        if search:
            searches = (await self.updates()).log_searches
            most = MOST_TAIL + 1
            found = await self.work(searches.find, job, search, rank=rank, node=node, most=most)
        else:
            found = list(await self.work(job.logs, rank=rank, node=node, tail=tail + 1))
        shown = (msgspec.structs.replace(one, text=without_color(one.text)) for one in found)
        self.answer(JobLog(lines=tuple(shown)[-tail:], is_cut=len(found) > tail))


class LogFileResource(LogResource):
    """All lines as one text, streamed, as they may be gigabytes."""

    @allowed
    async def get(self, job_id: str) -> None:
        job, rank, node = await self.asked(job_id)
        pieces = await self.work(job.whole_log, rank=rank, node=node)
        part = "" if rank is None else f"-rank-{rank}"
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="{job.id}{part}.log"')
        try:
            while (piece := await self.work(next, pieces, None)) is not None:
                self.write("".join(map(written_line, piece)))
                await self.flush()
        except StreamClosedError:  # the browser stopped the download
            return
        finally:
            await self.work(pieces.close)
        await self.finish()
