"""Announcing: tells others the addresses of this agent and the resources of its node."""

from __future__ import annotations

import asyncio
import logging

from jupyter_mntrain.agent.membership.slot_place import SlotPlace
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.model.api import PROTOCOL, ServiceRecord
from jupyter_mntrain.trust.joining.announcer import Announcer

log = logging.getLogger("mntrain.agent")

LOOK_EVERY_S = 5.0
"""Interval of checks for changed interfaces, GPUs and addresses."""


async def announce(node: LocalNode, announcer: Announcer, place: SlotPlace | None) -> None:
    """Announce the agent, and again whenever its interfaces change, until canceled.

    Args:
        place: of an agent in an allocation, where it tells the same.
    """
    previous: object = None
    record = ServiceRecord(
        node_id=node.node_id,
        name=node.name,
        cluster=node.cluster,
        protocol=PROTOCOL,
        authority=node.trust.credentials.authority_id,
        instance=node.instance,
    )
    while True:
        try:
            inventory = node.inventory.read()
            # Memory changes all the time, and is part of every heartbeat.
            uuids = tuple(gpu.uuid for gpu in inventory.gpus)
            current = (inventory.interfaces, uuids, inventory.devices)
            if previous is not None and current != previous:
                node.changed()
            previous = current
            addresses = node.address_settings.addresses(inventory.interfaces)
            sources = node.address_settings.announced_from(inventory.interfaces)
            if place is not None:
                place.tell("up", addresses)
            await announcer.announce(record, addresses, sources)
        except Exception:  # no network error may end the agent; it is logged
            log.exception("reading the interfaces failed")
        await asyncio.sleep(LOOK_EVERY_S)
