"""Reaching: lets a driver find the agents of an allocation that shares no files with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jupyter_mntrain.model.sources.request import NodesRequest
from jupyter_mntrain.model.sources.source import NodeSource

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster


def reach_slots(
    cluster: Cluster, source: NodeSource, allocation_id: str, request: NodesRequest
) -> None:
    """Keep looking for the allocation's agents at the addresses that the scheduler gives."""
    # Loaded with what drivers need.
    from jupyter_mntrain.cluster.discovery.slot_discovery import SlotAddresses

    class OfSource(SlotAddresses):
        async def ask(self) -> Mapping[str, str]:
            return await source.addresses(allocation_id, request)

        async def close(self) -> None:
            await source.close()

    cluster.discovery.reach(OfSource(allocation_id))
