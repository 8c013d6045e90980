"""Cluster: the API of notebooks, the command line and scripts."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Self

from jupyter_mntrain.cluster.admission.membership import ClusterMembership
from jupyter_mntrain.cluster.agents.address import parse_address
from jupyter_mntrain.cluster.discovery.cluster_discovery import ClusterDiscovery
from jupyter_mntrain.cluster.discovery.discovery import Discovery, MdnsDiscovery
from jupyter_mntrain.cluster.launch.launching_cluster import LaunchingCluster
from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.cluster.view.job_search import JobSearch
from jupyter_mntrain.cluster.view.node_search import NodeSearch
from jupyter_mntrain.cluster.view.peer_book import PeerBook
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.model.api import DEFAULT_CLUSTER
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.ids import JobId, is_cluster_name
from jupyter_mntrain.model.lifecycle.listing import JobSort
from jupyter_mntrain.model.records.job import JobSpec, JobView, Participant
from jupyter_mntrain.model.records.node import LinkMeasurement
from jupyter_mntrain.model.records.node_view import NodeView

if TYPE_CHECKING:
    from jupyter_mntrain.cluster.examination.benchmark import ClusterBenchmark
    from jupyter_mntrain.cluster.examination.deep_step import ClusterTrial
    from jupyter_mntrain.cluster.examination.doctor import ClusterDoctor
    from jupyter_mntrain.cluster.files.checkpoints import Checkpoints
    from jupyter_mntrain.cluster.files.large_files import ClusterFiles
    from jupyter_mntrain.cluster.history.usage import ClusterUsage
    from jupyter_mntrain.cluster.job import Job
    from jupyter_mntrain.plan.networks.measuring import Measuring


class Cluster(LaunchingCluster):
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
        self._clock = clock
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
        self._search = NodeSearch(self._driver.live, self._driver.grace, clock)
        self._jobs = JobSearch(self._driver, clock)
        self.discovery = ClusterDiscovery(self._driver, self._peers)
        self.membership = ClusterMembership(self._driver)
        # Also at interpreter exit, while threads still run.
        self._closer = weakref.finalize(self, self._driver.close)

    # Each is imported on first use: a list of nodes or jobs does without.
    @cached_property
    def usage(self) -> ClusterUsage:
        from jupyter_mntrain.cluster.history.usage import ClusterUsage

        return ClusterUsage(self._driver, self._search, self._clock)

    @cached_property
    def doctor(self) -> ClusterDoctor:
        from jupyter_mntrain.cluster.examination.doctor import ClusterDoctor

        return ClusterDoctor(self._driver, self._search, self._clock)

    @cached_property
    def trial(self) -> ClusterTrial:
        from jupyter_mntrain.cluster.examination.deep_step import ClusterTrial

        return ClusterTrial(self._driver, self._search, self._clock)

    @cached_property
    def benchmark(self) -> ClusterBenchmark:
        from jupyter_mntrain.cluster.examination.benchmark import ClusterBenchmark

        return ClusterBenchmark(self._driver, self._search, self._clock)

    @cached_property
    def files(self) -> ClusterFiles:
        from jupyter_mntrain.cluster.files.large_files import ClusterFiles

        return ClusterFiles(self._driver, self._search, self._clock)

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
        cluster's own thread; it must return at once and not raise. Returns what ends it.
        """
        return self._driver.live.changes.subscribe(tell)

    def nodes(self) -> tuple[NodeView, ...]:
        """All known nodes, sorted by name. From the live view: contacts no node."""
        return self._driver.live.nodes

    def refuse_read_only(self) -> None:
        """Refuse early what a read-only driver may not do.

        Raises:
            RefusedError: this driver is read-only.
        """
        self._driver.refuse_read_only()

    def settled_nodes(
        self, names: Sequence[str] = (), *, progress: Progress = SILENT
    ) -> tuple[NodeView, ...]:
        """Like :meth:`nodes`, but a driver that has just started first waits for discovery: until
        the nodes in ``names`` are found, or the time that discovery needs is over.
        """
        self._search.settle(names, progress)
        return self.nodes()

    def first_nodes(self) -> tuple[NodeView, ...]:
        """Like :meth:`settled_nodes`, but never waits longer; silent nodes are ``connecting``."""
        if self.membership.is_driver:
            members = self.membership.members()
            nodes = [one for one in members if one.role == "node" and not one.is_revoked]
            self._search.glance(len(nodes))
        return self.nodes()

    def awaited(self) -> str:
        """Which nodes have not answered this driver yet, and for how long; empty if all have."""
        return self._search.awaited()

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
        """Go on where a run ended, as a new job of it, from its newest checkpoint.

        Args:
            job_id: any job of the run, or the beginning of its id.
            spec: what to run, for other nodes and options; default: that of the job, but for an
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
        from jupyter_mntrain.recipe.stored import with_settings

        job = self.job(job_id, progress=progress)
        spec = with_settings(spec or unacknowledged(job.spec()), settings)
        spec = with_settings(spec, [] if steps is None else [f"train.steps={steps}"])
        self._settle([one.node for one in spec.participants], progress)
        plan = job.plan_resume(spec, begin=begin)
        return self.launch(
            plan.spec, is_queued=is_queued, submitted_by=submitted_by, progress=progress
        )

    def checkpoints(self, job_id: str, *, progress: Progress = SILENT) -> Checkpoints:
        """What the run of a job has saved: to list, pin, delete, copy elsewhere and export.

        Raises:
            JobNotFoundError, SpecError: as for :meth:`job`.
        """
        from jupyter_mntrain.cluster.files.checkpoints import Checkpoints

        return Checkpoints(self, self.job(job_id, progress=progress))

    def jobs(
        self, *, search: str = "", everything: bool = False, sort: JobSort = "started"
    ) -> tuple[JobView, ...]:
        """The jobs that have not ended, and the newest 20 ended ones, of all reachable nodes.

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
        """The jobs that this driver has heard of, newest first. Contacts no node."""
        return tuple(self._driver.live.jobs.values())

    def known_job(self, job_id: JobId) -> Job:
        """A job by its full id, without a check that any node knows it."""
        from jupyter_mntrain.cluster.job import Job

        return Job(self._driver, job_id)

    def job(self, job_id: str, *, progress: Progress = SILENT) -> Job:
        """A job of any driver, by its id or the beginning of it.

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
        on_skipped: Callable[[RefusedError], object] = bool,
    ) -> tuple[LinkMeasurement, ...]:
        """Measure every ordered pair in turn, about 2 s each. The senders store the results.

        Args:
            participants: nodes and interfaces; default: all nodes, and all that they share.
            how: which links, and for how long; default: all that are due.
            on_skipped: receives why a network could not be measured, if another one could.

        Raises:
            SpecError, NodeError, RefusedError: as for :meth:`launch`; or a job is in the way.
        """
        from jupyter_mntrain.cluster.launch.measure import measure_participants
        from jupyter_mntrain.plan.networks.measuring import MEASURING

        if participants is None:
            self._settle((), progress)
            participants = [Participant(node=info.node_id) for info in self._search.usable()]
        work = measure_participants(
            self._driver.launcher(), participants, how or MEASURING, progress, on_skipped
        )
        return self._driver.loop.run(work)
