"""Swarm: carries out a schedule, with one request per piece, until all nodes have everything."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from jupyter_mntrain.cluster.files.schedule import SOURCE, PieceSchedule, Send
from jupyter_mntrain.launch.files.file_calls import FileCalls
from jupyter_mntrain.launch.files.manifest import PieceFiles
from jupyter_mntrain.launch.files.records import PieceManifest, PieceSource
from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.launch.retry import PAUSES_S, persist
from jupyter_mntrain.model.errors import MntrainError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.lifecycle.clock import Clock
from jupyter_mntrain.model.quantities import rough_size

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
        clock: Clock,
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
