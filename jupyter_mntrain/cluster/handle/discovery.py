"""Cluster discovery: finds nodes by mDNS, and adds or forgets addresses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from jupyter_mntrain.cluster.agents.address import parse_address
from jupyter_mntrain.cluster.discovery.slot_discovery import (
    SlotAddresses,
    SlotDiscovery,
    SlotReaching,
)
from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.cluster.view.peer_book import PeerBook
from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.records.node import NodeInfo, NodeView

ADD_S = 3.0
"""Timeout for the first message of a node that was added by its address."""
READER_S = 20.0
"""Longest wait for what reads the records of its agents that are gone."""
ADMITTED_RETRY_S = 0.1
"""Pause between questions to a machine that was just admitted: a busy one starts its agent
slowly."""


class ClusterDiscovery:
    """Finds the nodes of one cluster. Any thread may call.

    Args:
        peers: where typed addresses are stored.
    """

    def __init__(self, session: DriverSession, peers: PeerBook) -> None:
        self._session = session
        self._peers = peers
        self._watched: dict[Path | str, SlotDiscovery | SlotReaching] = {}
        """What follows each allocation, by directory or id."""
        session.on_close(self.close)

    @property
    def problem(self) -> Problem | None:
        """The reason why this machine cannot browse for nodes, if any. Typed addresses
        still work.
        """
        return self._session.live.discovery_problem

    def check(self) -> Problem | None:
        """Test whether this machine receives multicast; takes up to two seconds."""
        self._session.loop.run(self._session.live.check_discovery())
        return self.problem

    @property
    def strangers(self) -> tuple[str, ...]:
        """Names of announced nodes of other clusters, each with its cluster's name, or the note
        that it is another cluster of the same name.
        """
        live = self._session.live
        found = live.desk.strangers.values()
        other = f"another cluster called {live.cluster}"
        named = ((one.name, other if one.cluster == live.cluster else one.cluster) for one in found)
        return tuple(sorted({f"{name} of {cluster}" for name, cluster in named}))

    def add(self, address: str) -> NodeView:
        """Contact an agent at ``host[:port]`` and, if it is a node of this cluster, remember it.

        A machine that waits there with a token of this cluster is admitted first.

        Raises:
            TrustError: it waits with another driver's token, or this user is not a driver yet.
            NodeError: refused, timed out, not an agent, of another cluster, and so on; see its
                kind and fix.
            SpecError: the address is malformed.
        """
        where = parse_address(address)
        live = self._session.live

        async def ask() -> NodeInfo:
            try:
                info = await live.desk.client(where).node_info()
            except NodeError as error:
                if error.kind is not Kind.NOT_JOINED:
                    raise
                info = await admitted()
            live.watch(where, "typed", info)
            return info

        async def admitted() -> NodeInfo:
            subject = await live.desk.admit(where)
            if subject.role != "node":
                said = f"{subject.name} joined as a driver; there is no node at this address"
                raise NodeError(said, node=where)
            client = live.desk.client(where, NodeId(subject.name))
            deadline = time.monotonic() + ADD_S
            while True:
                try:
                    return await client.node_info()
                except NodeError:
                    # After joining, a busy machine may need a moment to start its agent.
                    if time.monotonic() > deadline:
                        raise
                await asyncio.sleep(ADMITTED_RETRY_S)

        info = self._session.loop.run(ask())
        self._peers.remember(self._session.live.cluster, where)

        def found() -> NodeView | None:
            return next(
                (view for view in self._session.live.nodes if _is_up_as(view, info, where)), None
            )

        self._session.live.changes.wait_until(found, ADD_S)
        return found() or NodeView(
            address=where, found_by="typed", liveness="connecting", info=info
        )

    def follow(self, directory: Path) -> None:
        """Follow an allocation's agents by the files in its directory, and admit those that wait
        with an invitation of this driver. Idempotent.

        The records of agents that have ended are read from the directory; returns once they can be.
        """
        live = self._session.live
        watch = SlotDiscovery(directory, live.take_back)
        self._begin(directory, watch, lambda: watch.start(live.take_slot))

    def reach(self, slots: SlotAddresses) -> None:
        """Follow the agents of an allocation without files, at the addresses that its scheduler
        gives, and admit those that wait with an invitation of this driver. Idempotent.

        Returns once the scheduler has been asked.
        """
        watch = SlotReaching(slots)
        self._begin(slots.id, watch, lambda: watch.start(self._session.live.reach))

    def _begin(
        self,
        allocation: Path | str,
        watch: SlotDiscovery | SlotReaching,
        start: Callable[[], Awaitable[None]],
    ) -> None:
        """Start to follow an allocation, unless it is followed; wait until it was
        looked at once.
        """

        async def begin() -> bool:
            if allocation in self._watched:
                return False
            self._watched[allocation] = watch
            await start()
            return True

        is_new = self._session.loop.run(begin())
        changes = self._session.live.changes
        changes.wait_until(lambda: self._watched[allocation].has_looked, READER_S)
        if is_new:
            self._session.grace.begin_again()

    def take_back(self, gone: Mapping[str, Problem]) -> None:
        """Note which nodes a scheduler took back from an allocation without files, and why."""

        async def take_back() -> None:
            self._session.live.take_back(gone)

        self._session.loop.run(take_back())

    async def close(self) -> None:
        """Stop following. Runs in the driver's loop."""
        for watch in self._watched.values():
            await watch.close()

    def forget(self, address: str) -> None:
        """Stop watching a node, by address or name, and forget it. mDNS may find it again.

        Raises:
            NodeError: no such node.
        """
        named = [view.address for view in self._session.live.nodes if view.name == address]
        addresses = named or [parse_address(address)]

        async def forget() -> bool:
            return sum(map(self._session.live.forget, addresses)) > 0

        was_watched = self._session.loop.run(forget())
        was_remembered = (
            sum(self._peers.forget(self._session.live.cluster, one) for one in addresses) > 0
        )
        was_remembered |= self._peers.unsee(self._session.live.cluster, {address, *addresses})
        if not was_watched and not was_remembered:
            raise NodeError(f"no node at {addresses[0]} is known", fix="see: mntrain nodes")


def _is_up_as(view: NodeView, info: NodeInfo, address: str) -> bool:
    is_it = view.info is not None and view.info.node_id == info.node_id
    return is_it and view.liveness == "up" and (not view.is_conflict or view.address == address)
