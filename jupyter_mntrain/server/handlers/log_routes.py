"""Log and file resources: the last lines, a search in all lines, and all lines as one file; and the
files that a job wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import PurePosixPath
from typing import TypeVar
from urllib.parse import quote

import msgspec
from tornado.iostream import StreamClosedError

from jupyter_mntrain.cluster import Job
from jupyter_mntrain.cluster.handle.large_files import ClusterFiles
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.records.job import JobView
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
        job = await self.job(job_id)
        rank = self.number("rank", -1, 0, 1_000_000)
        return job, None if rank < 0 else rank, self.get_query_argument("node", "") or None


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


# File resources: the files that a job wrote on its nodes, as a list and one by one.


T = TypeVar("T")


class FilesResource(OneJobResource):
    """A route of a job's files."""

    async def of_job(self, job_id: str, ask: Callable[[ClusterFiles, JobView], T]) -> T:
        updates, entry = await self.entry(job_id)
        view = updates.clusters.known_job(entry.job_id).view()
        return await self.work(ask, updates.clusters.of_job(entry.job_id).files, view)

    @allowed
    async def get(self, job_id: str) -> None:
        self.answer(await self.of_job(job_id, lambda files, view: files.of_job(view)))


class FileResource(FilesResource):
    """One file, streamed from its node, as it may be gigabytes."""

    @allowed
    async def get(self, job_id: str) -> None:
        path, node = self.get_query_argument("path"), self.get_query_argument("node")
        most = self.number("most", 1 << 53)
        size, pieces = await self.of_job(
            job_id, lambda files, view: files.read_job_file(view, path, node)
        )
        # It is somebody's: never shown as a page of this server's.
        name = quote(PurePosixPath(path).name, safe="")
        self.set_header("Content-Disposition", f"attachment; filename*=UTF-8''{name}")
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Content-Length", min(size, most))
        await self._send(pieces, min(size, most))

    async def _send(self, pieces: Generator[bytes, None, None], size: int) -> None:
        sent = 0
        try:
            while sent < size:
                piece = await self.work(next, pieces)
                self.write(piece[: size - sent])
                sent += len(piece)
                await self.flush()
        except StreamClosedError:  # the browser stopped the download
            return
        except MntrainError:
            if not sent:
                self.clear()  # nothing has been sent: report it like any other error
                raise
            # Too short, so that the browser takes it for what it is: broken off.
            self.detach().close()
            return
        finally:
            await self.work(pieces.close)
        await self.finish()
