"""Gathering: evidence about a part's surroundings, in the same way whatever happened to it.

Only reads; what cannot be read is left out.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.attempt.directory import AttemptDirectory, oom_kills_since
from jupyter_mntrain.agent.failure.kernel_log import fault_lines
from jupyter_mntrain.agent.failure.tcp import PROC, counters, stuck_connections
from jupyter_mntrain.agent.machine.interfaces import read_interfaces
from jupyter_mntrain.model.environment import CHECKPOINTS
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.records.evidence import Disk, DiskUse, Evidence, NetworkState
from jupyter_mntrain.telemetry.interfaces import SYSFS

AT_LAUNCH_FILE = "network.json"
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - not a temporary file


def network_state(interface: str, *, sysfs: Path = SYSFS, proc: Path = PROC) -> NetworkState:
    """Read the state of an interface and the counters of this machine's TCP."""
    found = next((one for one in read_interfaces(sysfs) if one.name == interface), None)
    device = sysfs / "class" / "net" / interface
    tcp = counters(proc)
    return NetworkState(
        interface=interface,
        is_there=found is not None,
        is_up=found is not None and found.is_up,
        addresses=found.addresses if found else (),
        mtu=found.mtu if found else None,
        carrier_changes=_number(device / "carrier_changes"),
        dropped=sum(
            _number(device / "statistics" / name)
            for name in ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped")
        ),
        sent=tcp.get("OutSegs", 0),
        resent=tcp.get("RetransSegs", 0),
    )


def note_at_launch(directory: Path, interface: str) -> None:
    """Store the network's state as an attempt begins, for a later agent, too."""
    content = msgspec.json.encode(network_state(interface))
    write_atomically(directory / AT_LAUNCH_FILE, content)


def gather(attempt: AttemptDirectory, interface: str, agent: Sequence[str] = ()) -> Evidence:
    """Gather everything but link tries, which need the other participants.

    Args:
        interface: the ranks'.
        agent: errors of the agent itself.
    """
    network = network_state(interface)
    return Evidence(
        time_s=attempt.clock(),
        network=network,
        at_launch=_at_launch(attempt.path),
        disks=tuple(_disks(attempt.path)),
        oom_kills=oom_kills_since(attempt.identity),
        kernel=fault_lines(attempt.began_s),
        agent=tuple(agent),
        stuck=stuck_connections({one.partition("/")[0] for one in network.addresses}),
    )


def _at_launch(directory: Path) -> NetworkState | None:
    try:
        return msgspec.json.decode((directory / AT_LAUNCH_FILE).read_bytes(), type=NetworkState)
    except (OSError, msgspec.MsgspecError):
        return None


def _disks(directory: Path) -> Iterable[Disk]:
    uses: tuple[tuple[DiskUse, Path], ...] = (
        ("job", directory),
        ("checkpoints", directory.parent / CHECKPOINTS),
        ("temporary files", Path(tempfile.gettempdir())),
        ("shared memory", Path(SHARED_MEMORY)),
    )
    for use, path in uses:
        if use != "checkpoints" or path.exists():
            yield _disk(use, path)


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
