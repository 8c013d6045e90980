"""Assembly: builds a node from its state directory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from jupyter_mntrain.agent.access.callers import TrustKeeper
from jupyter_mntrain.agent.failure.own_errors import OwnErrors
from jupyter_mntrain.agent.jobs.book import JobBook
from jupyter_mntrain.agent.jobs.leases import LeaseBook
from jupyter_mntrain.agent.listeners import Listeners
from jupyter_mntrain.agent.machine.devices.device_book import DeviceBook
from jupyter_mntrain.agent.machine.devices.measuring import DeviceMeter
from jupyter_mntrain.agent.machine.files.blob_store import BlobStore
from jupyter_mntrain.agent.machine.files.roots import roots_told_to_jobs
from jupyter_mntrain.agent.machine.files.transfers import TransferBook
from jupyter_mntrain.agent.machine.inventory import InventoryReader
from jupyter_mntrain.agent.machine.links.link_book import LinkBook
from jupyter_mntrain.agent.machine.software.workplace import Workplaces
from jupyter_mntrain.agent.machine.usage import DIRECTORY as HISTORY
from jupyter_mntrain.agent.machine.usage import UsageBook
from jupyter_mntrain.agent.membership import state as membership
from jupyter_mntrain.agent.membership.availability import NodeAvailability
from jupyter_mntrain.agent.membership.state import Settings
from jupyter_mntrain.agent.membership.state_directory import JOBS, StateDirectory, load_node_id
from jupyter_mntrain.agent.node import LocalNode
from jupyter_mntrain.launch.project.tree import BLOBS
from jupyter_mntrain.model.errors import TrustError
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.records.node import Capacity
from jupyter_mntrain.trust.audit import FILE as AUDIT_FILE
from jupyter_mntrain.trust.audit import Audit
from jupyter_mntrain.trust.certificates import Subject
from jupyter_mntrain.trust.credentials import Credentials


def make_node(
    state: Path,
    settings: Settings,
    capacities: Mapping[str, Capacity],
    elsewhere: InventoryReader | None = None,
) -> LocalNode:
    """Build a node without starting anything.

    Args:
        state: its state directory.
        elsewhere: reads what a node has that this machine only speaks for.

    Raises:
        TrustError: it is no member, or its certificate is another node's.
    """
    listeners, leases = Listeners(), LeaseBook(clock=time.monotonic)
    credentials = Credentials(state)
    node_id = _own_id(state, credentials)
    links = LinkBook(state / "links.json", capacities)
    told, owner = settings, NodeAvailability(state)
    devices = DeviceBook(state / "devices.json")
    workplaces = Workplaces(told.python, lambda: inventory.gpus.driver, state)
    inventory = elsewhere or InventoryReader(told.python, links, devices, workplaces.usual)
    node = LocalNode(
        node_id=node_id,
        name=told.name,
        cluster=membership.joined(state).cluster,
        address_settings=told,
        python=told.python,
        trust=TrustKeeper(credentials, state / "trust_news.json"),
        inventory=inventory,
        workplaces=workplaces,
        links=links,
        devices=DeviceMeter(told.python, inventory.gpus, workplaces, devices),
        leases=leases,
        jobs=JobBook(
            directory=state / JOBS,
            node_id=node_id,
            node=told.name,
            python=told.python,
            leases=leases,
            listeners=listeners,
            gpus=inventory.gpus,
            offered_memory=lambda: owner.availability.memory_bytes,
            errors=OwnErrors.listening(),
        ),
        blobs=BlobStore(state / BLOBS),
        transfers=TransferBook(roots_told_to_jobs(state, told.roots)),
        listeners=listeners,
        audit=Audit(state / AUDIT_FILE),
        state=StateDirectory(state, node_id),
        owner=owner,
        usage=UsageBook(state / HISTORY),
    )
    node.jobs.on_release = node.tell_leases
    return node


def _own_id(state: Path, credentials: Credentials) -> NodeId:
    node_id = load_node_id(state)
    if credentials.subject != Subject(role="node", name=node_id):
        raise TrustError(
            f"the certificate in {state} is for another node id",
            fix="restore node_id, or run mntrain agent leave and join again",
        )
    return node_id
