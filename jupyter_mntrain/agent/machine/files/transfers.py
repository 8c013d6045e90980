"""Transfers: files that drivers send to this node, or let it pass on, in pieces.

A driver deposits a transfer on all of its nodes; only then may the nodes that it names fetch pieces
here. The driver says who fetches which piece from whom, so an agent that restarts has nothing to go
on with: what arrived is on its disk. Methods that read or write disks run in threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_mntrain.agent.access.limits import TooManyError
from jupyter_mntrain.agent.machine.files.roots import LargeRoots
from jupyter_mntrain.launch.files.arriving import Arriving, taken
from jupyter_mntrain.launch.files.manifest import (
    PieceFiles,
    check_manifest,
    list_files,
    read_manifest,
    transfer_of,
)
from jupyter_mntrain.launch.files.names import LargeName
from jupyter_mntrain.launch.files.records import (
    Deposit,
    Hashing,
    LargeFile,
    PieceManifest,
    TransferState,
    WantedFiles,
)
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind

MOST = 16
"""Transfers that an agent knows at once, and how long it knows one that nothing happens to. What
has arrived stays on its disk."""
# A node that reads what it has answers after this at the latest: for small things nobody asks
# twice.
ASK_S = 0.3
"""Reading that takes less is over when it is answered: nobody has to ask again."""
IDLE_S = 600.0


class ComingPiece:
    """Bytes of a piece that is arriving. One thread writes them, others read them.

    A node that waited for a whole piece before passing it on would be behind by one piece per node,
    and small pieces, which cost least of that, cost most of a core. Who gets bytes that are not
    checked yet checks them itself: a piece counts nowhere before its hash is right.

    Args:
        size: of the whole piece.
    """

    def __init__(self, size: int) -> None:
        self.content = bytearray(size)
        self.come = 0
        """How many have come, from the first on."""
        self.is_over = False
        """Whether nobody brings more of them."""

    def came(self, count: int) -> None:
        """Note how many bytes have arrived. The count never falls: a restarted transfer brings the
        same bytes.
        """
        self.come = max(self.come, count)

    def add(self, part: bytes) -> None:
        """Append bytes that have arrived. Excess is dropped, and the hash will reveal it."""
        end = min(self.come + len(part), len(self.content))
        memoryview(self.content)[self.come : end] = part[: end - self.come]
        self.come = end


class ComingPieces:
    """Pieces of one transfer that are arriving now. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pieces: dict[int, ComingPiece] = {}

    def begin(self, piece: int, size: int) -> ComingPiece:
        """Register a piece that begins to arrive. If it is already arriving, others read the first
        one's.
        """
        made = ComingPiece(size)
        with self._lock:
            self._pieces.setdefault(piece, made)
        return made

    def end(self, piece: int, coming: ComingPiece) -> None:
        """Stop offering a piece that was arriving."""
        with self._lock:
            if self._pieces.get(piece) is coming:
                del self._pieces[piece]

    def get(self, piece: int) -> ComingPiece | None:
        return self._pieces.get(piece)


@dataclass
class _HashedThing:
    """Files that are being hashed in a thread.

    Args:
        base: of the files.
        stamp: sizes and times of its files: the result is good as long as they are the same.
        is_told: somebody has got the result.
    """

    base: Path
    stamp: object
    total_bytes: int
    used_s: float
    done_bytes: int = 0
    is_told: bool = False
    result: Future[PieceManifest] = field(default_factory=Future)

    def tell(self, done_bytes: int) -> None:
        self.done_bytes = done_bytes


@dataclass
class _Transfer:
    deposit: Deposit
    used_s: float
    arriving: Arriving | None = None
    """``None`` for what is in its place."""
    whole: PieceFiles | None = None
    preparing: Future[None] | None = None
    checked_bytes: int = 0
    coming: ComingPieces = field(default_factory=ComingPieces)

    def tell(self, done_bytes: int) -> None:
        self.checked_bytes = done_bytes


class TransferBook:
    """Transfers since the agent started, by id. Safe from any thread."""

    def __init__(self, roots: LargeRoots) -> None:
        self.roots = roots
        self._lock = threading.Lock()
        self._transfers: dict[str, _Transfer] = {}
        self._readings: dict[Hashable, _HashedThing] = {}
        # One thread: two that hash read the same disk.
        self._thread = ThreadPoolExecutor(1, "mntrain hashing")

    def hashing(self, name: LargeName, piece_bytes: int = 0) -> Hashing:
        """Start hashing the files under a name, or return the progress.

        Raises:
            RefusedError, SpecError: it is not there, or cannot be read.
        """
        path, root = self.roots.existing(name), self.roots.base(name.root)
        key = path, piece_bytes
        return self._told(key, self._begin(key, path, root, list_files(path, root), piece_bytes))

    def offer(
        self,
        job_id: str,
        wanted: WantedFiles,
        find: Callable[[], tuple[Path, tuple[LargeFile, ...]]],
    ) -> Hashing:
        """Start hashing what a job wrote, or return the progress. After that, its pieces can be
        read under :func:`transfer_of` the job's id, no name and the manifest.

        Args:
            find: the folder, which no link leads out of, and its files; takes seconds, and is not
                called again while they are read: a job that still runs changes them all the time.
        """
        key = job_id, wanted
        reading = self._readings.get(key)
        if reading is None or reading.is_told:
            base, files = find()
            reading = self._begin(key, base, base, files, 0)
        hashing = self._told(key, reading)
        if (manifest := hashing.manifest) is not None:
            deposit = Deposit(root=job_id, name="", manifest=manifest)
            whole = PieceFiles(reading.base, manifest, reading.base)
            with self._lock:
                self._forget_idle()
                offered = _Transfer(deposit, time.monotonic(), whole=whole)
                self._transfers[transfer_of(job_id, "", manifest)] = offered
        return hashing

    def _begin(
        self, key: Hashable, path: Path, root: Path, files: tuple[LargeFile, ...], piece_bytes: int
    ) -> _HashedThing:
        stamp = tuple((one, _time_of(path, one)) for one in files)
        with self._lock:
            self._forget_idle()
            reading = self._readings.get(key)
            if reading is None or reading.stamp != stamp:
                size = sum(one.size_bytes for one in files)
                reading = _HashedThing(path, stamp, size, time.monotonic())
                self._readings[key] = reading
                tell = reading.tell
                reading.result = self._thread.submit(
                    lambda: read_manifest(
                        path, root, on_bytes=tell, files=files, piece_bytes=piece_bytes
                    )
                )
        return reading

    def _told(self, key: Hashable, reading: _HashedThing) -> Hashing:
        reading.used_s = time.monotonic()
        wait([reading.result], ASK_S)
        if not reading.result.done():
            return Hashing(reading.done_bytes, reading.total_bytes)
        reading.is_told = True
        if reading.result.exception() is not None:
            self._readings.pop(key, None)  # the next question begins again
        return Hashing(reading.total_bytes, reading.total_bytes, reading.result.result())

    def deposit(self, deposit: Deposit) -> TransferState:
        """Start or continue a transfer. Idempotent; repeat it while it is checking.

        Raises:
            RefusedError: there is no room, or something else is in its place.
            SpecError: the name or the list of files is not valid.
            TooManyError: too many are open.
        """
        check_manifest(deposit.manifest)
        name = LargeName(deposit.root, deposit.name)
        goal, base = self.roots.path(name), self.roots.base(name.root)
        key = transfer_of(deposit.root, deposit.name, deposit.manifest)
        if goal.exists():
            return self._in_place(key, goal, base, deposit)
        with self._lock:
            transfer = self._transfers.get(key)
            if transfer is None or transfer.arriving is None:
                self._refuse_crowd()
                arriving = Arriving(goal, base, key, deposit.manifest)
                transfer = _Transfer(deposit, time.monotonic(), arriving)
                self._transfers[key] = transfer
                about, tell = f"{name}\n", transfer.tell
                transfer.preparing = self._thread.submit(lambda: arriving.prepare(about, tell))
            transfer.deposit, transfer.used_s = deposit, time.monotonic()
        if transfer.preparing is not None:
            wait([transfer.preparing], ASK_S)
        return self._state(key, transfer)

    def read(self, key: str, piece: int) -> bytes:
        """Read a piece of a transfer.

        Raises:
            RefusedError: it is not here.
        """
        transfer = self._known(key)
        if not 0 <= piece < len(transfer.deposit.manifest.pieces):
            raise _missing()
        if transfer.whole is not None:
            return transfer.whole.read(piece)
        if transfer.arriving is None or piece not in transfer.arriving.held:
            raise _missing()
        return transfer.arriving.read(piece)

    def begin(self, key: str, piece: int) -> ComingPiece:
        """Register a piece that begins to arrive, for others to read meanwhile. Must be ended.

        Raises:
            RefusedError: there is no such piece.
        """
        transfer = self._known(key)
        manifest = transfer.deposit.manifest
        if not 0 <= piece < len(manifest.pieces):
            raise _missing()
        return transfer.coming.begin(piece, manifest.size_of(piece))

    def end(self, key: str, piece: int, coming: ComingPiece) -> None:
        """Note that a piece does not arrive any more: it is complete, or was interrupted."""
        coming.is_over = True
        transfer = self._transfers.get(key)
        if transfer is not None:
            transfer.coming.end(piece, coming)

    def coming(self, key: str, piece: int) -> ComingPiece | None:
        """Return a piece that is arriving right now, or ``None``."""
        return self._known(key).coming.get(piece)

    def may_come(self, key: str, piece: int) -> bool:
        """Return whether a piece is not here yet, and may begin to arrive."""
        arriving = self._known(key).arriving
        return arriving is not None and piece not in arriving.held

    def may_fetch(self, key: str, node_id: str) -> bool:
        """Return whether a driver has allowed a node to fetch the transfer."""
        transfer = self._transfers.get(key)
        return transfer is not None and node_id in transfer.deposit.nodes

    def write(self, key: str, piece: int, content: bytes | bytearray) -> None:
        """Store a piece that has arrived.

        Raises:
            RefusedError, SpecError: as for :meth:`Arriving.write`.
        """
        transfer = self._known(key)
        if transfer.arriving is not None:
            transfer.arriving.write(piece, content)

    def finish(self, key: str) -> TransferState:
        """Move a complete transfer into its place. A repeated call changes nothing."""
        transfer = self._known(key)
        with self._lock:
            if transfer.arriving is not None:
                goal = transfer.arriving.goal
                transfer.arriving.finish()
                base = self.roots.base(transfer.deposit.root)
                transfer.whole = PieceFiles(goal, transfer.deposit.manifest, base)
                transfer.arriving = None
        return self._state(key, transfer)

    def open_folders(self) -> set[Path]:
        """Return the folders of unfinished transfers, which must not be deleted."""
        with self._lock:
            self._forget_idle()
            held = [one.arriving for one in self._transfers.values()]
        return {one.folder for one in held if one is not None}

    def forget_idle(self) -> None:
        """Forget what nothing happens to: 200,000 files take 100 MB. Call at every heartbeat."""
        if self._lock.acquire(blocking=False):  # else the next heartbeat does
            try:
                self._forget_idle()
            finally:
                self._lock.release()

    def _in_place(self, key: str, goal: Path, base: Path, deposit: Deposit) -> TransferState:
        """Return the state of files that exist already, if they are the same."""
        manifest = deposit.manifest
        with self._lock:
            known = self._transfers.get(key)
            if known is None:
                self._refuse_crowd()
        if list_files(goal, base) != manifest.files:
            raise taken(goal)
        hashing = self.hashing(LargeName(deposit.root, deposit.name), manifest.piece_bytes)
        if hashing.manifest is None:
            return TransferState(key, is_checking=True, checked_bytes=hashing.done_bytes)
        if hashing.manifest.pieces != manifest.pieces:
            raise taken(goal)
        whole = PieceFiles(goal, manifest, base)
        with self._lock:
            transfer = _Transfer(deposit, time.monotonic(), whole=whole)
            self._transfers[key] = transfer
        return self._state(key, transfer)

    def _state(self, key: str, transfer: _Transfer) -> TransferState:
        count = len(transfer.deposit.manifest.pieces)
        if transfer.arriving is None:
            return TransferState(key, held=((0, count),), is_done=True)
        if transfer.preparing is not None and not transfer.preparing.done():
            return TransferState(key, is_checking=True, checked_bytes=transfer.checked_bytes)
        if transfer.preparing is not None:
            if transfer.preparing.exception() is not None:
                self._transfers.pop(key, None)  # the next deposit begins again
            transfer.preparing.result()
        return TransferState(key, held=_ranges(transfer.arriving.held))

    def _known(self, key: str) -> _Transfer:
        transfer = self._transfers.get(key)
        if transfer is None:
            raise RefusedError(
                "this transfer is not known here: the agent has restarted",
                kind=Kind.OUT_OF_TURN,
                fix="push it again: it goes on where it was",
            )
        transfer.used_s = time.monotonic()
        return transfer

    def _refuse_crowd(self) -> None:
        self._forget_idle()
        if len(self._transfers) >= MOST:
            raise TooManyError(
                f"{len(self._transfers)} transfers are open", fix="try again when they have ended"
            )

    def _forget_idle(self) -> None:
        now_s = time.monotonic()
        for key, one in list(self._transfers.items()):
            if now_s - one.used_s > IDLE_S:
                del self._transfers[key]
        for thing, reading in list(self._readings.items()):
            if reading.result.done() and now_s - reading.used_s > IDLE_S:
                del self._readings[thing]


def _time_of(path: Path, one: LargeFile) -> int:
    try:
        return (path / one.path if one.path else path).stat().st_mtime_ns
    except OSError:  # deleted since it was found: whoever fetches it is told
        return 0


def _ranges(pieces: set[int]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for piece in sorted(pieces):
        if found and found[-1][1] == piece:
            found[-1] = (found[-1][0], piece + 1)
        else:
            found.append((piece, piece + 1))
    return tuple(found)


def _missing() -> RefusedError:
    return RefusedError("this piece is not here", kind=Kind.NO_FILE, fix="push it again")
