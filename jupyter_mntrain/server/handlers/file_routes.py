"""File resources: the files that a job wrote on its nodes, as a list and one by one."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import PurePosixPath
from typing import TypeVar
from urllib.parse import quote

from tornado.iostream import StreamClosedError

from jupyter_mntrain.cluster.handle.large_files import ClusterFiles
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.records.job import JobView
from jupyter_mntrain.server.handlers.base import allowed
from jupyter_mntrain.server.handlers.job_routes import OneJobResource

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
