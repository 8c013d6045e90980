"""Transfer routes: large files come and go piece by piece; disks are read in threads."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.agent.http.base import AgentHandler, in_threads
from jupyter_mntrain.agent.machine.files.space import FileSpace, InUse
from jupyter_mntrain.agent.machine.files.transfers import TransferBook
from jupyter_mntrain.launch.files.file_calls import FileCalls
from jupyter_mntrain.launch.files.names import parse_large_name
from jupyter_mntrain.launch.files.records import CleanRequest, Deposit, PieceSource
from jupyter_mntrain.model.errors import NodeError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.job import Placement


class _TransferBase(AgentHandler):
    @property
    def transfers(self) -> TransferBook:
        return self.node.transfers


class ManifestHandler(_TransferBase):
    async def post(self) -> None:
        name = parse_large_name(self.body_as(str))
        self.answer(await self.slowly(self.transfers.hashing, name))


class TransfersHandler(_TransferBase):
    async def post(self) -> None:
        deposit = self.body_as(Deposit)
        with self.audited("transfer", of=f"{deposit.root}:{deposit.name}"):
            self.answer(await self.slowly(self.transfers.deposit, deposit))


class TransferHandler(_TransferBase):
    async def put(self, transfer: str) -> None:
        self.answer(await self.slowly(self.transfers.finish, transfer))


class PieceHandler(_TransferBase):
    async def get(self, transfer: str, piece: str) -> None:
        if self.caller.role == "node" and not self.transfers.may_fetch(transfer, self.caller.name):
            raise self.not_allowed()
        content = await in_threads(
            self.node.threads.pieces, self.transfers.read, transfer, int(piece)
        )
        self.set_header("Content-Type", "application/octet-stream")
        self.write(content)

    async def put(self, transfer: str, piece: str) -> None:
        content = self.request.body
        await in_threads(
            self.node.threads.pieces, self.transfers.write, transfer, int(piece), content
        )
        self.answer({})

    async def post(self, transfer: str, piece: str) -> None:
        """Fetch a piece from another node."""
        source = self.body_as(PieceSource)
        peer = FileCalls(self.watch_tasks.peers(_place(source)))
        try:
            content = await peer.piece(transfer, int(piece))
        except NodeError as error:
            raise RefusedError(
                f"cannot fetch from {source.node}: {error.cause}",
                kind=Kind.LINK_BLOCKED,
                fix="check the network between the two nodes",
            ) from error
        await in_threads(
            self.node.threads.pieces, self.transfers.write, transfer, int(piece), content
        )
        self.answer({})


class SpaceHandler(_TransferBase):
    async def get(self) -> None:
        self.answer(await self.slowly(self._space().look))

    async def post(self) -> None:
        request = self.body_as(CleanRequest)
        jobs = [job.record.spec for job in self.node.jobs.active()]
        projects = {spec.project for spec in jobs if spec.project is not None}
        in_use = InUse(projects, msgspec.json.encode(jobs).decode())
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
