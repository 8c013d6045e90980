"""What this node has promised: GPUs and the head's port, to one attempt at a time."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from jupyter_mntrain.model.api import LeaseRequest
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.node import LeaseInfo

Key = tuple[JobId, int]


@dataclass
class Lease:
    """A promise. Without a start it ends by itself at ``expires_s`` on the book's clock."""

    job_id: JobId
    attempt: int
    gpus: tuple[int, ...]
    address: str
    expires_s: float | None
    holder: PortHolder | None = None

    @property
    def port(self) -> int | None:
        return self.holder.port if self.holder else None

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
    """All leases of a node. A repeated request renews and answers the same.

    Args:
        clock: monotonic seconds.
    """

    clock: Callable[[], float]
    _leases: dict[Key, Lease] = field(default_factory=dict)

    def grant(self, request: LeaseRequest, *, address: str, node: str) -> Lease:
        """Promise, or refuse naming who has it.

        Raises:
            RefusedError: a GPU is promised to another attempt, or the port is taken.
        """
        self.expire()
        key = (request.job_id, request.attempt)
        lease = self._leases.get(key)
        if lease is None:
            self._refuse_conflicts(request, node)
            lease = Lease(request.job_id, request.attempt, request.gpus, address, None)
            if request.hold_port is not None:
                lease.holder = PortHolder.hold(address, request.hold_port, node)
            self._leases[key] = lease
            lease.expires_s = self.clock() + request.expires_in_s
        elif lease.expires_s is not None:
            lease.expires_s = self.clock() + request.expires_in_s
        return lease

    def start(self, job_id: JobId, attempt: int) -> Lease | None:
        """Turn a lease into one that lasts until :meth:`release`; ``None`` if there is none."""
        self.expire()
        lease = self._leases.get((job_id, attempt))
        if lease is not None:
            lease.expires_s = None
        return lease

    def restore(self, lease: Lease) -> None:
        """Of an attempt that ran on while the agent was away."""
        self._leases[lease.job_id, lease.attempt] = lease

    def is_unstarted(self, job_id: JobId, attempt: int) -> bool:
        lease = self._leases.get((job_id, attempt))
        return lease is not None and lease.expires_s is not None

    def release(self, job_id: JobId, attempt: int) -> None:
        lease = self._leases.pop((job_id, attempt), None)
        if lease and lease.holder:
            lease.holder.close()

    def expire(self) -> list[Key]:
        """Drop what nobody started in time."""
        now = self.clock()
        late = [k for k, v in self._leases.items() if v.expires_s is not None and v.expires_s < now]
        for key in late:
            self.release(*key)
        return late

    def all(self) -> Collection[Lease]:
        return self._leases.values()

    def _refuse_conflicts(self, request: LeaseRequest, node: str) -> None:
        wanted = set(request.gpus)
        for lease in self._leases.values():
            taken = wanted & set(lease.gpus)
            if taken:
                raise RefusedError(
                    f"GPU {_numbers(taken)} is promised to job {lease.job_id}",
                    fix=f"wait for it, stop it with 'stop {lease.job_id}', or choose other GPUs",
                    node=node,
                )


class PortHolder:
    """A port that is bound but never listened on, for as long as the attempt lives.

    torchrun's store sets SO_REUSEADDR as we do, so Linux lets it listen on the same port, while
    other programs and the kernel's own choice of ephemeral ports do not get it (measured).
    """

    def __init__(self, bound: socket.socket) -> None:
        self._socket = bound
        self.port: int = bound.getsockname()[1]

    @classmethod
    def hold(cls, address: str, port: int, node: str) -> PortHolder:
        """Bind ``port``, 0 = any free one.

        Raises:
            RefusedError: it is taken, also by a listener that only torchrun would run into.
        """
        try:
            if port:
                with _reusable(address, port) as trial:
                    trial.listen()
            return cls(_reusable(address, port))
        except OSError as error:
            owner = port_owner(port)
            raise RefusedError(
                f"port {port} on {address} is taken" + (f" by {owner}" if owner else ""),
                fix="leave the port out to get a free one, or choose another",
                node=node,
            ) from error

    @classmethod
    def rebind(cls, address: str, port: int) -> PortHolder:
        """Of an attempt that runs already: torchrun listens, so binding may be refused."""
        return cls(_reusable(address, port))

    def close(self) -> None:
        self._socket.close()


def _reusable(address: str, port: int) -> socket.socket:
    bound = socket.socket()
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))
    except OSError:
        bound.close()
        raise
    return bound


def port_owner(port: int) -> str | None:
    """Who listens on ``port``, where the system lets us see it."""
    import psutil

    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        return None
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,):
            if connection.pid is None:
                return None
            try:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
            except psutil.NoSuchProcess:
                return f"pid {connection.pid}"
    return None


def _numbers(indices: Collection[int]) -> str:
    return ", ".join(str(index) for index in sorted(indices))
