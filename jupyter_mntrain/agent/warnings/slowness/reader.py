"""Reader: reads all counters that concern a part at once, and its ranks' states in between."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import psutil

from jupyter_mntrain.agent.warnings.slowness import kernel
from jupyter_mntrain.agent.warnings.slowness.connections import connections, sockets_of, to_others
from jupyter_mntrain.agent.warnings.slowness.counters import Counters, LinkCounters, RankCounters
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.job import Attempt, Placement
from jupyter_mntrain.telemetry.gpus import GpuReader


class CountersReader:
    """Reads the counters of one attempt on one node.

    Args:
        own: this node's placement.
        gpus: tells what lowers their clocks.
    """

    def __init__(self, attempt: Attempt, own: Placement, gpus: GpuReader) -> None:
        self._own = own
        self._gpus = gpus
        self._node_at = {
            one.address: one.node for one in attempt.placements if one.node_id != own.node_id
        }
        self._in_state: dict[Rank, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._last_look_s: float | None = None
        self._competitors = kernel.Competitors()

    @property
    def interface(self) -> str:
        return self._own.interface

    def look(self, pids: Mapping[Rank, int], now_s: float) -> None:
        """Note the states of the ranks. Call several times a second."""
        before_s, self._last_look_s = self._last_look_s, now_s
        passed_s = min(1.0, now_s - before_s) if before_s is not None else 0.0
        for rank, pid in pids.items():
            self._in_state[rank][kernel.state_of(pid)] += passed_s

    def read(self, pids: Mapping[Rank, int], now_s: float, *, is_odd: bool) -> Counters:
        """Read all counters.

        Args:
            now_s: Unix time, by the clock of the attempt.
            is_odd: also look for what may be the cause of a slowdown.
        """
        # Counters of a machine's interfaces are gone with the interface.
        moved = psutil.net_io_counters(pernic=True).get(self._own.interface)
        competitor, cores = "", 0.0
        if is_odd:
            ours = {one for pid in pids.values() for one in kernel.family(pid)}
            competitor, cores = self._competitors.look(now_s, ours)
        else:
            self._competitors.forget()
        return Counters(
            time_s=now_s,
            interface=self._own.interface,
            ranks=tuple(self._rank(rank, pid) for rank, pid in sorted(pids.items())),
            links=tuple(self._links(pids)),
            sent_bytes=moved.bytes_sent if moved else 0,
            received_bytes=moved.bytes_recv if moved else 0,
            machine_cpu_s=kernel.machine_cpu(),
            io_s=kernel.pressure_of("io"),
            cpu_s=kernel.pressure_of("cpu"),
            clock_hz=kernel.clock_hz(),
            competitor=competitor,
            competitor_cores=cores,
            slowed_gpus=self._slowed_gpus() if is_odd else "",
        )

    def _rank(self, rank: Rank, pid: int) -> RankCounters:
        fields = kernel.stat_of(pid)
        run_s, ready_s = kernel.scheduled(pid)
        states = self._in_state[rank]
        return RankCounters(
            rank=rank,
            run_s=run_s,
            ready_s=ready_s,
            cpu_s=kernel.cpu_of(fields),
            throttled_s=kernel.throttled(pid),
            disk_s=states["D"],
            stopped_s=states["T"] + states["t"],
            faults=kernel.faults_of(fields),
            read_bytes=kernel.read_bytes(pid),
        )

    def _links(self, pids: Mapping[Rank, int]) -> list[LinkCounters]:
        if not self._node_at:
            return []
        inodes = {one for pid in pids.values() for one in sockets_of(pid)}
        by_node: dict[str, list[LinkCounters]] = {}
        for address, found in to_others(connections(), inodes).items():
            if (node := self._node_at.get(address)) is None:
                continue
            by_node[node] = [
                LinkCounters(
                    peer=node,
                    sent_bytes=one.sent_bytes,
                    received_bytes=one.received_bytes,
                    busy_s=one.busy_s,
                    segments=one.segments,
                    resent=one.resent,
                    rtt_s=one.rtt_s,
                )
                for one in found
            ]
        return [_sum(node, found) for node, found in by_node.items()]

    def _slowed_gpus(self) -> str:
        if not self._own.gpus:
            return ""
        mine = [gpu for gpu in self._gpus.read() if gpu.index in self._own.gpus]
        found = [self._gpus.slowed_by(gpu.uuid) for gpu in mine]
        return next((one for one in found if one.startswith("clocks lowered")), "")


def _sum(node: str, found: list[LinkCounters]) -> LinkCounters:
    return LinkCounters(
        peer=node,
        sent_bytes=sum(one.sent_bytes for one in found),
        received_bytes=sum(one.received_bytes for one in found),
        busy_s=sum(one.busy_s for one in found),
        segments=sum(one.segments for one in found),
        resent=sum(one.resent for one in found),
        rtt_s=max((one.rtt_s for one in found), default=0.0),
    )
