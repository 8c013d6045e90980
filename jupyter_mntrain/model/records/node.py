"""Node records: hardware, networks, software, what its owner offers, and a driver's view of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId, NodeId
from jupyter_mntrain.model.records.plan import DeviceMeasurement
from jupyter_mntrain.model.records.probes import LinkEnd

InterfaceKind = Literal["ethernet", "wireless", "loopback", "virtual"]
"""``virtual`` is a bridge, a tunnel or a container's end; never chosen automatically."""

RdmaLink = Literal["InfiniBand", "RoCE"]
GpuDirect = Literal["nvidia-peermem", "dma-buf"]

CapacitySource = Literal["measured", "given"]

GpuPlatform = Literal["CUDA", "ROCm", "XPU"]

Condition = Literal["alone", "short of CPU", "beside a job", "cut short"]
"""Condition of a measurement: what disturbed it, on either node. The worst comes last."""


class Capacity(Record, frozen=True):
    """Capacity of a link in one direction, as its interface counts bytes.

    That is with the headers, so that the counters of a full link show 100 %. What a network card
    calls itself is not a capacity: virtual cards say nonsense (veth: 10 Gbit/s).

    Args:
        source: measured by a probe, or given by the user.
        time_s: Unix time of the measurement; 0 if given.
        condition: of the measurement; a disturbed one is a lower bound. ``None`` if given.
        payload_share: the part of it that is payload; 1 if given.
        is_exceeded: the counters showed more than was measured or given. The rate is the highest
            they showed.
        is_doubtful: messages of the job take much longer now than it says.
    """

    bytes_per_s: float
    source: CapacitySource
    time_s: float = 0.0
    condition: Condition | None = None
    payload_share: float = 1.0
    is_exceeded: bool = False
    is_doubtful: bool = False

    @property
    def payload_bytes_per_s(self) -> float:
        """The capacity without headers, for comparison with the ranks' own bytes."""
        return self.bytes_per_s * self.payload_share


class Latency(Record, frozen=True):
    """One-way latency of an idle link: half of a TCP round trip.

    Args:
        p99_s: of the slowest hundredth; the slowest of all if there are fewer.
        count: of round trips.
    """

    median_s: float
    p99_s: float
    count: int


class LinkMeasurement(Record, frozen=True):
    """Measurement of one direction between two nodes, stored by the sender.

    Args:
        sender: name of the node that sent, over its ``interface``.
        receiver: name of the node that received, on its ``address``.
        latency: ``None`` if an older agent measured.
        streams: TCP connections that it was sent over at once.
        ends: the sender's and the receiver's interface then; ``None`` if an older agent measured.
        outdated: what has changed at an end since, so that it says nothing now; empty if nothing.
        backend: ``gloo`` or ``nccl`` if it is what messages of a training reached, and the capacity
            payload alone; empty for a measurement of the link itself.
    """

    sender: str
    receiver: str
    interface: str
    address: str
    capacity: Capacity
    latency: Latency | None = None
    streams: int = 1
    ends: tuple[LinkEnd | None, LinkEnd | None] | None = None
    outdated: str = ""
    backend: str = ""


class Interface(Record, frozen=True):
    """A network interface. ``addresses`` are IPv4 in CIDR form, ``10.77.2.1/24``."""

    name: str
    kind: InterfaceKind
    is_up: bool
    addresses: tuple[str, ...] = ()
    mac: str | None = None
    mtu: int | None = None
    speed_mbit_per_s: int | None = None
    came_up: int | None = None
    """How often its carrier has come up; ``None`` if that is unknown."""
    given: Capacity | None = None
    """The user's own figure, for both directions."""
    links: tuple[LinkMeasurement, ...] = ()
    """Measured when this node sent over it, one per receiver."""
    benched: tuple[LinkMeasurement, ...] = ()
    """Reached by messages of a benchmark that this node sent, one per receiver and backend."""


class RoceGid(Record, frozen=True):
    """A RoCE v2 GID with an IPv4 address. NCCL and verbs name it by its index."""

    index: int
    address: str


class RdmaPort(Record, frozen=True):
    """Port of an adapter for InfiniBand or RoCE (RDMA over Ethernet), as in sysfs.

    Args:
        device: its adapter, ``mlx5_0``.
        number: counts from 1.
        state: ``ACTIVE``, ``DOWN``, ``INIT`` (no subnet manager yet), …
        subnet: prefix of an InfiniBand port's subnet; empty for RoCE.
        gids: of a RoCE port.
        obstacle: why ranks cannot open it, as ``has no /dev/infiniband/uverbs0 here``.
    """

    device: str
    number: int
    link: RdmaLink
    state: str
    subnet: str = ""
    gids: tuple[RoceGid, ...] = ()
    obstacle: str | None = None


class GpuProcess(Record, frozen=True):
    """A process that computes on a GPU. Fields that the agent may not read are ``None``."""

    pid: int
    user: str | None = None
    command: str | None = None
    memory_bytes: int | None = None

    def __str__(self) -> str:
        who = ", ".join(part for part in (self.user, self.command) if part)
        return f"{who} (pid {self.pid})" if who else f"pid {self.pid}"


class Gpu(Record, frozen=True):
    """A GPU as reported by NVML. ``index`` is its number there, as ``nvidia-smi`` shows it."""

    index: int
    uuid: str
    name: str
    memory_total_bytes: int
    memory_used_bytes: int
    utilization: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    processes: tuple[GpuProcess, ...] = ()
    compute_capability: tuple[int, ...] | None = None
    """CUDA's number of what it can compute, major and minor; ``None`` if it is unknown."""
    is_unified: bool = False
    """Whether it has no memory of its own, but its machine's (DGX Spark, Jetson)."""
    maps_memory: bool = True
    """Whether CUDA can map its memory piece by piece, as torch's expandable segments do: not a
    vGPU's, not that of a Jetson or a DGX Spark, and not in WSL2."""

    @property
    def owners(self) -> str:
        """The processes that compute on the GPU, for people; empty if there are none."""
        return " and ".join(map(str, self.processes))

    @property
    def is_idle(self) -> bool:
        """Whether no process computes on the GPU. Memory in use alone does not count.

        A 4K desktop with a browser takes 1 to 2 GiB, and a GPU that shares its machine's memory
        (DGX Spark, Jetson) shows what the whole machine uses.
        """
        return not self.processes

    def may_be_used(self, *, shares: bool = False) -> bool:
        """Whether a job may start on the GPU now: if it is idle, or was explicitly named to be
        shared.

        Args:
            shares: it was named; see :attr:`Participant.shares_gpus`.
        """
        return shares or self.is_idle

    def free_bytes(self, *, shares: bool = False) -> int:
        """Return the memory that a job gets on the GPU.

        A job that shares it gets what is unused; one that waits until it is idle gets all of it.
        """
        held = self.memory_used_bytes if self.may_be_used(shares=shares) else 0
        return max(0, self.memory_total_bytes - held)


class Tools(Record, frozen=True):
    """The compilers of an interpreter, and its packages for optional parts of recipes.

    Args:
        packages: versions of triton, liger-kernel, torchao, flash-attn, peft, of those installed.
        c_compiler, cxx_compiler: their paths; ``None`` if there is none.
        has_headers: whether Python.h is there.
    """

    packages: dict[str, str] = {}
    c_compiler: str | None = None
    cxx_compiler: str | None = None
    has_headers: bool = False


class Versions(Record, frozen=True):
    """Software versions of a node. ``None`` = not installed."""

    mntrain: str
    python: str
    platform: str
    torch: str | None = None
    transformers: str | None = None
    cuda: str | None = None
    nccl: str | None = None
    driver: str | None = None
    driver_cuda: str | None = None
    """The newest CUDA that the driver is for; ``None`` if it does not say."""
    built_for: GpuPlatform | None = None
    """Whose GPUs torch was built for; ``None``: for none, or unknown."""
    tools: Tools | None = None
    """``None`` = unknown, as the node has an older version of mntrain."""
    compresses: bool = False
    """Whether its trainer can compress what stages send; not where an older agent tells."""


class Inventory(Record, frozen=True):
    """Hardware and software of a node; at most one heartbeat old."""

    hostname: str
    cpu_model: str
    cpu_count: int
    memory_total_bytes: int
    memory_available_bytes: int
    interfaces: tuple[Interface, ...]
    gpus: tuple[Gpu, ...]
    versions: Versions
    gpu_note: str | None = None
    """Why there are no GPUs, or fewer than the machine has: no driver, one that is in MIG mode."""
    rdma_ports: tuple[RdmaPort, ...] = ()
    gpu_direct: GpuDirect | None = None
    """How these ports reach the memory of GPUs; ``None``: not, or an older agent."""
    devices: tuple[DeviceMeasurement, ...] = ()
    """What its CPU and GPUs do, as far as it was measured and still holds."""
    has_amd_gpu: bool = False
    """AMD's are not offered; this one is named to whom expects it to be used."""


class LeaseInfo(Record, frozen=True):
    """Resources that a node has leased to an attempt."""

    job_id: JobId
    attempt: int
    gpus: tuple[int, ...]
    port: int | None
    expires_s: float | None
    """Unix time; ``None`` once the attempt has started."""


class Drain(Record, frozen=True):
    """The owner wants the machine back: it takes no new jobs.

    Args:
        since_s: Unix time.
        until_s: Unix time at which it takes jobs again; ``None`` = when its owner says so.
        ends_jobs: whether running jobs are ended, too.
    """

    since_s: float
    reason: str = ""
    until_s: float | None = None
    ends_jobs: bool = False


class Availability(Record, frozen=True):
    """The resources that a node offers; by default everything, always.

    Args:
        hours: like ``Mon-Fri 19:00-07:00``, in the node's local time; empty = always.
        is_strict: whether jobs that still run at the end of the hours are ended.
        gpus: indices; ``None`` = all of them.
        memory_bytes: of each GPU; ``None`` = all of it.
        drain: ``None`` if it takes jobs.
    """

    hours: str = ""
    is_strict: bool = False
    gpus: tuple[int, ...] | None = None
    memory_bytes: int | None = None
    drain: Drain | None = None

    def offers_gpu(self, index: int) -> bool:
        return self.gpus is None or index in self.gpus

    def memory_of(self, free_bytes: int) -> int:
        """Return how much of a GPU's memory is offered."""
        return free_bytes if self.memory_bytes is None else min(free_bytes, self.memory_bytes)


class NodeInfo(Record, frozen=True):
    """Identity, inventory and leases of a node."""

    node_id: NodeId
    name: str
    cluster: str
    protocol: int
    addresses: tuple[str, ...]
    """``host:port`` addresses that the agent listens on."""
    inventory: Inventory
    leases: tuple[LeaseInfo, ...] = ()
    started_s: float = 0.0
    boot_id: str = ""
    revocations: int = 0
    """Number of the newest revocation list that it knows."""
    certificate_expires_s: float = 0.0
    """Unix time at which its certificate expires."""
    instance: str = ""
    """Id of this start of the agent; see :class:`jupyter_mntrain.model.api.ServiceRecord`."""
    python: str = ""
    """Interpreter that runs torchrun on this node, for dry runs."""
    jobs_directory: str = ""
    """Directory of this agent's jobs, ``…/jobs``, for dry runs."""
    problem: Problem | None = None
    """Why it can start no job now: its state directory is gone or cannot be written, or its owner
    does not offer it."""
    availability: Availability = Availability()
    """What its owner offers."""

    @property
    def names(self) -> tuple[str, str, str]:
        """The names that refer to the node: its name, id and host name."""
        return self.name, self.node_id, self.inventory.hostname

    @property
    def leased_gpus(self) -> set[int]:
        """The indices of the GPUs that jobs of this cluster use."""
        return {index for lease in self.leases for index in lease.gpus}


class InterfaceRate(Record, frozen=True):
    """Bytes per second on one interface since the last heartbeat, and the counters themselves."""

    name: str
    sent_bytes_per_s: float
    received_bytes_per_s: float
    sent_bytes: int
    received_bytes: int


class Heartbeat(Record, frozen=True, tag_field="kind", tag="heartbeat"):
    """Heartbeat: sent on every stream once a second, with current usage."""

    time_s: float
    interfaces: tuple[InterfaceRate, ...]
    gpus: tuple[Gpu, ...] = ()
    cpu_share: float = 0.0
    memory_available_bytes: int = 0


class MachineDescription(Record, frozen=True):
    """What a report contains about a node in addition to its inventory.

    Args:
        packages: versions of all that ranks can import, by name.
        nvidia_smi: the answer of ``nvidia-smi -q``, or why there is none.
    """

    system: str
    packages: dict[str, str]
    nvidia_smi: str


class Workplace(Record, frozen=True):
    """A job's folder and interpreter, as in :class:`~jupyter_mntrain.model.records.job.JobSpec`.

    Args:
        trains: whether it runs a program of this package there: the built-in trainer.
    """

    workdir: str | None = None
    python: str | None = None
    trains: bool = False


class FoundWorkplace(Record, frozen=True):
    """What a node has of a job's workplace.

    Args:
        python: path of the interpreter; ``None`` if there is none.
        versions: installed for it; ``None`` if it does not run.
        lacks: what the job cannot do without.
    """

    python: str | None = None
    versions: Versions | None = None
    lacks: tuple[Problem, ...] = ()


Liveness = Literal["connecting", "up", "suspect", "lost"]
"""``connecting``: it has not answered yet. ``suspect`` and ``lost``: it no longer answers, not even
a direct probe. Lost means unreachable, not dead: its jobs may be running."""

FoundBy = Literal["mdns", "typed", "remembered", "job"]
"""``job``: another node named it as a participant of a job."""


class NodeView(Record, frozen=True):
    """One node of the live view.

    Args:
        address: ``host:port`` that the driver uses.
        found_by: how the address became known first.
        info: newest information; ``None`` until it has answered once.
        heartbeat: newest heartbeat.
        last_seen_s: Unix time of its last message.
        problem: why it cannot be used, or why it is silent.
        is_conflict: another agent claims the same node id; neither can take part in a job.
        called: its last known name, if it has not answered yet.
        asked_s: Unix time since which this driver has been trying to reach it.
    """

    address: str
    found_by: FoundBy
    liveness: Liveness
    info: NodeInfo | None = None
    heartbeat: Heartbeat | None = None
    last_seen_s: float | None = None
    problem: Problem | None = None
    is_conflict: bool = False
    called: str = ""
    asked_s: float | None = None

    @property
    def name(self) -> str:
        """The node's name, or its address if it has never answered."""
        return self.info.name if self.info else self.called or self.address

    @property
    def newest(self) -> NodeInfo | None:
        """The node with its GPUs and free memory as of the last heartbeat."""
        if self.info is None or self.heartbeat is None:
            return self.info
        there = self.info.inventory
        inventory = msgspec.structs.replace(
            there,
            gpus=self.heartbeat.gpus or there.gpus,
            memory_available_bytes=self.heartbeat.memory_available_bytes
            or there.memory_available_bytes,
        )
        return msgspec.structs.replace(self.info, inventory=inventory)

    @property
    def is_awaited(self) -> bool:
        """Whether the node has not answered this driver yet, but may still do so."""
        return self.liveness == "connecting" and (
            self.problem is None or self.problem.kind in _PATIENT
        )


_PATIENT = frozenset({Kind.NO_ANSWER, Kind.SLOW_TO_ANSWER})
"""What is known of a node that is silent and may be busy; every other silence has its reason."""


def awaited_words(nodes: Sequence[NodeView], now_s: float) -> str:
    """Say which nodes have not answered, like ``node2 has not answered yet (1.2 s)``; empty if
    none.

    Args:
        now_s: Unix time.
    """
    awaited = [node for node in nodes if node.is_awaited]
    since = [_seconds(node, now_s) for node in awaited]
    if len(awaited) == 1:
        return f"{awaited[0].name} has not answered yet{since[0]}"
    named = [f"{node.name}{seconds}" for node, seconds in zip(awaited, since, strict=True)]
    return f"{', '.join(named)} have not answered yet" if named else ""


def _seconds(node: NodeView, now_s: float) -> str:
    if node.asked_s is None:
        return ""
    waited_s = max(0.0, now_s - node.asked_s)
    return f" ({waited_s:.1f} s)" if waited_s < 10 else f" ({waited_s:.0f} s)"
