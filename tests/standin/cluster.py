"""Cluster in memory, for parsing, messages and exit codes. Real ones are in tests/e2e."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from jupyter_mntrain.cluster import LinkMeasurement, NodeView
from jupyter_mntrain.cluster.launch.resume import BeginPlan
from jupyter_mntrain.launch import NodeCommand
from jupyter_mntrain.launch.gang_start import workplace_of
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.launch.project.stage import StagedProject
from jupyter_mntrain.model.api import PortStatus
from jupyter_mntrain.model.errors import MntrainError, job_not_found, no_cluster
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.lifecycle.listing import JobSort, is_found, sorted_jobs
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import JobSpec, JobView, Origin, Participant
from jupyter_mntrain.model.records.node import (
    Capacity,
    FoundWorkplace,
    Gpu,
    Interface,
    Inventory,
    Latency,
    NodeInfo,
    Versions,
    Workplace,
    awaited_words,
)
from jupyter_mntrain.model.records.plan import Plan
from jupyter_mntrain.plan.arrange import find_participants
from jupyter_mntrain.plan.members import choose_participants, parse_member
from tests.standin.benchmark import StandInBenchmark
from tests.standin.doctor import StandInDoctor
from tests.standin.files import StandInFiles
from tests.standin.job_handle import StandInJob
from tests.standin.jobs import measured_links
from tests.standin.pipeline import BEGIN_S, GIGABIT
from tests.standin.resuming import CHECKPOINTS, StandInCheckpoints
from tests.standin.training import sample_job
from tests.standin.trial import StandInTrial
from tests.standin.usage import StandInUsage

VERSIONS = Versions(
    mntrain="0.1.0",
    python="3.11.7",
    platform="x86_64 linux",
    torch="2.13.0",
    compresses=True,
)

_PLANNED: dict[bytes, tuple[JobSpec, Plan | None]] = {}
"""By job and nodes: most tests launch the same, and a plan takes half a second."""

KNOWN = ("wopr", "muthur", "hal", "a", "b")
"""Nodes to which every node has measured its link."""


def node(
    name: str,
    number: int,
    *,
    gpus: int = 0,
    torch: str = "2.13.0",
    liveness: Any = "up",
    reason: str | None = None,
    capacity: Capacity | None = GIGABIT,
) -> NodeView:
    info = NodeInfo(
        node_id=NodeId(f"{number:032x}"),
        name=name,
        cluster="lab",
        protocol=1,
        addresses=(f"10.0.0.{number}:8765",),
        inventory=Inventory(
            hostname=name,
            cpu_model="Ryzen 9",
            cpu_count=16,
            memory_total_bytes=64 << 30,
            memory_available_bytes=48 << 30,
            interfaces=(
                Interface(name="lo", kind="loopback", is_up=True, addresses=("127.0.0.1/8",)),
                Interface(
                    name="eno1",
                    kind="ethernet",
                    is_up=True,
                    addresses=(f"10.0.0.{number}/24",),
                    speed_mbit_per_s=1000,
                    links=measured_links(name, KNOWN, capacity) if capacity else (),
                ),
                Interface(name="eno2", kind="ethernet", is_up=False),
                Interface(name="docker0", kind="virtual", is_up=True, addresses=("172.17.0.1/16",)),
            ),
            gpus=tuple(
                Gpu(
                    index=index,
                    uuid=f"GPU-{number}-{index}",
                    name="RTX 3090",
                    memory_total_bytes=24 << 30,
                    memory_used_bytes=0,
                )
                for index in range(gpus)
            ),
            versions=msgspec.structs.replace(VERSIONS, torch=torch),
            gpu_note=None if gpus else "no NVIDIA driver",
        ),
    )
    return NodeView(
        address=info.addresses[0],
        found_by="mdns",
        liveness=liveness,
        info=info,
        last_seen_s=BEGIN_S,
        problem=_silent(reason) if reason else None,
    )


def _silent(cause: str, fix: str = "") -> Problem:
    return Problem(kind=Kind.NO_ANSWER, cause=cause, fix=fix)


def silent(address: str, reason: str, fix: str = "") -> NodeView:
    return NodeView(
        address=address, found_by="typed", liveness="lost", problem=_silent(reason, fix)
    )


class StandInCluster:
    def __init__(self, nodes: Sequence[NodeView] = (), jobs: Sequence[StandInJob] = ()) -> None:
        self.name = "lab"
        self._nodes = tuple(nodes)
        self._jobs = {job.id: job for job in jobs}
        self.launches: list[JobSpec] = []
        self.unchecked = 0
        self.notes: tuple[Problem, ...] = ()
        self.queued: list[JobSpec] = []
        self.usage = StandInUsage()
        self.doctor = StandInDoctor()
        self.benchmark = StandInBenchmark()
        self.trial = StandInTrial()
        self.files = StandInFiles()
        self.projects: list[StagedProject | None] = []
        self.to_launch = StandInJob(sample_job({"wopr": 1, "muthur": 1}), ends_as="succeeded")
        self.closed = 0
        self.measured: list[tuple[str, ...]] = []
        self.forgotten: list[str] = []
        self.taken_ports: set[int] = set()
        self.looked_at: list[tuple[str, int, str | None]] = []
        self.found: dict[str, FoundWorkplace | Exception] = {}
        self.workplaces_asked: list[Workplace] = []
        self.listeners: list[Callable[[], None]] = []
        self.refuses: Exception | None = None
        self.is_driver = True
        self.problem: str | None = None
        self.discovery = self.membership = self
        self.strangers: tuple[str, ...] = ()
        self.followed: list[Path] = []

    def required(self) -> None:
        if not self.is_driver:
            raise no_cluster(self.name)

    def refuse_read_only(self) -> None:
        """Every driver here may do everything."""

    def invite(self, **_: Any) -> str:
        return "mnt1-a-token"

    def check(self) -> str | None:
        return self.problem

    def follow(self, directory: Path) -> None:
        self.followed.append(directory)

    def nodes(self) -> tuple[NodeView, ...]:
        return self._nodes

    def awaited(self) -> str:
        return awaited_words(self._nodes, BEGIN_S)

    def first_nodes(self) -> tuple[NodeView, ...]:
        return self._nodes

    def nodes_when_ready(
        self, names: Sequence[str] = (), *, progress: Progress = SILENT
    ) -> tuple[NodeView, ...]:
        progress.report("looking for nodes", len(self._nodes), None)
        return self._nodes

    def participants(
        self,
        members: Sequence[str] = (),
        *,
        even_busy: bool = False,
        progress: Progress = SILENT,
    ) -> tuple[Participant, ...]:
        progress.report("looking for nodes", 0, len(members) or None)
        infos = [view.info for view in self._nodes if view.info and view.liveness == "up"]
        wanted = [parse_member(member) for member in members]
        return choose_participants(wanted, infos, even_busy=even_busy)

    def dry_run(self, spec: JobSpec) -> tuple[NodeCommand, ...]:
        return tuple(
            NodeCommand(
                node=participant.node,
                argv=("python", "-P", "-m", "torch.distributed.run", *spec.entry),
                environment={"NCCL_SOCKET_IFNAME": "=eno1", "A": "two words", **spec.environment},
                directory="/state/jobs/j-00000000/attempt-1/work",
            )
            for participant in spec.participants
        )

    def launch(
        self,
        spec: JobSpec,
        *,
        project: StagedProject | None = None,
        is_queued: bool = False,
        submitted_by: str = "",
        is_checked: bool = True,
        on_note: Callable[[Problem], object] = bool,
        on_begin: Callable[[JobView], object] = bool,
        progress: Progress = SILENT,
    ) -> StandInJob:
        self.projects.append(project)
        self.unchecked += not is_checked
        for note in self.notes:
            on_note(note)
        if is_queued:
            self.queued.append(spec)
            return self.to_launch
        progress.report("leasing GPUs and ports", 0, len(spec.participants))
        on_begin(self.to_launch.view())
        if self.refuses is not None:
            raise self.refuses
        self.launches.append(spec)
        with suppress(MntrainError):  # of nodes that a test has only named
            self._plan(spec)
        return self.to_launch

    def _plan(self, spec: JobSpec) -> None:
        """As the launcher does."""
        infos = [view.info for view in self._nodes if view.info is not None]
        chosen = find_participants(spec.participants, infos)
        key = msgspec.json.encode((spec.entry, spec.files, spec.participants, chosen))
        if key not in _PLANNED:
            _PLANNED[key] = program_of(spec).planned(chosen)
        spec, plan = _PLANNED[key]
        self.to_launch.take_plan(spec.chosen, plan)

    def plan_launch(self, spec: JobSpec, begin: str) -> BeginPlan:
        found = CHECKPOINTS.checkpoints[0]
        origin = Origin(is_branch=True, step=found.step, path=begin)
        spec = msgspec.structs.replace(spec, origin=origin)
        return BeginPlan(spec=spec, path=begin, step=found.step, checkpoint=found)

    def port_status(self, node: str, port: int, interface: str | None = None) -> PortStatus:
        self.looked_at.append((node, port, interface))
        if port not in self.taken_ports:
            return PortStatus(port=port, address="10.0.0.1")
        problem = Problem(
            kind=Kind.PORT_TAKEN, cause=f"port {port} on 10.0.0.1 is taken by jupyter (pid 7)"
        )
        return PortStatus(port=port, address="10.0.0.1", problem=problem, next_free=port + 1)

    def workplaces(self, spec: JobSpec) -> tuple[FoundWorkplace, ...]:
        if (asked := workplace_of(spec)) is None:
            return ()
        self.workplaces_asked.append(asked)
        found = [self.found.get(one.node, FoundWorkplace()) for one in spec.participants]
        for one in found:
            if isinstance(one, Exception):
                raise one
        return tuple(one for one in found if isinstance(one, FoundWorkplace))

    def subscribe(self, tell: Callable[[], None]) -> Callable[[], None]:
        self.listeners.append(tell)
        return lambda: self.listeners.remove(tell)

    def become(self, *nodes: NodeView) -> None:
        """Other nodes from now on, and whoever listens is told."""
        self._nodes = nodes
        for tell in tuple(self.listeners):
            tell()

    def known_jobs(self) -> tuple[JobView, ...]:
        return tuple(job.view() for job in self._jobs.values())

    def jobs(
        self, *, search: str = "", everything: bool = False, sort: JobSort = "started"
    ) -> tuple[JobView, ...]:
        found = [view for view in self.known_jobs() if is_found(view, search)]
        return tuple(sorted_jobs(found, sort, BEGIN_S))

    def job(self, job_id: str, *, progress: Progress = SILENT) -> StandInJob:
        progress.report(f"looking for job {job_id}", 0, None)
        for known, job in self._jobs.items():
            if known.startswith(job_id):
                return job
        raise job_not_found(job_id)

    def checkpoints(self, job_id: str) -> StandInCheckpoints:
        return StandInCheckpoints(self.job(job_id).calls, self.job(job_id).id)

    def measure(
        self,
        participants: Any = None,
        how: Any = None,
        *,
        progress: Progress = SILENT,
        on_measured: Any = None,
        on_skipped: Any = None,
    ) -> tuple[LinkMeasurement, ...]:
        progress.report("measuring", 0, len(participants))
        self.measured.append(tuple(one.node for one in participants))
        return tuple(
            LinkMeasurement(
                sender=one.node, receiver=other.node, interface="eno1", address="10.0.0.9",
                capacity=msgspec.structs.replace(GIGABIT, condition="alone"),
                latency=Latency(median_s=0.0002, p99_s=0.0009, count=200),
            )
            for one in participants
            for other in participants
            if one is not other
        )  # fmt: skip

    def add(self, address: str) -> NodeView:
        return node("added", 9)

    def forget(self, address: str) -> None:
        self.forgotten.append(address)

    def close(self) -> None:
        self.closed += 1
