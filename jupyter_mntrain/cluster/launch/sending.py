"""Sending: sends a job's nodes the files of its project that they lack."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.launch.gang_start import all_or_error
from jupyter_mntrain.launch.progress import SILENT, Count, Progress
from jupyter_mntrain.launch.project.stage import StagedProject
from jupyter_mntrain.launch.project.tree import PART_BYTES, read_tree, sha256_of
from jupyter_mntrain.launch.retry import persist
from jupyter_mntrain.model.errors import MntrainError, RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import by_size

FRAME_BYTES = 16
"""Most bytes that MessagePack adds around a content."""

PARALLEL = 4
"""Files are sent in parts of this size, and as many at a time to each node."""

T = TypeVar("T")


class Sent(NamedTuple):
    """The files and bytes that were sent to one node."""

    node: str
    files: int
    size_bytes: int


class Missing(NamedTuple):
    """A file content that a node lacks."""

    client: AgentClient
    sha256: str
    size_bytes: int


async def send_project(
    project: str,
    staged: StagedProject | None,
    clients: Sequence[AgentClient],
    others: Sequence[AgentClient] = (),
    *,
    progress: Progress = SILENT,
) -> tuple[Sent, ...]:
    """Send every node the files of a project that it lacks.

    Args:
        project: SHA-256 of its tree.
        staged: its files on this machine; ``None`` = the nodes have them from an earlier job.
        clients: the nodes of the job.
        others: nodes that may have what none of them has.

    Raises:
        NodeError: a node does not answer.
        RefusedError: no node that answers has all of it, or a node has no room.
        SpecError: a file changed meanwhile.
    """
    source = _Source(staged, [*clients, *others])
    content = await source.tree(project)
    sizes = {**read_tree(content).blobs, project: len(content)}
    answers = await asyncio.gather(
        *(persist(lambda one=one: one.missing_blobs(sizes)) for one in clients),  # type: ignore[misc]
        return_exceptions=True,
    )
    lacks = list(zip(clients, all_or_error(answers), strict=True))
    count = Count(progress, "sending the project's files", sum(len(one) for _, one in lacks))

    async def serve(client: AgentClient, sha256s: Iterable[str]) -> Sent:
        sent = [Missing(client, sha256, sizes[sha256]) for sha256 in sha256s]
        turns = asyncio.Semaphore(PARALLEL)

        async def some(missing: Sequence[Missing]) -> None:
            async with turns:
                await source.send(missing)
            count.more(len(missing))

        bundles = by_size(sent, source.bundled_bytes, PART_BYTES)
        all_or_error(await asyncio.gather(*map(some, bundles), return_exceptions=True))
        return Sent(client.node, len(sent), sum(one.size_bytes for one in sent))

    done = await asyncio.gather(*(serve(*one) for one in lacks), return_exceptions=True)
    return tuple(all_or_error(done))


class _Source:
    """The source of file contents: this machine, or a node that has them."""

    def __init__(self, staged: StagedProject | None, nodes: Sequence[AgentClient]) -> None:
        self._staged = staged
        self._nodes = nodes

    async def tree(self, project: str) -> bytes:
        """Return the encoded tree of a project."""
        if self._staged is not None:
            return self._staged.content
        for client in self._nodes:
            content = await self._read(client, project)
            if content is not None and sha256_of(content) == project:
                return content
        raise _gone()

    def bundled_bytes(self, missing: Missing) -> int:
        """Return the share of a request that a content takes: all of it if it is sent alone."""
        size = missing.size_bytes + FRAME_BYTES
        return size if self._is_here(missing.sha256) else max(size, PART_BYTES)

    async def send(self, missing: Sequence[Missing]) -> None:
        """Send contents to a node in one request, or a large one in parts."""
        if self.bundled_bytes(missing[0]) >= PART_BYTES:
            await self._send_parts(missing[0])
            return
        contents = [await self._whole(one) for one in missing]
        await persist(lambda: missing[0].client.put_blobs(contents))

    async def _whole(self, missing: Missing) -> bytes:
        content = await self._part(missing.sha256, 0, None)
        if sha256_of(content) != missing.sha256:
            raise _changed()
        return content

    async def _send_parts(self, missing: Missing) -> None:
        key = secrets.token_hex(8)
        holder = None if self._is_here(missing.sha256) else await self._holder(missing)
        offset = 0
        while offset < missing.size_bytes or offset == 0:
            part = await self._part(missing.sha256, offset, holder)
            if len(part) < min(PART_BYTES, missing.size_bytes - offset):
                raise _changed()
            part = part[: missing.size_bytes - offset]
            await persist(
                lambda part=part, offset=offset: missing.client.put_blob(  # type: ignore[misc]
                    missing.sha256, part, offset=offset, size=missing.size_bytes, key=key
                )
            )
            offset += len(part)
            if not part:
                return

    def _is_here(self, sha256: str) -> bool:
        staged = self._staged
        return staged is not None and (sha256 == staged.sha256 or sha256 in staged.sources)

    async def _part(self, sha256: str, offset: int, holder: AgentClient | None) -> bytes:
        if holder is not None:
            return await holder.blob(sha256, offset=offset, limit=PART_BYTES)
        staged = self._staged
        if staged is None or sha256 == staged.sha256:
            return staged.content[offset : offset + PART_BYTES] if staged else b""
        return await asyncio.to_thread(_read_part, staged.sources, sha256, offset)

    async def _holder(self, missing: Missing) -> AgentClient:
        """Return the client of a node that has a content."""
        for client in self._nodes:
            try:
                if not await client.missing_blobs({missing.sha256: missing.size_bytes}):
                    return client
            except MntrainError:
                continue
        raise _gone()

    async def _read(self, client: AgentClient, sha256: str) -> bytes | None:
        parts: list[bytes] = []
        try:
            while not parts or len(parts[-1]) == PART_BYTES:
                offset = sum(map(len, parts))
                parts.append(await client.blob(sha256, offset=offset, limit=PART_BYTES))
        except MntrainError:
            return None
        return b"".join(parts)


def _read_part(sources: Mapping[str, Path], sha256: str, offset: int) -> bytes:
    try:
        with sources[sha256].open("rb") as file:
            file.seek(offset)
            return file.read(PART_BYTES)
    except OSError as error:
        raise SpecError(
            f"{sources[sha256]}: cannot be read any more: {error.strerror}", fix="launch again"
        ) from None


def _changed() -> SpecError:
    return SpecError(
        "a file of the project changed while it was sent",
        fix="launch again once nothing writes to the project",
    )


def _gone() -> RefusedError:
    return RefusedError(
        "no node that answers still has the files of this job's project",
        kind=Kind.NO_FILE,
        fix="launch it from the project's folder: --project DIR; or start the nodes that had it",
    )
