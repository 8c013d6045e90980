"""Connecting: checks whether ranks have connected to each other, for scripts that do not report it.

Ranks that form a process group connect to the rendezvous store, and most to each other. The kernel
lists these connections, so the script need not cooperate.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import psutil

from jupyter_mntrain.agent.attempt.processes import descendants
from jupyter_mntrain.agent.failure.printed import LOG_TAIL_BYTES
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.lifecycle.events import RankJoined
from jupyter_mntrain.model.records.job import Attempt, Placement, RankStatus

INTERVAL_S = tunables.seconds("failure.connect_interval_s")
LEAST_LOOKS = tunables.count("failure.connect_looks")
PATIENCE_S = 300.0
"""Before its end, a rank without any connection is judged after this: it may load data first."""

_TORCHRUN = re.compile(
    r"(.*/)?torchrun|torch\.distributed\.(run|launch)|.*/torch/distributed/run\.py"
)

_REGISTERED = re.compile(rb"processes registered\. Starting with (\d+) processes")
"""What Lightning prints once all ranks have met."""

Address = tuple[str, int]


class Connection(NamedTuple):
    """A TCP connection, from a process to a peer."""

    own: Address
    peer: Address


def connections_of(pid: int) -> list[Connection] | None:
    """Return TCP connections of a process and its descendants; ``None`` if they cannot be read."""
    found: list[Connection] = []
    try:
        for each in (pid, *descendants(pid)):
            process = psutil.Process(each)
            # psutil 6 renamed it.
            read = getattr(process, "net_connections", None) or process.connections
            found += [
                Connection(_plain(one.laddr), _plain(one.raddr))
                for one in read(kind="tcp")
                if one.laddr and one.raddr
            ]
    except (psutil.Error, OSError):
        return None
    return found


def torchrun_below(pid: int) -> str:
    """Return the script or module that a torchrun below a process starts; empty if none."""
    for each in descendants(pid):
        try:
            words = psutil.Process(each).cmdline()
        except (psutil.Error, OSError):
            continue
        begin = next((at for at, word in enumerate(words) if _TORCHRUN.fullmatch(word)), None)
        if begin is None:
            continue
        rest = words[begin + 1 :]
        script = next((word for word in rest if word.endswith(".py")), "")
        return script or next((after for word, after in pairwise(rest) if word == "-m"), "")
    return ""


def registered_in(log: Path) -> int:
    """Return how many ranks have met, as one of them printed at its start; 0 if none did."""
    try:
        with log.open("rb") as file:
            found = _REGISTERED.findall(file.read(LOG_TAIL_BYTES))
    except OSError:
        return 0
    return max(map(int, found), default=0)


class ConnectionWatch:
    """Watches the ranks of one attempt on one node until each has connected to another.

    Args:
        own: this node's placement.
        log: with the output of its ranks.
        read: connections of a rank's process.
        below: what a torchrun below a rank's process starts.
    """

    def __init__(
        self,
        attempt: Attempt,
        own: Placement,
        log: Path,
        read: Callable[[int], list[Connection] | None] = connections_of,
        clock: Callable[[], float] = time.monotonic,
        below: Callable[[int], str] = torchrun_below,
    ) -> None:
        self._size = attempt.world_size
        self._store = (attempt.master_address, attempt.master_port)
        places = attempt.placements
        self._others = {place.address for place in places if place.node_id != own.node_id}
        self._log, self._read = log, read
        self._clock, self._below = clock, below
        self._inner: dict[Rank, str] = {}
        self._looks: Counter[Rank] = Counter()
        self._begun_s: float | None = None
        self._next_s = 0.0

    def look(self, ranks: Iterable[RankStatus]) -> Iterator[RankJoined]:
        """Check the connections again if it is time to. Call often."""
        now_s = self._clock()
        unmet = {one.rank: one.pid for one in ranks if one.pid and not one.group_size}
        if self._size < 2 or now_s < self._next_s or not unmet:
            return
        self._next_s = now_s + INTERVAL_S
        self._begun_s = now_s if self._begun_s is None else self._begun_s
        known = {rank: self._read(pid) for rank, pid in unmet.items()}
        is_late = now_s - self._begun_s >= PATIENCE_S and not self._has_registered()
        for rank, own in known.items():
            if own is None:
                continue
            self._looks[rank] += 1
            self._inner[rank] = self._below(unmet[rank]) or self._inner.get(rank, "")
            beside = {
                one.own for other, theirs in known.items() if other != rank for one in theirs or ()
            }
            if any(self._is_to_another(one, beside) for one in own):
                yield RankJoined(rank=rank, size=self._size)
            elif is_late:
                yield self._alone(rank)

    def end(self, ranks: Iterable[RankStatus]) -> Iterator[RankJoined]:
        """Yield ranks that have ended without a connection."""
        looked_at = [
            one.rank
            for one in ranks
            if one.group_size is None and self._looks[one.rank] >= LEAST_LOOKS
        ]
        if looked_at and not self._has_registered():
            yield from map(self._alone, looked_at)

    def _alone(self, rank: Rank) -> RankJoined:
        return RankJoined(rank=rank, size=0, own_torchrun=self._inner.get(rank, ""))

    def _has_registered(self) -> bool:
        return registered_in(self._log) >= self._size

    def _is_to_another(self, one: Connection, beside: set[Address]) -> bool:
        return one.peer == self._store or one.peer[0] in self._others or one.peer in beside


def _plain(address: Address) -> Address:
    """Strip the prefix of an IPv4 address in an IPv6 socket."""
    host, port = address
    return host.removeprefix("::ffff:"), port
