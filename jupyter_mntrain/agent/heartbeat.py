"""Heartbeat: reads network, GPU and load counters every second, for listeners, jobs and history."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil

from jupyter_mntrain.agent.machine.devices.limits import usable_memory
from jupyter_mntrain.agent.machine.interfaces import read_interfaces
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.metrics import LinkSample
from jupyter_mntrain.model.records.node import Heartbeat, InterfaceRate, LinkMeasurement
from jupyter_mntrain.plan.agent_hosts import listed_interfaces

log = logging.getLogger("mntrain.agent")

INTERFACES_S = 10.0
"""Interval of looking which interfaces are up and have an address."""


class HeartbeatSampler:
    """Computes differences of counters. Call :meth:`sample` at every heartbeat."""

    def __init__(self, node: LocalNode) -> None:
        self._node = node
        self._told: dict[tuple[JobId, int], tuple[LinkMeasurement, ...]] = {}
        """The link measurements that each attempt's journal holds already."""
        self._known: set[str] = set()
        self._looked_s = 0.0
        self._listed_names: frozenset[str] = frozenset()
        self._previous = psutil.net_io_counters(pernic=True)
        self._previous_s = time.monotonic()
        psutil.cpu_percent()

    def sample(self) -> None:
        """Read all counters, even without a job: its first sample must not count older traffic."""
        counters, now = psutil.net_io_counters(pernic=True), time.monotonic()
        interval_s, self._previous_s = now - self._previous_s, now
        previous, self._previous = self._previous, counters
        # Counters of an interface that was re-created start at zero: there is no difference.
        moved = {
            name: (
                max(0, new.bytes_sent - previous[name].bytes_sent),
                max(0, new.bytes_recv - previous[name].bytes_recv),
            )
            for name, new in counters.items()
            if name in previous
        }
        self._sample_links(moved, interval_s)
        heartbeat = self._heartbeat(moved, counters, interval_s)
        if not self._node.listeners.is_empty:
            self._node.listeners.publish(heartbeat)
        self._node.usage.take(heartbeat, self._own_traffic(), self._listed(now, set(counters)))

    def _sample_links(self, moved: Mapping[str, tuple[int, int]], interval_s: float) -> None:
        told = {}
        for job in self._node.jobs.active():
            name = job.placement.interface
            if name not in moved:
                continue
            sent, received = moved[name]
            attempt = job.record.job_id, job.record.attempt.number
            links = told[attempt] = self._node.links.measured(name)
            job.add_samples(
                LinkSample(
                    time_s=job.now_s(),
                    interface=name,
                    interval_s=interval_s,
                    sent_bytes=sent,
                    received_bytes=received,
                    given=self._node.links.given(name),
                    links=None if self._told.get(attempt) == links else links,
                )
            )
        self._told = told

    def _listed(self, now: float, names: set[str]) -> frozenset[str]:
        """Return the interfaces shown in lists of nodes. They are looked up again if one is new,
        and now and then.
        """
        if names != self._known or now - self._looked_s >= INTERFACES_S:
            self._known, self._looked_s = names, now
            found = self._node.links.attach(read_interfaces())
            addresses = self._node.address_settings.addresses(found)
            self._listed_names = frozenset(one.name for one in listed_interfaces(found, addresses))
        return self._listed_names

    def _own_traffic(self) -> dict[str, tuple[float, float]]:
        """Return what the ranks of all jobs send and receive, by interface, where known."""
        found: dict[str, tuple[float, float]] = {}
        for job in self._node.jobs.active():
            pressure = job.record.pressure
            if pressure is not None and pressure.own_traffic is not None:
                sent, received = found.get(pressure.interface, (0.0, 0.0))
                more_sent, more_received = pressure.own_traffic
                found[pressure.interface] = (sent + more_sent, received + more_received)
        return found

    def _heartbeat(
        self,
        moved: Mapping[str, tuple[int, int]],
        counters: Mapping[str, Any],
        interval_s: float,
    ) -> Heartbeat:
        return Heartbeat(
            time_s=time.time(),
            interfaces=tuple(
                InterfaceRate(
                    name=name,
                    sent_bytes_per_s=sent / interval_s,
                    received_bytes_per_s=received / interval_s,
                    sent_bytes=counters[name].bytes_sent,
                    received_bytes=counters[name].bytes_recv,
                )
                for name, (sent, received) in moved.items()
            ),
            gpus=self._node.inventory.gpus.read(),
            cpu_share=psutil.cpu_percent() / 100,
            memory_available_bytes=usable_memory().available_bytes,
        )


async def every(interval_s: float, work: Callable[[], object]) -> None:
    """Call ``work`` at intervals. If it returns ``True``, call it again as soon as other tasks had
    a turn.
    """
    trouble, is_behind = "", False
    while True:
        await asyncio.sleep(0 if is_behind else interval_s)
        try:
            is_behind = False  # also after an error
            is_behind = work() is True
        except Exception as error:  # one failed reading must not end the agent; the error is logged
            if repr(error) != trouble:  # once, not ten times a second
                log.exception("a periodic task failed")
            trouble = repr(error)
