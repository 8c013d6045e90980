"""Cluster: the API of notebooks, the command line and scripts."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Self

from jupyter_mntrain.cluster.agents.address import parse_address
from jupyter_mntrain.cluster.discovery.discovery import Discovery, MdnsDiscovery
from jupyter_mntrain.cluster.handle.discovery import ClusterDiscovery
from jupyter_mntrain.cluster.handle.job_search import JobSearch
from jupyter_mntrain.cluster.handle.membership import ClusterMembership
from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.cluster.view.node_search import refuse_unusable
from jupyter_mntrain.cluster.view.peer_book import PeerBook
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.model.environment import DEFAULT_CLUSTER
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.ids import JobId, is_cluster_name, new_job_id
from jupyter_mntrain.model.lifecycle.listing import JobSort
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import JobSpec, JobView, Participant
from jupyter_mntrain.model.records.node import LinkMeasurement, NodeView

if TYPE_CHECKING:
    from jupyter_mntrain.cluster.diagnostics.benchmark import ClusterBenchmark
    from jupyter_mntrain.cluster.diagnostics.doctor import ClusterDoctor
    from jupyter_mntrain.cluster.diagnostics.smoke_step import ClusterTrial
    from jupyter_mntrain.cluster.handle.checkpoints import Checkpoints
    from jupyter_mntrain.cluster.handle.large_files import ClusterFiles
    from jupyter_mntrain.cluster.handle.usage import ClusterUsage
    from jupyter_mntrain.cluster.job import Job
    from jupyter_mntrain.cluster.launch.resume import BeginPlan
    from jupyter_mntrain.launch import NodeCommand
    from jupyter_mntrain.launch.project.stage import StagedProject
    from jupyter_mntrain.model.api import PortStatus
    from jupyter_mntrain.model.failure.problem import Problem
    from jupyter_mntrain.model.records.job import JobSpec
    from jupyter_mntrain.model.records.node import FoundWorkplace
    from jupyter_mntrain.plan.networks.measuring import Measuring


class Cluster:
    """The nodes and jobs of one cluster, watched until it is closed.

    ``nodes()`` returns at once, from the live view. Methods that contact nodes
    raise :class:`MntrainError`. All methods may be called from any thread, also from a notebook
    cell. Close it, or use it as a context manager; jobs continue. Methods that may take longer
    than a second report to ``progress``.

    Args:
        name: of the cluster; nodes of others are ignored.
        addresses: ``host[:port]`` of agents to watch besides those that discovery finds.
        discovery: how agents are found; default: mDNS.
        peers: where typed addresses are stored; default: the user's own file.
        clock: source of times.

    Raises:
        SpecError: the name or an address is malformed, or the peers file is damaged.
    """

    def __init__(
        self,
        name: str = DEFAULT_CLUSTER,
        *,
        addresses: Iterable[str] = (),
        discovery: Discovery | None = None,
        peers: PeerBook | None = None,
        clock: Clock = time,
    ) -> None:
        if not is_cluster_name(name):
            raise SpecError(
                f"{name!r} is not a cluster name",
                fix="use letters, digits, '.', '_' and '-', at most 63, a letter or digit first",
            )
        self.name = name
        self._peers = peers or PeerBook()
        typed = [parse_address(address) for address in addresses]
        remembered = self._peers.addresses(name)
        self._driver = DriverSession(
            name,
            discovery=discovery or MdnsDiscovery(),
            addresses=[*((a, "typed") for a in typed), *((a, "remembered") for a in remembered)],
            clock=clock,
            seen=self._peers.seen(name, clock.time()),
            on_seen=partial(self._peers.has_answered, name, clock),
        )
        self._jobs = JobSearch(self._driver)
        self.discovery = ClusterDiscovery(self._driver, self._peers)
        self.membership = ClusterMembership(self._driver)
        # Also at interpreter exit, while threads still run.
        self._closer = weakref.finalize(self, self._driver.close)

    # Each is imported on first use: a list of nodes or jobs does without.
    @cached_property
    def usage(self) -> ClusterUsage:
        from jupyter_mntrain.cluster.handle.usage import ClusterUsage

        return ClusterUsage(self._driver)

    @cached_property
    def doctor(self) -> ClusterDoctor:
        from jupyter_mntrain.cluster.diagnostics.doctor import ClusterDoctor

        return ClusterDoctor(self._driver)

    @cached_property
    def trial(self) -> ClusterTrial:
        from jupyter_mntrain.cluster.diagnostics.smoke_step import ClusterTrial

        return ClusterTrial(self._driver)

    @cached_property
    def benchmark(self) -> ClusterBenchmark:
        from jupyter_mntrain.cluster.diagnostics.benchmark import ClusterBenchmark

        return ClusterBenchmark(self._driver)

    @cached_property
    def files(self) -> ClusterFiles:
        from jupyter_mntrain.cluster.handle.large_files import ClusterFiles

        return ClusterFiles(self._driver)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Cluster {self.name!r}: {len(self.nodes())} nodes>"

    def close(self) -> None:
        """Stop watching. Jobs continue. May be called twice."""
        self._closer()

    def subscribe(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call ``tell`` after every change of nodes, jobs or a watched job's history, in this
        cluster's own thread; it must return at once and not raise. Returns the unsubscriber.
        """
        return self._driver.live.changes.subscribe(tell)

    def nodes(self) -> tuple[NodeView, ...]:
        """Return all known nodes, sorted by name, from the live view: contacts no node."""
        return self._driver.live.nodes

    def refuse_read_only(self) -> None:
        """Raise early if this driver is read-only and may not do what follows.

        Raises:
            RefusedError: this driver is read-only.
        """
        self._driver.refuse_read_only()

    def nodes_when_ready(
        self, names: Sequence[str] = (), *, progress: Progress = SILENT
    ) -> tuple[NodeView, ...]:
        """Return :meth:`nodes`, after waiting in a new driver until discovery has found ``names``,
        or has had enough time.
        """
        self._driver.search.wait_until_known(names, progress)
        return self.nodes()

    def first_nodes(self) -> tuple[NodeView, ...]:
        """Like :meth:`nodes_when_ready`, but do not wait for silent nodes: they are
        ``connecting``.
        """
        if self.membership.is_driver:
            members = self.membership.members()
            nodes = [one for one in members if one.role == "node" and not one.is_revoked]
            self._driver.search.glance(len(nodes))
        return self.nodes()

    def awaited(self) -> str:
        """Say which nodes have not answered this driver yet, and for how long; empty if
        all have.
        """
        return self._driver.search.awaited()

    def resume(
        self,
        job_id: str,
        *,
        spec: JobSpec | None = None,
        steps: int | None = None,
        settings: Sequence[str] = (),
        begin: int | str | None = None,
        is_queued: bool = False,
        submitted_by: str = "",
        progress: Progress = SILENT,
    ) -> Job:
        """Resume a run from its newest checkpoint, as a new job of that run.

        Args:
            job_id: any job of the run, or the beginning of its id.
            spec: what to run, for other nodes and options; default: that of the job, except for an
                acknowledgment that versions differ.
            steps: that the run is to make in all.
            settings: changes of the recipe, ``section.field=value``.
            begin: begin a new run instead: with the checkpoint of this step, or with the newest in
                this directory, or this folder of one. The path is one on the nodes.
            is_queued, submitted_by: as for :meth:`launch`.

        Raises:
            RefusedError: a job of the run is still running; or there is no checkpoint, or these
                nodes do not have all of it.
            SpecError: no steps are left, or a setting does not fit the checkpoint.
            NodeError, JobNotFoundError: as for :meth:`launch` and :meth:`job`.
        """
        from jupyter_mntrain.plan.software.versions import unacknowledged

        job = self.job(job_id, progress=progress)
        spec = program_of(spec or unacknowledged(job.spec())).with_settings(settings)
        spec = program_of(spec).with_settings([] if steps is None else [f"train.steps={steps}"])
        self._wait_until_known([one.node for one in spec.participants], progress)
        plan = job.plan_resume(spec, begin=begin)
        return self.launch(
            plan.spec, is_queued=is_queued, submitted_by=submitted_by, progress=progress
        )

    def checkpoints(self, job_id: str, *, progress: Progress = SILENT) -> Checkpoints:
        """Return the checkpoints of a job's run: to list, pin, delete, copy and export.

        Raises:
            JobNotFoundError, SpecError: as for :meth:`job`.
        """
        from jupyter_mntrain.cluster.handle.checkpoints import Checkpoints

        return Checkpoints(self, self.job(job_id, progress=progress))

    def jobs(
        self, *, search: str = "", everything: bool = False, sort: JobSort = "started"
    ) -> tuple[JobView, ...]:
        """List the jobs that have not ended, and the newest 20 ended ones, of all reachable nodes.

        Args:
            search: only jobs with this text in name, id, note, nodes, command or person, however
                old.
            everything: all ended jobs, however old.
            sort: newest first, longest first, or in the order of names or states.

        Raises:
            SpecError: the text is too long, or there is no such order.
        """
        self.first_nodes()
        return self._jobs.listed(search, sort, everything=everything)

    def known_jobs(self) -> tuple[JobView, ...]:
        """Return the jobs that this driver has heard of, newest first. Contacts no node."""
        return tuple(self._driver.live.jobs.values())

    def known_job(self, job_id: JobId) -> Job:
        """Return a job by its full id, without checking that a node knows it."""
        from jupyter_mntrain.cluster.job import Job

        return Job(self._driver, job_id)

    def job(self, job_id: str, *, progress: Progress = SILENT) -> Job:
        """Return a job of any driver, by its id or the beginning of it.

        Raises:
            JobNotFoundError: no reachable node knows it.
            SpecError: several jobs begin like this.
        """
        from jupyter_mntrain.cluster.job import Job

        progress.report(f"looking for job {job_id}", 0, None)
        return Job(self._driver, self._jobs.find(job_id))

    def measure(
        self,
        participants: Sequence[Participant] | None = None,
        how: Measuring | None = None,
        *,
        progress: Progress = SILENT,
        on_measured: Callable[[LinkMeasurement], object] = bool,
        on_skipped: Callable[[MntrainError], object] | None = None,
    ) -> tuple[LinkMeasurement, ...]:
        """Measure the links of every ordered pair of nodes in turn, about 2 s each. The senders
        store the results, which stay even if another link fails or Ctrl-C ends the measurement.

        Args:
            participants: nodes and interfaces; default: all nodes, and all that they share.
            how: which links, and for how long; default: all that are due.
            on_measured: receives each result as soon as it is there.
            on_skipped: receives why a link was not measured. Without it, a pair of which no network
                was measured raises that, once all others are measured.

        Raises:
            SpecError, NodeError, RefusedError: as for :meth:`launch`; or a job is in the way.
        """
        from jupyter_mntrain.cluster.launch.measure import measure_participants
        from jupyter_mntrain.plan.networks.measuring import MEASURING

        if participants is None:
            self._wait_until_known((), progress)
            participants = [Participant(node=info.node_id) for info in self._driver.search.usable()]
        work = measure_participants(
            self._driver.launcher().prober,
            participants,
            how or MEASURING,
            progress,
            on_measured,
            on_skipped,
        )
        return self._driver.loop.run(work)

    def participants(
        self,
        members: Sequence[str] = (),
        *,
        even_busy: bool = False,
        progress: Progress = SILENT,
    ) -> tuple[Participant, ...]:
        """Make the participants of a job, checked against the nodes' current state.

        Args:
            members: ``HOST:N[:IFACE]`` in node-rank order. Default: every node with idle GPUs and
                all of those, or one process per node if no node has GPUs.
            even_busy: for a queued job: accept GPUs that are not idle.

        Raises:
            SpecError: a member is malformed, or its node is unknown or has too few idle GPUs.
            NodeError: its node does not answer.
        """
        from jupyter_mntrain.plan.members import choose_participants, parse_members

        wanted = parse_members(members)
        names = {member.node for member in wanted}
        self._wait_until_known([member.node for member in wanted], progress)
        for view in self._driver.live.nodes:
            # Two machines with one id seem to be one node that is named twice.
            if view.is_conflict and names & {view.name, *(view.info.names if view.info else ())}:
                refuse_unusable(view)
        return choose_participants(wanted, self._driver.search.usable(), even_busy=even_busy)

    def port_status(self, node: str, port: int, interface: str | None = None) -> PortStatus:
        """Ask ``node`` whether ``port`` is free for a head; leases nothing.

        Args:
            interface: the one whose address to try; default: the agent's own address.

        Raises:
            SpecError, NodeError: the node is unknown, or does not answer.
            RefusedError: no such port or interface exists.
        """
        return self._driver.loop.run(self._driver.search.client(node).port_status(port, interface))

    def workplaces(self, spec: JobSpec) -> tuple[FoundWorkplace, ...]:
        """Return each participant's interpreter and folder for a job; empty if the agents' own is
        used.
        """
        return self._driver.loop.run(self._driver.launcher().workplaces(spec))

    def with_hub_commit(
        self,
        spec: JobSpec,
        *,
        on_note: Callable[[Problem], object] = bool,
        progress: Progress = SILENT,
    ) -> JobSpec:
        """Return the job with the commit of its model, if its recipe names one of the Hugging Face
        hub (``org/name``), as a launch does. The config is cached on this machine.

        Args:
            on_note: told if the hub did not answer, and an older commit may be used.

        Raises:
            RecipeError: the hub has no such model, or the trainer cannot use it.
            RefusedError: the hub does not answer, or refuses.
        """
        from jupyter_mntrain.cluster.files.hub_models import with_hub_commit

        program = program_of(spec)
        return self._driver.loop.run(with_hub_commit(program, progress, on_note))

    def dry_run(self, spec: JobSpec, *, progress: Progress = SILENT) -> tuple[NodeCommand, ...]:
        """Return the exact command and environment of every node; starts and leases nothing.

        The job id is ``j-00000000``, and the port 0 unless the spec has one: only a launch
        decides them. A model of the hub has the name of its copy, as after :meth:`with_hub_commit`.

        Raises:
            SpecError, NodeError, RecipeError, RefusedError: as for :meth:`launch`.
        """
        from jupyter_mntrain.launch.driver_values import with_values

        self._wait_until_known([one.node for one in spec.participants], progress)
        spec = self.with_hub_commit(with_values(spec, os.environ), progress=progress)
        return self._driver.loop.run(self._driver.launcher().render(spec))

    def launch(
        self,
        spec: JobSpec,
        *,
        project: str | os.PathLike[str] | StagedProject | None = None,
        begin: str | None = None,
        is_queued: bool = False,
        submitted_by: str = "",
        is_checked: bool = True,
        is_fetched: bool = True,
        on_note: Callable[[Problem], object] = bool,
        on_begin: Callable[[JobView], object] = bool,
        progress: Progress = SILENT,
    ) -> Job:
        """Start a job on all of its participants or on none. Ctrl-C releases every lease.

        Args:
            project: folder to send; default: that of the spec, which nodes have from another job.
            begin: with the newest checkpoint in this directory on the nodes, or this folder of one.
            is_queued: queue the job on its participants, ``pending`` and without leases. Its head
                starts it once everything it needs is free; no driver is needed.
            submitted_by: for people; default: user and host.
            is_checked: whether the doctor looks at the nodes first, and refuses what cannot work.
            is_fetched: whether a model of the hub is, if it is nowhere here; else it is refused.
            on_note: receives what is to be said that does not stop the launch.
            on_begin: receives the job, in the cluster's own thread, before the first node is asked
                to start it: from then on it may run, whatever becomes of this driver.

        Raises:
            SpecError: the spec is invalid, does not fit these nodes, or takes a variable from this
                environment that is not set.
            NodeError: a participant does not answer.
            RefusedError: a GPU, interface or port that a participant needs is not available, or
                the doctor found what would end the job, or have it hang.
        """
        from jupyter_mntrain.cluster.job import Job
        from jupyter_mntrain.launch.driver_values import with_values
        from jupyter_mntrain.launch.project.stage import with_project

        spec = with_values(spec, os.environ)
        self._wait_until_known([one.node for one in spec.participants], progress)
        spec = self.plan_launch(spec, begin).spec if begin else spec
        launcher = self._driver.launcher(submitted_by)
        launcher.is_checked, launcher.is_fetched = is_checked, is_fetched
        launcher.on_note, launcher.on_begin = on_note, on_begin
        start = launcher.queue if is_queued else launcher.launch
        spec, staged = with_project(spec, project)
        view = self._driver.loop.run(start(spec, new_job_id(), project=staged, progress=progress))
        return Job(self._driver, view.job_id)

    def plan_launch(self, spec: JobSpec, begin: str) -> BeginPlan:
        """Return what :meth:`launch` would start from; raises the same errors, but
        starts nothing.
        """
        from jupyter_mntrain.cluster.launch.resume import plan_beginning

        self._wait_until_known([one.node for one in spec.participants], SILENT)
        return self._driver.loop.run(plan_beginning(self._driver.live, spec, begin))

    def _wait_until_known(self, names: Sequence[str], progress: Progress) -> None:
        self._driver.search.wait_until_known(names, progress)
        self._driver.search.refuse_awaited(names)
