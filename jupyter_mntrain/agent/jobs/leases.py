"""Leases: the GPUs, and on the head the port, that this node reserves for an attempt."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from jupyter_mntrain.agent.machine.ports import PortHolder
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import LAST_PORT, LeaseRequest
from jupyter_mntrain.model.errors import PortTakenError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.quantities import agreeing, numbered
from jupyter_mntrain.model.records.job import JobRecord, Placement
from jupyter_mntrain.model.records.node import LeaseInfo

MAX_EXPIRY_S = 300.0
"""Longest lease that an agent grants."""
PORTS = range(tunables.count("launch.first_port"), tunables.count("launch.last_port") + 1)
"""Of the rendezvous, where a launch names none."""

Key = tuple[JobId, int]


@dataclass
class Lease:
    """A reservation of GPUs and a port. Expires at ``expires_s`` on the book's clock unless the
    attempt starts.
    """

    job_id: JobId
    attempt: int
    gpus: tuple[int, ...]
    address: str
    interface: str | None = None
    """Of the address; ``None`` if none was asked for."""
    port: int | None = None
    holder: PortHolder | None = None
    expires_s: float | None = None
    """``None`` once the attempt has started: the lease then lasts until it is released."""

    def info(self, wall_minus_clock_s: float) -> LeaseInfo:
        expires = None if self.expires_s is None else self.expires_s + wall_minus_clock_s
        return LeaseInfo(
            job_id=self.job_id,
            attempt=self.attempt,
            gpus=self.gpus,
            port=self.port,
            expires_s=expires,
        )


@dataclass
class LeaseBook:
    """All leases of a node. A repeated request renews the lease and gets the same answer.

    Args:
        clock: monotonic seconds.
        hold_port: ``(address, port, node) → holder``.
    """

    clock: Callable[[], float]
    hold_port: Callable[[str, int, str], PortHolder] = PortHolder.hold
    _leases: dict[Key, Lease] = field(default_factory=dict)

    def grant(self, request: LeaseRequest, *, address: str, node: str) -> Lease:
        """Grant a lease, or refuse and name the holder.

        Raises:
            RefusedError: a GPU is leased to another attempt, or this attempt already has a
                different lease.
            PortTakenError: the port is in use.
        """
        lease = self.find(request.job_id, request.attempt)
        if lease is None:
            self.refuse_conflicts(request, node)
            lease = self._new(request, address, node)
        elif not _is_same(lease, request, address):
            raise RefusedError(
                f"job {request.job_id} has a lease on other GPUs, another port or address",
                kind=Kind.NO_LEASE,
                fix="launch it again",
                node=node,
            )
        elif lease.expires_s is not None:
            lease.expires_s = self._expiry(request)
        return lease

    def find(self, job_id: JobId, attempt: int) -> Lease | None:
        self.expire()
        return self._leases.get((job_id, attempt))

    def start(self, job_id: JobId, attempt: int) -> Lease | None:
        """Make a lease last until :meth:`release`; ``None`` if the attempt has no lease."""
        lease = self.find(job_id, attempt)
        if lease is not None:
            lease.expires_s = None
        return lease

    def restore(self, lease: Lease) -> None:
        """Restore the lease of an attempt that kept running while the agent was down."""
        self._leases[lease.job_id, lease.attempt] = lease

    def release(self, job_id: JobId, attempt: int) -> bool:
        """Release a lease, and return whether there was one."""
        lease = self._leases.pop((job_id, attempt), None)
        if lease is not None and lease.holder is not None:
            lease.holder.close()
        return lease is not None

    def release_unstarted(self, job_id: JobId, attempt: int | None = None) -> None:
        """Release the leases of attempts that did not start; ``None`` = of any attempt."""
        unstarted = [
            key
            for key, lease in self._leases.items()
            if key[0] == job_id and attempt in (None, key[1]) and lease.expires_s is not None
        ]
        for key in unstarted:
            self.release(*key)

    def expire(self) -> list[Key]:
        """Drop leases whose attempts did not start in time."""
        now = self.clock()
        late = [k for k, v in self._leases.items() if v.expires_s is not None and v.expires_s < now]
        for key in late:
            self.release(*key)
        return late

    def all(self) -> Collection[Lease]:
        return self._leases.values()

    def refuse_conflicts(self, request: LeaseRequest, node: str) -> None:
        """Raise RefusedError if one of the GPUs is leased to another attempt."""
        for lease in self._leases.values():
            if lease.job_id == request.session:
                continue
            taken = set(request.gpus) & set(lease.gpus)
            if taken and lease is not self._leases.get((request.job_id, request.attempt)):
                raise RefusedError(
                    f"{numbered('GPU', sorted(taken))} {agreeing(taken, 'is', 'are')} "
                    f"leased to job {lease.job_id}",
                    kind=Kind.GPU_TAKEN,
                    fix=f"wait for it, stop it with 'stop {lease.job_id}', or choose other GPUs",
                    node=node,
                )

    def port_refusal(self, address: str, port: int) -> Problem | None:
        """Return why a port cannot be leased now; ``None`` if it can. Leases nothing."""
        try:
            self._refuse_promised_port(port, "")
            self.hold_port(address, port, "").close()
        except RefusedError as error:
            return error.problem
        return None

    def _new(self, request: LeaseRequest, address: str, node: str) -> Lease:
        own = (request.job_id, request.attempt, request.gpus, address)
        lease = Lease(*own, interface=request.interface)
        if request.hold_port is not None:
            lease.holder = self._held(address, request.hold_port, node)
            lease.port = lease.holder.port
        lease.expires_s = self._expiry(request)
        self._leases[request.job_id, request.attempt] = lease
        return lease

    def _held(self, address: str, port: int, node: str) -> PortHolder:
        """Hold a port that is not leased; 0 means any free one in this node's range."""
        if port or len(PORTS) == LAST_PORT:
            self._refuse_promised_port(port, node)
            return self.hold_port(address, port, node)
        for one in PORTS:
            try:
                self._refuse_promised_port(one, node)
                return self.hold_port(address, one, node)
            except PortTakenError:
                continue
        raise PortTakenError(
            f"no port from {PORTS.start} to {PORTS.stop - 1} is free",
            fix="end what uses them, or set launch.first_port and launch.last_port further apart",
            node=node,
        )

    def _expiry(self, request: LeaseRequest) -> float:
        return self.clock() + min(max(0.0, request.expires_in_s), MAX_EXPIRY_S)

    def _refuse_promised_port(self, port: int, node: str) -> None:
        """Refuse a port that is leased already. The kernel would allow it, as our holders do not
        listen.
        """
        for lease in self._leases.values():
            if lease.port == port:
                raise PortTakenError(
                    f"port {port} is leased to job {lease.job_id}",
                    fix="omit the port to get a free one, or choose another",
                    node=node,
                )


def _is_same(lease: Lease, request: LeaseRequest, address: str) -> bool:
    if request.hold_port is None or lease.port is None:
        same_port = lease.port == request.hold_port
    else:
        same_port = request.hold_port in (0, lease.port)
    return (lease.gpus, lease.address) == (request.gpus, address) and same_port


def lease_of(record: JobRecord, placement: Placement) -> Lease:
    """Return an adopted attempt's lease. Binds its port again if torchrun does not listen yet."""
    port = record.attempt.master_port if placement.node_rank == 0 else None
    return Lease(
        job_id=record.job_id,
        attempt=record.attempt.number,
        gpus=placement.gpus,
        address=placement.address,
        port=port,
        holder=PortHolder.rebind(port) if port else None,
    )
