"""Transfer routes: send and receive large files in pieces. Disks are read in threads."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterable
from functools import partial

import msgspec
from tornado.web import HTTPError, stream_request_body

from jupyter_mntrain.agent.http.base import DRIVERS, GANG, AgentHandler, in_threads
from jupyter_mntrain.agent.machine.files.blob_store import UploadPart
from jupyter_mntrain.agent.machine.files.job_files import job_files, wanted_files
from jupyter_mntrain.agent.machine.files.space import FileSpace, InUse
from jupyter_mntrain.agent.machine.files.transfers import ComingPiece, TransferBook
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.http.agent_calls import Into
from jupyter_mntrain.http.json_handler import LARGEST, refusal
from jupyter_mntrain.launch.files.file_calls import FileCalls
from jupyter_mntrain.launch.files.manifest import MOST_FILES
from jupyter_mntrain.launch.files.names import parse_large_name
from jupyter_mntrain.launch.files.records import (
    MOST_PULLED,
    CleanRequest,
    Deposit,
    PieceSource,
    WantedFiles,
)
from jupyter_mntrain.launch.project.tree import PART_BYTES, sha256_of
from jupyter_mntrain.model.api import BlobQuery, BlobsMissing, Route
from jupyter_mntrain.model.errors import MntrainError, NodeError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.job import Placement

# Blob routes: a driver asks which files this node lacks, sends them, and reads them back.


LONGEST_KEY = 32

_contents = msgspec.msgpack.Decoder(list[bytes])


class BlobsHandler(AgentHandler, route=Route.BLOBS, post=DRIVERS, put=DRIVERS):
    async def post(self) -> None:
        query = self.body_as(BlobQuery)
        missing = await asyncio.to_thread(self.node.blobs.missing, query.sizes)
        self.answer(BlobsMissing(sha256s=missing))

    async def put(self) -> None:
        try:
            contents = _contents.decode(self.request.body)
        except msgspec.MsgspecError as error:
            raise refusal(
                400, Kind.BAD_REQUEST, f"these are not the contents of files: {error}"
            ) from None
        key = secrets.token_hex(8)
        parts = [
            UploadPart(
                who=self.caller.uri,
                key=key,
                sha256=sha256_of(content),
                offset=0,
                size_bytes=len(content),
                content=content,
            )
            for content in contents
        ]
        await asyncio.to_thread(self._take, parts)
        self.answer({})

    def _take(self, parts: Iterable[UploadPart]) -> None:
        in_use = projects_in_use(self.node)
        for part in parts:
            self.node.blobs.take(part, in_use)


class BlobHandler(AgentHandler, route=Route.BLOB, put=DRIVERS, get=DRIVERS):
    async def get(self, sha256: str) -> None:
        offset = self.number("offset", 0)
        limit = min(self.number("limit", PART_BYTES), PART_BYTES)
        content = await asyncio.to_thread(self.node.blobs.read, sha256, offset, limit)
        self.set_header("Content-Type", "application/octet-stream")
        self.write(content)

    async def put(self, sha256: str) -> None:
        key = self.get_query_argument("key", "")
        if not (key.isalnum() and key.isascii() and len(key) <= LONGEST_KEY):
            raise refusal(400, Kind.BAD_REQUEST, "an upload needs a key of letters and digits")
        part = UploadPart(
            who=self.caller.uri,
            key=key,
            sha256=sha256,
            offset=self.number("offset", 0),
            size_bytes=self.number("size", LARGEST),
            content=self.request.body,
        )
        await asyncio.to_thread(self.node.blobs.take, part, projects_in_use(self.node))
        self.answer({})


def projects_in_use(node: LocalNode) -> set[str]:
    """Return the projects of jobs that run or wait here."""
    specs = [job.record.spec for job in node.jobs.active()]
    return {spec.project for spec in specs if spec.project is not None}


INTERVAL_S = 0.02
"""Interval at which a node passes on what has come of a piece: it is behind by this. Each block
costs 0.1 ms."""
PATIENCE_S = 5.0
"""A node that is asked for a piece that does not come yet waits for it this long: it is asked for
as soon as somebody begins to send it there."""
SOURCE_BYTES = 64 << 10
"""Most that is read of where a piece is to be fetched."""


class _TransferBase(AgentHandler):
    @property
    def transfers(self) -> TransferBook:
        return self.node.transfers


class ManifestHandler(_TransferBase, route=Route.MANIFEST, post=DRIVERS):
    async def post(self) -> None:
        name = parse_large_name(self.body_as(str))
        self.answer(await self.slowly(self.transfers.hashing, name))


class TransfersHandler(_TransferBase, route=Route.TRANSFERS, post=DRIVERS):
    async def post(self) -> None:
        deposit = self.body_as(Deposit)
        with self.audited("transfer", of=f"{deposit.root}:{deposit.name}"):
            self.answer(await self.slowly(self.transfers.deposit, deposit))


class TransferHandler(_TransferBase, route=Route.TRANSFER, put=DRIVERS):
    async def put(self, transfer: str) -> None:
        self.answer(await self.slowly(self.transfers.finish, transfer))


@stream_request_body
class PieceHandler(_TransferBase, route=Route.PIECE, get=GANG, put=DRIVERS, post=DRIVERS):
    """Sends and receives pieces, and passes them on as they arrive: see :class:`ComingPiece`."""

    coming: ComingPiece | None = None

    def prepare(self) -> None:
        self._asked = bytearray()
        try:
            super().prepare()
            if self.request.method == "PUT" and not self._finished:
                self.coming = self.transfers.begin(*self._which)
        except (MntrainError, HTTPError) as error:
            self._refuse_afterwards(error)

    def data_received(self, chunk: bytes) -> None:
        if self.coming is not None:
            self.coming.add(chunk)
        elif len(self._asked) < SOURCE_BYTES:
            self._asked += chunk

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self.on_finish()

    def on_finish(self) -> None:
        if self.coming is not None:
            self.transfers.end(*self._which, self.coming)

    def compute_etag(self) -> None:
        """Return no etag: it would take a second of a core per GiB, and nobody asks twice."""

    async def get(self, transfer: str, **_: str) -> None:
        is_node = self.caller.role == "node"
        if is_node and not self.transfers.may_fetch(transfer, self.caller.name):
            raise self.not_allowed()
        coming = await self._begun() if is_node else None
        self.set_header("Content-Type", "application/octet-stream")
        if coming is None:
            reader = self.node.threads.pieces
            content = await in_threads(reader, self.transfers.read, *self._which)
            self.set_header("Content-Length", len(content))
            self.flush()  # alone: joined to the headers, it would be copied
            self.write(content)
        else:
            await self._pass_on(coming)

    async def put(self, **_: str) -> None:
        assert self.coming is not None  # noqa: S101 - since its headers came
        await self._keep(self.coming)
        self.answer({})

    async def post(self, transfer: str, piece: str) -> None:
        """Fetch a piece from another node."""
        self.request.body = bytes(self._asked)
        source = self.body_as(PieceSource)
        peer = FileCalls(self.watch_tasks.peers(_place(source)))
        coming = self.coming = self.transfers.begin(*self._which)
        try:
            await peer.piece_into(transfer, int(piece), Into(coming.content, coming.came))
        except (NodeError, RefusedError) as error:
            raise RefusedError(
                f"cannot fetch from {source.node}: {error.cause}",
                kind=Kind.LINK_BLOCKED,
                fix="check the network between the two nodes",
            ) from error
        await self._keep(coming)
        self.answer({})

    def _refuse_afterwards(self, error: MntrainError | HTTPError) -> None:
        """Refuse only after the body has arrived: a caller that still sends would never see the
        answer.
        """

        def refuse(*_: str, **__: str) -> None:
            raise error

        setattr(self, str(self.request.method).lower(), refuse)

    @property
    def _which(self) -> tuple[str, int]:
        return self.path_kwargs["transfer"], int(self.path_kwargs["piece"])

    async def _keep(self, coming: ComingPiece) -> None:
        key, piece = self._which
        await in_threads(self.node.threads.pieces, self.transfers.write, key, piece, coming.content)

    async def _begun(self) -> ComingPiece | None:
        """Wait for a piece that is about to arrive: the driver may ask for it before that."""
        patient_until_s = time.monotonic() + PATIENCE_S
        while (coming := self.transfers.coming(*self._which)) is None:
            may_come = self.transfers.may_come(*self._which)
            if not may_come or self.has_hung_up or time.monotonic() > patient_until_s:
                break
            await asyncio.sleep(INTERVAL_S)
        return coming

    async def _pass_on(self, coming: ComingPiece) -> None:
        """Send a piece while it arrives. At most one piece is buffered."""
        view, sent = memoryview(coming.content), 0
        self.set_header("Content-Length", len(view))
        while not self.has_hung_up:
            is_over, come = coming.is_over, coming.come
            if come > sent:
                self.write(bytes(view[sent:come]))
                self.flush()
                sent = come
            if sent == len(view):
                return
            if is_over:
                self.detach().close()  # an answer that is too short: it is asked for again
                return
            await asyncio.sleep(INTERVAL_S)


class JobFilesHandler(_TransferBase, route=Route.JOB_FILES, get=DRIVERS, post=DRIVERS):
    """Lists what a job wrote on this node, and sends pieces of it."""

    async def get(self, job_id: str) -> None:
        job = self.job(job_id)
        path = self.get_query_argument("path", "")
        most = min(self.number("most", MOST_FILES), MOST_PULLED)
        self.answer(await self.slowly(job_files, job.record, job.directory, path, most))

    async def post(self, job_id: str) -> None:
        wanted = self.body_as(WantedFiles)
        job = self.job(job_id)
        with self.audited("fetch", job=job_id, of=wanted.path):
            find = partial(wanted_files, job.record, job.directory, wanted)
            self.answer(await self.slowly(self.transfers.offer, job_id, wanted, find))


class SpaceHandler(_TransferBase, route=Route.SPACE, get=DRIVERS, post=DRIVERS):
    async def get(self) -> None:
        self.answer(await self.slowly(self._space().look))

    async def post(self) -> None:
        request = self.body_as(CleanRequest)
        active = self.node.jobs.active()
        jobs = [job.record.spec for job in active]
        projects = {spec.project for spec in jobs if spec.project is not None}
        ids = {job.job_id for job in active}
        in_use = InUse(projects, msgspec.json.encode(jobs).decode(), ids)
        with self.audited("clean", of=" ".join(request.names) or "unused"):
            self.answer(await self.slowly(self._space().clean, request, in_use))

    def _space(self) -> FileSpace:
        state = self.node.jobs.directory.parent
        return FileSpace(state, self.transfers, self.node.blobs)


def _place(source: PieceSource) -> Placement:
    return Placement(
        node_id=NodeId(source.node_id),
        node=source.node,
        node_rank=0,
        first_rank=Rank(0),
        nproc=1,
        gpus=(),
        interface="",
        address="",
        agent=source.addresses,
    )
