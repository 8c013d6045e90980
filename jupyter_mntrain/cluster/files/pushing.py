"""Pushing: brings one large file or folder from this machine or a node to other nodes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jupyter_mntrain.cluster.files.schedule import SOURCE, PieceSchedule, Send
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.launch.files.file_calls import FileCalls
from jupyter_mntrain.launch.files.manifest import PieceFiles, read_manifest, transfer_of
from jupyter_mntrain.launch.files.names import LargeName
from jupyter_mntrain.launch.files.records import (
    Deposit,
    PieceManifest,
    PieceSource,
    TransferState,
)
from jupyter_mntrain.launch.gang_start import all_or_error
from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.launch.retry import PAUSES_S, persist
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.quantities import rough_size
from jupyter_mntrain.model.records.node import NodeInfo

ASK_INTERVAL_S = 0.3
"""Interval of asking how far a node is with reading what it has."""


class Pushed(Record, frozen=True):
    """The result of a push.

    Args:
        had: nodes that had it before.
        failed: why a node does not have it; what arrived there stays for the next time.
        sent_bytes: by the node that sent them; empty name = this machine.
    """

    name: str
    size_bytes: int
    nodes: tuple[str, ...]
    had: tuple[str, ...]
    failed: dict[str, Problem]
    sent_bytes: dict[str, int]
    took_s: float


class FileSeat(NamedTuple):
    """A node, and the client for its files."""

    info: NodeInfo
    calls: FileCalls

    @property
    def peer(self) -> PieceSource:
        info = self.info
        return PieceSource(node=info.name, node_id=info.node_id, addresses=info.addresses)


async def push_large(
    name: LargeName,
    path: Path | None,
    holder: FileSeat | None,
    receivers: Sequence[FileSeat],
    clock: Clock,
    progress: Progress,
) -> Pushed:
    """Bring a file or folder to nodes.

    Args:
        path: of it on this machine, unless a node has it.
        holder: the node that has it.

    Raises:
        RefusedError: a node has no room, or something else under that name.
        NodeError: a node does not answer.
    """
    begun_s = clock.time()
    if holder is not None:
        manifest = await manifest_of(holder.calls, name, progress)
        giver: PieceGiver = NodeGiver(holder.peer)
    else:
        assert path is not None  # noqa: S101 - the caller's
        manifest = await _own_manifest(path, progress)
        giver = LocalGiver(path, manifest)
    ids = tuple(one.info.node_id for one in receivers)
    seats = [*receivers, *([holder] if holder else [])]
    deposit = Deposit(root=name.root, name=name.name, manifest=manifest, nodes=ids)
    answers = await asyncio.gather(
        *(deposited(one.calls, deposit, progress) for one in seats), return_exceptions=True
    )
    states = dict(zip((one.info.name for one in seats), all_or_error(answers), strict=True))
    had = tuple(one.info.name for one in receivers if states[one.info.name].is_done)
    transfer = transfer_of(name.root, name.name, manifest)
    swarm = Swarm(
        transfer,
        manifest,
        giver,
        {one.info.name: one.calls for one in receivers},
        {one.info.name: one.peer for one in receivers},
        clock.time,
    )
    held = {one.info.name: states[one.info.name].pieces for one in receivers}
    count = len(receivers) - len(had)
    await swarm.run(held, f"pushing {name} to {count} node{'s' * (count != 1)}", progress)
    failed = dict(swarm.failed)
    going = [one for one in receivers if one.info.name not in (*failed, *had)]
    failed |= await _finished(going, transfer)
    return Pushed(
        name=str(name),
        size_bytes=manifest.size_bytes,
        nodes=tuple(one.info.name for one in receivers if one.info.name not in failed),
        had=had,
        failed={node: error.problem for node, error in failed.items()},
        sent_bytes=dict(swarm.sent_bytes),
        took_s=clock.time() - begun_s,
    )


async def _finished(seats: Sequence[FileSeat], transfer: str) -> dict[str, MntrainError]:
    """Have nodes put the received content in place. Returns the errors, by name of node."""
    failed: dict[str, MntrainError] = {}

    async def finish(seat: FileSeat) -> None:
        try:
            await persist(lambda: seat.calls.finish(transfer))
        except MntrainError as error:
            failed[seat.info.name] = error

    await asyncio.gather(*map(finish, seats))
    return failed


async def _own_manifest(path: Path, progress: Progress) -> PieceManifest:
    def tell(done_bytes: int) -> None:
        progress.report(f"reading {path.name}, MiB", done_bytes // MIB, None)

    return await asyncio.to_thread(read_manifest, path, on_bytes=tell)


async def manifest_of(calls: FileCalls, name: LargeName, progress: Progress) -> PieceManifest:
    """Return the manifest of what a node has under a name, which it reads in full."""
    while True:
        hashing = await persist(lambda: calls.hashing(str(name)))
        if hashing.manifest is not None:
            return hashing.manifest
        total = hashing.total_bytes // MIB
        what = f"{calls.node} reads {name}, MiB"
        progress.report(what, hashing.done_bytes // MIB, total)
        await asyncio.sleep(ASK_INTERVAL_S)


async def deposited(calls: FileCalls, deposit: Deposit, progress: Progress) -> TransferState:
    """Return the state of a transfer on a node, once the node knows which pieces it has."""
    while True:
        state = await persist(lambda: calls.deposit(deposit))
        if not state.is_checking:
            return state
        total = deposit.manifest.size_bytes // MIB
        what = f"{calls.node} reads what it has, MiB"
        progress.report(what, state.checked_bytes // MIB, total)
        await asyncio.sleep(ASK_INTERVAL_S)


MIB = 1 << 20


class PieceGiver(ABC):
    """The source of pieces that no receiver has yet."""

    @abstractmethod
    async def give(self, transfer: str, piece: int, receiver: FileCalls) -> None:
        """Send a piece to a node.

        Raises:
            MntrainError: it is not there.
        """


class LocalGiver(PieceGiver):
    """This machine's own file or folder."""

    def __init__(self, path: Path, manifest: PieceManifest) -> None:
        self._files = PieceFiles(path, manifest, None)

    async def give(self, transfer: str, piece: int, receiver: FileCalls) -> None:
        content = await asyncio.to_thread(self._files.read, piece)
        await persist(lambda: receiver.put_piece(transfer, piece, content))


class NodeGiver(PieceGiver):
    """A node that has the file or folder; receivers fetch from it."""

    def __init__(self, source: PieceSource) -> None:
        self._source = source

    async def give(self, transfer: str, piece: int, receiver: FileCalls) -> None:
        await _fetch(receiver, transfer, piece, self._source)


async def _fetch(receiver: FileCalls, transfer: str, piece: int, source: PieceSource) -> None:
    """Let a node fetch a piece, and retry while the source is too busy to answer."""
    for pause_s in PAUSES_S:
        try:
            return await persist(lambda: receiver.fetch_piece(transfer, piece, source))
        except RefusedError as error:
            if error.kind is not Kind.LINK_BLOCKED:
                raise
        await asyncio.sleep(pause_s)
    return await persist(lambda: receiver.fetch_piece(transfer, piece, source))


class Swarm:
    """One transfer to several nodes.

    Args:
        giver: what the source is.
        receivers: by name of node.
        peers: how receivers reach one another.
        clock: in seconds, for the speed that is shown.
    """

    def __init__(
        self,
        transfer: str,
        manifest: PieceManifest,
        giver: PieceGiver,
        receivers: Mapping[str, FileCalls],
        peers: Mapping[str, PieceSource],
        clock: Callable[[], float],
    ) -> None:
        self._transfer, self._manifest, self._giver = transfer, manifest, giver
        self._receivers, self._peers, self._clock = receivers, peers, clock
        self.failed: dict[str, MntrainError] = {}
        """Why a node did not get everything."""
        self.sent_bytes: Counter[str] = Counter()
        """Bytes by sender; empty = the source."""

    async def run(self, held: Mapping[str, set[int]], what: str, progress: Progress) -> None:
        """Send every receiver the pieces it lacks. A node that fails does not stop the others."""
        schedule = PieceSchedule(len(self._manifest.pieces), held)
        lacking = sum(len(self._manifest.pieces) - len(one) for one in held.values())
        total = lacking * self._manifest.piece_bytes // MIB
        begun_s = self._clock()
        under_way: dict[asyncio.Task[None], Send] = {}
        given_up: set[asyncio.Task[None]] = set()
        try:
            while True:
                while (send := schedule.next()) is not None:
                    under_way[asyncio.ensure_future(self._carry(send))] = send
                if not under_way:
                    return
                done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if (send := under_way.pop(task, None)) is not None:
                        lost = self._ended(schedule, send, task)
                        given_up |= _canceled(under_way, lost)
                sent = self.sent_bytes.total()
                speed = sent / max(1e-3, self._clock() - begun_s) / max(1, len(held))
                words = f"{what}, {rough_size(speed)}/s each, MiB"
                progress.report(words, min(total, sent // MIB), total)
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, *given_up, return_exceptions=True)

    async def _carry(self, send: Send) -> None:
        receiver = self._receivers[send.receiver]
        if send.sender == SOURCE:
            await self._giver.give(self._transfer, send.piece, receiver)
        else:
            await _fetch(receiver, self._transfer, send.piece, self._peers[send.sender])

    def _ended(self, schedule: PieceSchedule, send: Send, task: asyncio.Task[None]) -> str | None:
        """Record that a transfer ended. Returns the node that it excludes, if any."""
        error = task.exception()
        if error is None:
            schedule.arrived(send)
            self.sent_bytes[send.sender] += self._manifest.size_of(send.piece)
        elif not isinstance(error, MntrainError):
            raise error
        elif error.kind is Kind.LINK_BLOCKED and send.sender != SOURCE:
            schedule.blocked(send)
        else:
            self.failed.setdefault(send.receiver, error)
            schedule.drop(send.receiver)
            return send.receiver
        return None


def _canceled(
    under_way: dict[asyncio.Task[None], Send], lost: str | None
) -> set[asyncio.Task[None]]:
    """Cancel and remove the transfers to or from a lost node. Returns their tasks."""
    tasks = {one for one, send in under_way.items() if lost in (send.sender, send.receiver)}
    for task in tasks:
        task.cancel()
        del under_way[task]
    return tasks
