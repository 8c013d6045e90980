"""Local node: its identity, inventory, leases and jobs, as seen by HTTP handlers."""

from __future__ import annotations

import logging
import secrets
import time
from dataclasses import dataclass, field

import msgspec

from jupyter_mntrain.agent.access.callers import TrustKeeper
from jupyter_mntrain.agent.access.limits import (
    Quota,
    Threads,
    measure_quota,
    sink_quota,
    stream_quota,
)
from jupyter_mntrain.agent.jobs.book import JobBook
from jupyter_mntrain.agent.jobs.leases import Lease, LeaseBook
from jupyter_mntrain.agent.listeners import Listeners
from jupyter_mntrain.agent.machine.devices.measuring import DeviceMeter
from jupyter_mntrain.agent.machine.files.blob_store import BlobStore
from jupyter_mntrain.agent.machine.files.transfers import TransferBook
from jupyter_mntrain.agent.machine.inventory import InventoryReader
from jupyter_mntrain.agent.machine.links.link_book import LinkBook
from jupyter_mntrain.agent.machine.links.paths import PathListeners
from jupyter_mntrain.agent.machine.links.turn import MeasureTurn
from jupyter_mntrain.agent.machine.linux import boot_id
from jupyter_mntrain.agent.machine.software.workplace import Workplaces
from jupyter_mntrain.agent.machine.usage import UsageBook
from jupyter_mntrain.agent.membership.availability import OWNER, NodeAvailability
from jupyter_mntrain.agent.membership.listening import NEAR_PORTS
from jupyter_mntrain.agent.membership.state import LOOPBACK, AddressSettings, real_addresses
from jupyter_mntrain.agent.membership.state_directory import StateDirectory
from jupyter_mntrain.model.api import (
    LAST_PORT,
    PROTOCOL,
    LeaseGrant,
    LeaseRequest,
    NodeChanged,
    PortStatus,
    TrustNews,
)
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId, is_job_id
from jupyter_mntrain.model.lifecycle.events import StateLost
from jupyter_mntrain.model.lifecycle.queueing import kept_for, order
from jupyter_mntrain.model.records.node import (
    Availability,
    Interface,
    Inventory,
    LeaseInfo,
    NodeInfo,
)
from jupyter_mntrain.plan.agent_hosts import is_loopback
from jupyter_mntrain.plan.placement import kept_address
from jupyter_mntrain.trust.audit import Audit

log = logging.getLogger("mntrain.agent")


@dataclass
class LocalNode:
    """This agent's state and the operations that requests may perform.

    Args:
        instance: identifies this start of the agent.
    """

    node_id: NodeId
    name: str
    cluster: str
    address_settings: AddressSettings
    python: str
    trust: TrustKeeper
    inventory: InventoryReader
    workplaces: Workplaces
    links: LinkBook
    devices: DeviceMeter
    leases: LeaseBook
    jobs: JobBook
    blobs: BlobStore
    transfers: TransferBook
    listeners: Listeners
    audit: Audit
    state: StateDirectory
    owner: NodeAvailability
    usage: UsageBook
    problem: Problem | None = None
    """Why it cannot store jobs now."""
    streams: Quota = field(default_factory=stream_quota)
    sinks: Quota = field(default_factory=sink_quota)
    measurements: Quota = field(default_factory=measure_quota)
    threads: Threads = field(default_factory=Threads)
    turn: MeasureTurn = field(default_factory=MeasureTurn)
    path_listeners: PathListeners = field(default_factory=PathListeners)
    instance: str = field(default_factory=lambda: secrets.token_hex(8))
    started_s: float = field(default_factory=time.time)
    _told: tuple[tuple[object, ...], ...] = ()
    """The leases last sent to listeners."""
    _owner_told: tuple[Availability, Problem | None] = (Availability(), None)
    """What the owner offered when listeners were last notified."""

    def info(self, inventory: Inventory | None = None) -> NodeInfo:
        inventory = inventory or self.inventory.read()
        credentials = self.trust.credentials
        return NodeInfo(
            node_id=self.node_id,
            name=self.name,
            cluster=self.cluster,
            protocol=PROTOCOL,
            addresses=self.address_settings.addresses(inventory.interfaces),
            inventory=inventory,
            leases=self._lease_infos(),
            started_s=self.started_s,
            boot_id=boot_id(),
            revocations=credentials.revocations,
            certificate_expires_s=credentials.certificate.not_valid_after_utc.timestamp(),
            instance=self.instance,
            python=self.python,
            jobs_directory=str(self.jobs.directory),
            problem=self.problem or self.owner.refusal,
            availability=self.owner.availability,
        )

    def check_state(self) -> None:
        """Detect that the state directory is lost or back. Call at every heartbeat."""
        problem = self.state.problem()
        if problem == self.problem:
            return
        self.problem = problem
        if problem is not None:
            log.error("%s", problem)
        else:
            log.info("the state directory can be used again")
        for job in self.jobs.active():
            job.change(StateLost(problem=problem))
        self.changed()

    def check_owner(self) -> None:
        """Apply changes in what the owner offers. Call at every heartbeat."""
        self.owner.look()
        before, now = self._owner_told, (self.owner.availability, self.owner.refusal)
        if now == before:
            return
        self._owner_told = now
        if before[0].drain is not None and now[0].drain is None and before[0].drain.until_s:
            self.audit.note("resume", who=OWNER, after="--until")
        for lease in list(self.leases.all()):
            # What has not started is not running: it must not start any more.
            if now[1] is not None or not all(map(now[0].offers_gpu, lease.gpus)):
                self.leases.release_unstarted(lease.job_id, lease.attempt)
        self.changed()

    def has_job(self) -> bool:
        """Whether anything is leased, because a job runs or is about to start."""
        return bool(self.leases.all())

    def lease(self, request: LeaseRequest) -> LeaseGrant:
        """Grant a lease, or refuse with the cause and a fix.

        Raises:
            RefusedError: a GPU is missing, leased or busy; the interface is missing, down or
                without an IPv4 address; the port is in use; jobs cannot be stored; or the owner
                does not offer it.
        """
        if self.problem is not None:
            raise RefusedError.of(msgspec.structs.replace(self.problem, node=self.name))
        inventory = self.inventory.read()
        if self.leases.find(request.job_id, request.attempt) is None:
            self._check_request(request)
            self._refuse_unlent(request)
            # A lease says more than the process that happens to use it.
            self.leases.refuse_conflicts(request, self.name)
            self._refuse_what_is_kept(request)
            self._check_gpus(request, inventory)
        address = self._address_on(request.interface, inventory.interfaces, before=request.address)
        lease = self.leases.grant(request, address=address, node=self.name)
        self.tell_leases()
        return self._granted(lease, request, inventory)

    async def lease_for(self, request: LeaseRequest) -> LeaseGrant:
        """Like :meth:`lease`, but first checks that the node has what the job runs in.

        Raises:
            RefusedError: also if it lacks that.
        """
        grant = self.lease(request)
        try:
            versions = await self.workplaces.checked(self.name, request.workplace, grant.versions)
        except BaseException:
            self.leases.release_unstarted(request.job_id, request.attempt)
            self.tell_leases()
            raise
        return msgspec.structs.replace(grant, versions=versions)

    def _refuse_unlent(self, request: LeaseRequest) -> None:
        """Raise RefusedError if the owner does not currently offer what is requested."""
        self.owner.look()
        if (refusal := self.owner.refusal) is not None:
            raise RefusedError.of(msgspec.structs.replace(refusal, node=self.name))
        self.owner.refuse_gpus(request.gpus, self.name)

    def _refuse_what_is_kept(self, request: LeaseRequest) -> None:
        """Raise RefusedError if a job that is queued here goes before the requested one."""
        now_s = time.time()
        queued = self.jobs.queued()
        asks = next((one for one in queued if one.job_id == request.job_id), None)
        # A job that is not queued here was submitted just now.
        mine = order(asks) if asks else (0, now_s, request.job_id)
        first = kept_for(request.job_id, request.gpus, queued, mine=mine, now_s=now_s)
        if first is not None:
            raise RefusedError(
                f"job {first.job_id} waits for the same GPUs and is ahead in the queue",
                kind=Kind.GPU_TAKEN,
                fix=f"wait for it, stop it with 'stop {first.job_id}', or choose other GPUs",
                node=self.name,
            )

    def port_status(self, port: int, interface: str | None) -> PortStatus:
        """Return whether a head's port can be leased on an interface's address. Leases nothing.

        Raises:
            RefusedError: no such port or interface exists.
        """
        address = self._address_on(interface, self.inventory.read().interfaces)
        problem = self.leases.port_refusal(address, port)
        free = None
        if problem is not None:
            near = range(port + 1, min(port + NEAR_PORTS, LAST_PORT) + 1)
            free = next((n for n in near if not self.leases.port_refusal(address, n)), None)
        return PortStatus(port=port, address=address, problem=problem, next_free=free)

    def take_news(self, news: TrustNews, *, who: str, where: str) -> None:
        """Store revocations and certificates, and notify listeners of new ones.

        Args:
            who, where: the caller, for the audit log.

        Raises:
            TrustError: they are not signed by the cluster's authority.
        """
        changes = self.trust.take(news)
        for what, member in changes:
            self.audit.note(what, member=member, who=who, where=where)
        if changes:
            self.changed()

    def changed(self) -> None:
        """Send this node's inventory to listeners. Without any, it is not read."""
        self._told = self._lease_keys()
        if not self.listeners.is_empty:
            self.listeners.publish(NodeChanged(node=self.info()))

    def tell_leases(self) -> None:
        """Notify listeners if leases were granted, expired or released."""
        self.leases.expire()
        if self._lease_keys() != self._told:
            self.changed()

    def _lease_keys(self) -> tuple[tuple[object, ...], ...]:
        # A renewal alone is not a change.
        return tuple(
            (lease.job_id, lease.attempt, lease.expires_s is None) for lease in self.leases.all()
        )

    def _lease_infos(self) -> tuple[LeaseInfo, ...]:
        # The caller sees expired leases as gone. Listeners must, too: else they would not notice
        # when the same lease is granted again.
        self.tell_leases()
        offset_s = time.time() - self.leases.clock()
        return tuple(lease.info(offset_s) for lease in self.leases.all())

    def _granted(self, lease: Lease, request: LeaseRequest, inventory: Inventory) -> LeaseGrant:
        # A started lease does not expire; a repeated request gets the time it asked for.
        left_s = request.expires_in_s
        if lease.expires_s is not None:
            left_s = lease.expires_s - self.leases.clock()
        return LeaseGrant(
            address=lease.address,
            port=lease.port,
            expires_s=time.time() + left_s,
            versions=self.inventory.versions,
            gpus=tuple(gpu for gpu in inventory.gpus if gpu.index in lease.gpus),
            interface=request.interface or "",
        )

    def _check_request(self, request: LeaseRequest) -> None:
        if not is_job_id(request.job_id):
            raise SpecError(
                f"{request.job_id!r} is not a job id", fix="job ids look like j-0123abcd"
            )
        if request.ranks < 1:
            raise RefusedError(
                f"nproc must be at least 1, not {request.ranks}",
                fix="request at least one process, or omit this node",
                node=self.name,
            )
        if len(set(request.gpus)) < len(request.gpus):
            raise RefusedError(
                f"GPUs {', '.join(map(str, request.gpus))} list one GPU twice",
                fix="use one GPU per process",
                node=self.name,
            )

    def _check_gpus(self, request: LeaseRequest, inventory: Inventory) -> None:
        by_index = {gpu.index: gpu for gpu in inventory.gpus}
        why = f": {inventory.gpu_note}" if inventory.gpu_note else ""
        for index in request.gpus:
            gpu = by_index.get(index)
            if gpu is None:
                there = ", ".join(map(str, by_index)) or "none"
                raise RefusedError(
                    f"there is no GPU {index} (available: {there}){why}",
                    kind=Kind.NO_GPU,
                    fix="choose one that 'nodes' lists",
                    node=self.name,
                )
            if not gpu.may_be_used(shares=request.shares_gpus):
                raise RefusedError(
                    f"GPU {index} is used by {gpu.owners}",
                    kind=Kind.GPU_TAKEN,
                    fix=f"end it, choose other GPUs, or share it: --member {self.name}:gpu{index}",
                    node=self.name,
                )

    def _address_on(
        self, name: str | None, interfaces: tuple[Interface, ...], before: str | None = None
    ) -> str:
        if name is None:
            return self._own_address(interfaces)
        found = next((i for i in interfaces if i.name == name), None)
        unfit = ("virtual", "loopback")
        usable = [i.name for i in interfaces if i.is_up and i.addresses and i.kind not in unfit]
        fix = f"choose one of {', '.join(usable)}" if usable else "connect it to a network"
        if found is None:
            raise self._no_interface(f"there is no interface {name!r}", fix)
        if not found.is_up:
            raise self._no_interface(f"interface {name} is down", fix)
        if not found.addresses:
            raise self._no_interface(f"interface {name} has no IPv4 address", fix)
        if found.kind == "loopback":
            # Several agents may share this machine, each on a loopback address of its own.
            own = [address for address in self.address_settings.listen if is_loopback(address)]
            return own[0] if own else LOOPBACK
        return kept_address(found, before)

    def _no_interface(self, cause: str, fix: str) -> RefusedError:
        return RefusedError(cause, kind=Kind.NO_INTERFACE, fix=fix, node=self.name)

    def _own_address(self, interfaces: tuple[Interface, ...]) -> str:
        """Return an address that can be bound here. An advertised one may be a gateway's."""
        own = self.address_settings.listen or tuple(real_addresses(interfaces)) or (LOOPBACK,)
        return own[0]
