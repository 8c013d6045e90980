"""Launching cluster: the part of the API that starts jobs, or says what starting one would do."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.cluster.view.node_search import NodeSearch, refuse_unusable
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.model.ids import new_job_id

if TYPE_CHECKING:
    from jupyter_mntrain.cluster.job import Job
    from jupyter_mntrain.cluster.launch.begin import BeginPlan
    from jupyter_mntrain.launch import NodeCommand
    from jupyter_mntrain.launch.project.stage import StagedProject
    from jupyter_mntrain.model.api import PortStatus
    from jupyter_mntrain.model.failure.problem import Problem
    from jupyter_mntrain.model.records.job import JobSpec, Participant
    from jupyter_mntrain.model.records.node import FoundWorkplace


class LaunchingCluster:
    """The base of :class:`~jupyter_mntrain.cluster.Cluster` that starts jobs."""

    _driver: DriverSession
    _search: NodeSearch

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
        self._settle([member.node for member in wanted], progress)
        for view in self._driver.live.nodes:
            # Two machines with one id seem to be one node that is named twice.
            if view.is_conflict and names & {view.name, *(view.info.names if view.info else ())}:
                refuse_unusable(view)
        return choose_participants(wanted, self._search.usable(), even_busy=even_busy)

    def port_status(self, node: str, port: int, interface: str | None = None) -> PortStatus:
        """Ask ``node`` whether ``port`` is free for a head; leases nothing.

        Args:
            interface: the one whose address to try; default: the agent's own address.

        Raises:
            SpecError, NodeError: the node is unknown, or does not answer.
            RefusedError: no such port or interface exists.
        """
        return self._driver.loop.run(self._search.client(node).port_status(port, interface))

    def workplaces(self, spec: JobSpec) -> tuple[FoundWorkplace, ...]:
        """What each participant has of what a job runs in; empty if that is the agents' own."""
        return self._driver.loop.run(self._driver.launcher().workplaces(spec))

    def with_hub_commit(
        self,
        spec: JobSpec,
        *,
        on_note: Callable[[Problem], object] = bool,
        progress: Progress = SILENT,
    ) -> JobSpec:
        """The job with the commit and copy of its model, if its recipe names one of the Hugging
        Face hub, ``org/name``; a launch does so, too. The config comes into this machine's cache.

        Args:
            on_note: told if the hub did not answer, and an older commit may be used.

        Raises:
            RecipeError: the hub has no such model, or the trainer cannot use it.
            RefusedError: the hub does not answer, or refuses.
        """
        from jupyter_mntrain.cluster.files.hub_models import with_hub_commit

        return self._driver.loop.run(with_hub_commit(spec, progress, on_note))

    def dry_run(self, spec: JobSpec, *, progress: Progress = SILENT) -> tuple[NodeCommand, ...]:
        """The exact command and environment of every node; nothing is started or leased.

        The job id is ``j-00000000``, and the port 0 unless the spec has one: only a launch
        decides them. A model of the hub has the name of its copy, as after :meth:`with_hub_commit`.

        Raises:
            SpecError, NodeError, RecipeError, RefusedError: as for :meth:`launch`.
        """
        from jupyter_mntrain.launch.driver_values import with_values

        self._settle([one.node for one in spec.participants], progress)
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
        self._settle([one.node for one in spec.participants], progress)
        spec = self.plan_launch(spec, begin).spec if begin else spec
        launcher = self._driver.launcher(submitted_by)
        launcher.is_checked, launcher.is_fetched, launcher.on_note = is_checked, is_fetched, on_note
        start = launcher.queue if is_queued else launcher.launch
        spec, staged = with_project(spec, project)
        view = self._driver.loop.run(start(spec, new_job_id(), project=staged, progress=progress))
        return Job(self._driver, view.job_id)

    def plan_launch(self, spec: JobSpec, begin: str) -> BeginPlan:
        """What :meth:`launch` would begin with; raises the same errors, and starts nothing."""
        from jupyter_mntrain.cluster.launch.begin import plan_beginning

        self._settle([one.node for one in spec.participants], SILENT)
        return self._driver.loop.run(plan_beginning(self._driver.live, spec, begin))

    def _settle(self, names: Sequence[str], progress: Progress) -> None:
        self._search.settle(names, progress)
        self._search.refuse_awaited(names)
