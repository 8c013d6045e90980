"""Status proxy: answers for an allocation's agents that are gone, from their directories.

The routes, records, journals and logs are those of a running agent, and so is the code. Served on
this machine's loopback only, for its user's drivers, who show their certificates as ever. Nothing
is leased or started, and nothing of the job is changed but the end that its agent could not write.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from jupyter_mntrain import __version__
from jupyter_mntrain.agent.daemon.assembly import make_node
from jupyter_mntrain.agent.gang.peer_client import PeerClients
from jupyter_mntrain.agent.gang.watch import WatchTasks
from jupyter_mntrain.agent.http import agent_server, application
from jupyter_mntrain.agent.jobs.allocation_end import go_on_in_next_grant
from jupyter_mntrain.agent.machine.inventory import InventoryReader
from jupyter_mntrain.agent.membership import state as membership
from jupyter_mntrain.agent.membership.listening import bind, with_port
from jupyter_mntrain.agent.membership.state import LOOPBACK
from jupyter_mntrain.agent.membership.state_directory import locked_state
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.http.bounded_server import BoundedServer
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.lifecycle.events import Exited, StopAsked
from jupyter_mntrain.model.records.node import Heartbeat, Inventory, Versions
from jupyter_mntrain.model.sources.slots import (
    AllocationFile,
    SlotFile,
    SlotSpoken,
    read_allocation,
    read_slots,
)
from jupyter_mntrain.telemetry.gpus import GpuReader

log = logging.getLogger("mntrain.agent")

HEARTBEAT_S = 1.0
"""Interval at which what speaks for agents that are gone says that it lives, and looks whether one
of them is back. A driver misses it after a few seconds."""


async def read_until(directory: Path, told_to_end: Callable[[], asyncio.Event]) -> None:
    """Answer for slots whose agents are gone, until told to end or until nobody reads any more.

    Args:
        directory: of the allocation.
        told_to_end: makes what is set then.
    """
    told, spoken = told_to_end(), dict[str, _Voice]()
    if sys.stdin is not None and not sys.stdin.isatty():
        with suppress(PermissionError):  # a file or /dev/null, as of a service: no pipe that ends
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _look_for_end, told)
    while not told.is_set():
        allocation = read_allocation(directory)
        for slot in read_slots(directory):
            known = spoken.get(slot.slot)
            if known is not None and known.slot != slot:  # its agent is back
                await spoken.pop(slot.slot).close()
            elif known is None and _is_gone(slot, allocation):
                await _speak_for(directory / slot.slot, slot, allocation, spoken)
        for voice in spoken.values():
            voice.node.listeners.publish(Heartbeat(time_s=time.time(), interfaces=()))
        with suppress(TimeoutError):
            await asyncio.wait_for(told.wait(), HEARTBEAT_S)
    for voice in spoken.values():
        await voice.close()


def _look_for_end(told: asyncio.Event) -> None:
    """Detect at the closed pipe that the driver which started this process has ended."""
    if not os.read(sys.stdin.fileno(), 1):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        told.set()


def _is_gone(slot: SlotFile, allocation: AllocationFile) -> bool:
    """Return whether the agent, or the scheduler, says that the agent has ended. A silent one may
    be alive elsewhere, and locks do not work on every shared disk.
    """
    return slot.state == "gone" or allocation.why_gone(slot.slot) is not None


@dataclass
class _Voice:
    """The server that answers for one slot."""

    slot: SlotFile
    node: LocalNode
    server: BoundedServer

    async def close(self) -> None:
        self.server.stop()
        await self.node.listeners.close()
        await self.server.close_all_connections()


async def _speak_for(
    state: Path, slot: SlotFile, allocation: AllocationFile, spoken: dict[str, _Voice]
) -> None:
    try:
        with locked_state(state):
            node, sockets = await _node(state, slot, allocation)
            node.jobs.load()
            _end_what_could_not(node, slot, allocation)
    except MntrainError as error:
        log.warning("%s: its records cannot be read: %s", slot.slot, error)
        return
    credentials = node.trust.credentials
    watch_tasks = WatchTasks(node, PeerClients(credentials.client))
    server = agent_server(application(node, watch_tasks), credentials.server)
    server.add_sockets(sockets)
    spoken[slot.slot] = _Voice(slot, node, server)
    where = node.address_settings.addresses(())[0]
    told = SlotSpoken(slot=slot.slot, node_id=slot.node_id, address=where)
    print(json.dumps(msgspec.to_builtins(told)), flush=True)  # noqa: T201 - whoever started it reads it


async def _node(
    state: Path, slot: SlotFile, allocation: AllocationFile
) -> tuple[LocalNode, list[socket.socket]]:
    kept = membership.joined(state).settings
    settings = msgspec.structs.replace(kept, listen=(LOOPBACK,), advertised=(), port=0, roots=())
    sockets = await bind(settings)
    node = make_node(state, with_port(settings, sockets), {}, _NoInventory(slot))
    why = allocation.why_gone(slot.slot) or slot.problem
    node.problem = Problem(
        kind=why.kind if why is not None else Kind.NODES_TAKEN,
        cause=f"{why.cause if why is not None else 'its agent is gone'}: only its records are left",
        fix=why.fix if why is not None else "",
    )
    return node, sockets


def _end_what_could_not(node: LocalNode, slot: SlotFile, allocation: AllocationFile) -> None:
    """Record the end of parts whose agent was killed before it could do so."""
    why = allocation.why_gone(slot.slot) or slot.problem
    for job in node.jobs.active():
        now_s = job.now_s()
        cause = why.cause if why is not None else ""
        problem = None if allocation.is_canceled else why
        if allocation.comes_back:
            go_on_in_next_grant(job)
        else:
            job.give_up()
        job.change(StopAsked(reason=cause, problem=problem, time_s=now_s))
        job.change(Exited(time_s=now_s, exit_code=None))


class _NoInventory(InventoryReader):
    """Inventory of a machine that is gone and offers nothing any more."""

    def __init__(self, slot: SlotFile) -> None:
        self.gpus = GpuReader("")
        self._slot = slot

    @property
    def versions(self) -> Versions:
        return Versions(mntrain=__version__, python="", platform="")

    def read(self) -> Inventory:
        return Inventory(
            hostname=self._slot.hostname,
            cpu_model="",
            cpu_count=0,
            memory_total_bytes=0,
            memory_available_bytes=0,
            interfaces=(),
            gpus=(),
            versions=self.versions,
        )
