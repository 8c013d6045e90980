"""Gathering: collects evidence about the environment of a part, whatever happened to it.

Only reads; what cannot be read is left out.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from jupyter_mntrain.agent.attempt.directory import AttemptDirectory, oom_kills_since
from jupyter_mntrain.agent.failure.own_errors import OwnErrors, unexpected
from jupyter_mntrain.agent.failure.torchrun_log import last_nccl_line_s
from jupyter_mntrain.agent.machine.hardware import gpu_health
from jupyter_mntrain.agent.machine.interfaces import neighbors, read_interfaces
from jupyter_mntrain.agent.machine.kernel_log import fault_lines
from jupyter_mntrain.agent.machine.linux import SHARED_MEMORY
from jupyter_mntrain.agent.machine.open_files import open_files
from jupyter_mntrain.agent.machine.ports import PROC, counters, stuck_connections
from jupyter_mntrain.launch.checkpoints.places import checkpoints_of_run
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.ids import NodeId, Rank
from jupyter_mntrain.model.records.evidence import (
    Disk,
    DiskUse,
    Evidence,
    GpuHealth,
    NetworkState,
)
from jupyter_mntrain.model.records.job import JobRecord, Placement
from jupyter_mntrain.telemetry.gpus import GpuReader
from jupyter_mntrain.telemetry.interfaces import SYSFS

AT_LAUNCH_FILE = "at_launch.json"

WELL_EVERY_S = 10.0
"""Interval of noting the network's counters while a job makes progress."""
BEFORE_S = 5.0
"""Events within this time before the last progress may have caused the end."""

T = TypeVar("T")


class AtLaunch(Record, frozen=True):
    """State that was found when an attempt began, stored for later agents."""

    network: NetworkState
    gpus: tuple[GpuHealth, ...] = ()


class Gathering:
    """Collects evidence about one part. What cannot be read is left out, and that is noted.

    Args:
        record: gives that of the part.
        gpus: asks its GPUs.
        errors: the agent's own.
    """

    def __init__(
        self,
        attempt: AttemptDirectory,
        record: Callable[[], JobRecord],
        gpus: GpuReader,
        errors: OwnErrors,
    ) -> None:
        self._attempt = attempt
        self._record = record
        self._gpus = gpus
        self._errors = errors
        self._well: deque[tuple[float, NetworkState]] = deque(maxlen=3)
        self._progress_s = 0.0

    @property
    def _own(self) -> Placement:
        return next(one for one in self._placements if one.node_id == self._node_id)

    @property
    def _node_id(self) -> NodeId:
        return self._record().part.node_id

    @property
    def _placements(self) -> tuple[Placement, ...]:
        return self._record().attempt.placements

    @property
    def _checkpoints(self) -> Path:
        return checkpoints_of_run(self._attempt.path.parents[1], self._record().run)

    def _disks(self) -> Iterable[Disk]:
        uses: tuple[tuple[DiskUse, Path], ...] = (
            ("job", self._attempt.path),
            ("checkpoints", self._checkpoints),
            ("temporary files", Path(tempfile.gettempdir())),
            ("shared memory", Path(SHARED_MEMORY)),
        )
        for use, path in uses:
            if use != "checkpoints" or path.exists():
                yield _disk(use, path)

    def _cards(self, ours: Collection[int] = ()) -> tuple[GpuHealth, ...]:
        return gpu_health(self._gpus.nvml, self._own.gpus, ours)

    def note_at_launch(self) -> None:
        """Store the state in which the attempt begins."""
        found = AtLaunch(network=self.network(), gpus=self._cards())
        write_atomically(self._attempt.path / AT_LAUNCH_FILE, msgspec.json.encode(found))

    def note_progress(self, time_s: float) -> None:
        """Note that the job made progress, and from time to time the network's counters.

        Args:
            time_s: Unix time of the newest.
        """
        self._progress_s, now_s = time_s, time.time()
        is_due = not self._well or now_s - self._well[-1][0] >= WELL_EVERY_S
        if is_due and now_s - time_s < BEFORE_S:
            self._well.append((now_s, self.network()))

    def _before(self, at_launch: NetworkState) -> NetworkState:
        """Return the network's state at launch, with counters from before the last progress."""
        latest = self._progress_s - BEFORE_S
        well = next((one for at_s, one in reversed(self._well) if at_s <= latest), at_launch)
        return msgspec.structs.replace(
            at_launch,
            carrier_changes=well.carrier_changes,
            dropped=well.dropped,
            sent=well.sent,
            resent=well.resent,
        )

    def network(self, *, sysfs: Path = SYSFS, proc: Path = PROC) -> NetworkState:
        """Read the state of the interface and this machine's TCP counters."""
        name = self._own.interface
        peers = {one.address for one in self._placements if one.node_id != self._node_id}
        found = next((one for one in read_interfaces(sysfs) if one.name == name), None)
        device = sysfs / "class" / "net" / name
        tcp = counters("Tcp", proc)
        return NetworkState(
            interface=name,
            is_there=found is not None,
            is_up=found is not None and found.is_up,
            addresses=found.addresses if found else (),
            mtu=found.mtu if found else None,
            carrier_changes=_number(device / "carrier_changes"),
            dropped=sum(
                _number(device / "statistics" / counter)
                for counter in ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped")
            ),
            sent=tcp.get("OutSegs", 0),
            resent=tcp.get("RetransSegs", 0),
            mac=(found.mac if found else None) or "",
            neighbors=neighbors(name, peers, proc),
        )

    def evidence(self) -> Evidence:
        """Collect all evidence but link trials, which need the other participants."""
        attempt, own = self._attempt, self._own
        before = self._try("the launch", lambda: _at_launch(attempt.path), None)
        same = NetworkState(interface=own.interface, is_there=True, is_up=True)
        network = self._try("the network", self.network, before.network if before else same)
        addresses = {one.partition("/")[0] for one in network.addresses}
        ranks: dict[Rank, int] = {}
        ranks = self._try("the processes", lambda: dict(attempt.living_ranks()), ranks)
        found = Evidence(
            time_s=attempt.clock(),
            network=network,
            at_launch=self._before(before.network) if before else None,
            disks=self._try("the disks", lambda: tuple(self._disks()), ()),
            oom_kills=self._try("the OOM killer", lambda: oom_kills_since(attempt.identity), None),
            kernel=self._try("the kernel's log", lambda: fault_lines(attempt.began_s), ()),
            stuck=self._try("the connections", lambda: stuck_connections(addresses), ()),
            files=self._try("open files", lambda: tuple(open_files(ranks.items())), ()),
            gpus=self._try("the GPUs", lambda: self._cards(ranks.values()), ()),
            gpus_at_launch=before.gpus if before else (),
            nccl_s=self._try("NCCL's log", self._last_nccl_line_s, None),
        )
        return msgspec.structs.replace(found, agent=self._errors.since(attempt.began_s))

    def _last_nccl_line_s(self) -> float | None:
        """Return when NCCL last logged, by the attempt's clock. A log of warnings alone is always
        quiet.
        """
        if self._record().spec.environment.get("NCCL_DEBUG", "").upper() not in ("INFO", "TRACE"):
            return None
        at_s = last_nccl_line_s(self._attempt.path)
        return None if at_s is None else at_s + self._attempt.clock() - time.time()

    def _try(self, what: str, read: Callable[[], T], otherwise: T) -> T:
        """Read one kind of evidence. Only log errors: the failure itself must be reported."""
        try:
            return read()
        except Exception as error:  # noqa: BLE001 - logged, and so among the errors of the agent
            unexpected(error, f"{what} of a failed part could not be read", node="this node")
            return otherwise


def _at_launch(directory: Path) -> AtLaunch | None:
    try:
        return msgspec.json.decode((directory / AT_LAUNCH_FILE).read_bytes(), type=AtLaunch)
    except (OSError, msgspec.MsgspecError):
        return None


def _disk(use: DiskUse, path: Path) -> Disk:
    try:
        found = os.statvfs(path)
    except OSError:
        return Disk(use=use, path=str(path), free_bytes=None)
    return Disk(
        use=use,
        path=str(path),
        free_bytes=found.f_bavail * found.f_frsize,
        is_read_only=bool(found.f_flag & os.ST_RDONLY),
    )


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0
