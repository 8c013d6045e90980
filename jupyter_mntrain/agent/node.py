"""This node as its handlers see it: identity, inventory, leases, jobs, in one place."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from jupyter_mntrain.agent.capacities import CapacityBook
from jupyter_mntrain.agent.hub import Hub
from jupyter_mntrain.agent.identity import boot_id
from jupyter_mntrain.agent.inventory import InventoryReader
from jupyter_mntrain.agent.jobs import JobBook
from jupyter_mntrain.agent.leases import Lease, LeaseBook
from jupyter_mntrain.model.api import PROTOCOL, LeaseRequest, NodeChanged
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.node import Interface, Inventory, NodeInfo


@dataclass
class Node:
    """Everything a request may ask of this agent.

    Args:
        bound: addresses the agent listens on, without port.
    """

    node_id: NodeId
    name: str
    cluster: str
    bound: tuple[str, ...]
    port: int
    python: str
    inventory: InventoryReader
    capacities: CapacityBook
    leases: LeaseBook
    jobs: JobBook
    hub: Hub
    started_s: float = field(default_factory=time.time)

    def info(self, inventory: Inventory | None = None) -> NodeInfo:
        self.leases.expire()
        offset_s = time.time() - self.leases.clock()
        return NodeInfo(
            node_id=self.node_id,
            name=self.name,
            cluster=self.cluster,
            protocol=PROTOCOL,
            addresses=tuple(f"{address}:{self.port}" for address in self.bound),
            inventory=inventory or self.inventory.read(),
            leases=tuple(lease.info(offset_s) for lease in self.leases.all()),
            started_s=self.started_s,
            boot_id=boot_id(),
            python=self.python,
            jobs_directory=str(self.jobs.directory),
        )

    def lease(self, request: LeaseRequest) -> Lease:
        """Promise what is asked, or refuse with the reason and what would do.

        Raises:
            RefusedError: a GPU that is missing or busy, an interface that is missing, down or
                without an IPv4 address, a port that is taken.
        """
        inventory = self.inventory.read()
        self._check_gpus(request, inventory)
        address = self._address_on(request.interface, inventory.interfaces)
        lease = self.leases.grant(request, address=address, node=self.name)
        self.changed()
        return lease

    def changed(self) -> None:
        """Tell listeners about this node anew; nothing is read when nobody listens."""
        if self.hub.has_listeners:
            self.hub.publish(NodeChanged(node=self.info()))

    def _check_gpus(self, request: LeaseRequest, inventory: Inventory) -> None:
        by_index = {gpu.index: gpu for gpu in inventory.gpus}
        for index in request.gpus:
            gpu = by_index.get(index)
            if gpu is None:
                raise RefusedError(
                    f"there is no GPU {index}, only {len(by_index)}",
                    fix="choose among the ones 'nodes' lists",
                    node=self.name,
                )
            own = self._pids_of(request)
            foreign = [pid for pid in gpu.process_pids if pid not in own]
            if foreign:
                pids = ", ".join(str(pid) for pid in foreign)
                raise RefusedError(
                    f"GPU {index} is used by pid {pids}",
                    fix="end it, or choose other GPUs",
                    node=self.name,
                )

    def _pids_of(self, request: LeaseRequest) -> set[int]:
        """Processes of the same job: a repeated lease must not run into its own ranks."""
        return {
            rank.pid
            for job in self.jobs.active()
            if job.record.job_id == request.job_id
            for rank in job.record.part.ranks
            if rank.pid is not None
        }

    def _address_on(self, name: str | None, interfaces: tuple[Interface, ...]) -> str:
        if name is None:
            return self.bound[0]
        found = next((i for i in interfaces if i.name == name), None)
        usable = [i.name for i in interfaces if i.is_up and i.addresses and i.kind != "virtual"]
        fix = f"choose one of {', '.join(usable)}"
        if found is None:
            raise RefusedError(f"there is no interface {name!r}", fix=fix, node=self.name)
        if not found.is_up:
            raise RefusedError(f"interface {name} is down", fix=fix, node=self.name)
        if not found.addresses:
            raise RefusedError(f"interface {name} has no IPv4 address", fix=fix, node=self.name)
        if found.kind == "loopback":
            # Several agents may share this machine, each on a loopback address of its own.
            own = [address for address in self.bound if address.startswith("127.")]
            return own[0] if own else "127.0.0.1"
        return found.addresses[0].partition("/")[0]
