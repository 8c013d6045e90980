"""Cluster usage: how busy nodes were over time, and how fast their devices are."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final

from jupyter_mntrain.cluster.launch.measure_devices import NodeDevices, measure_devices
from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.metrics.node_history import LONGEST_S, MOST_POINTS, POINTS, NodeHistory
from jupyter_mntrain.model.errors import bad_argument
from jupyter_mntrain.model.records.job import Participant

HOUR_S: Final = 3600.0


class ClusterUsage:
    """The histories of a cluster's nodes, from :attr:`Cluster.usage`. Safe from any thread."""

    def __init__(self, driver: DriverSession) -> None:
        self._driver = driver

    def history(
        self,
        node: str,
        *,
        last_s: float = HOUR_S,
        until_s: float | None = None,
        points: int = POINTS,
        progress: Progress = SILENT,
    ) -> NodeHistory:
        """Ask a node for its past use of CPUs, GPUs and interfaces, with the jobs at that time.

        Its agent keeps one value per second for an hour, one per minute for a day and one per 10
        minutes for a week. The finest that reach back are taken, joined to ``points``.

        Args:
            node: name, id or host name.
            last_s: seconds before the end, at most a week.
            until_s: Unix time of the end; default: now.
            points: the most that a line has, 2 to ``MOST_POINTS``.

        Raises:
            SpecError: the node is unknown, or there is no such time or number of points.
            NodeError: it does not answer.
        """
        if not last_s > 0:
            raise bad_argument("last_s", last_s, "seconds, more than 0")
        if not 2 <= points <= MOST_POINTS:
            raise bad_argument("points", points, f"2 to {MOST_POINTS}")
        self._driver.search.wait_until_known([node], progress)
        client = self._driver.search.client(node)
        end_s = self._driver.clock.time() if until_s is None else until_s
        since_s = int(end_s - min(last_s, LONGEST_S))
        return self._driver.loop.run(client.node_history(max(0, since_s), ceil(end_s), points))

    def measure_devices(
        self,
        participants: Sequence[Participant],
        *,
        python: str | None = None,
        progress: Progress = SILENT,
    ) -> tuple[NodeDevices, ...]:
        """Measure the speed of each node's CPU or GPUs with all of its participant's ranks at once,
        about 10 s per dtype.

        All machines measure at once, nodes of one machine in turn; their agents keep the results.

        Args:
            participants: nodes with numbers of processes, and GPUs.
            python: interpreter of the job on the nodes; default: that of the agent.

        Returns:
            One for each participant: what was measured, or why it was not.

        Raises:
            SpecError: a node is unknown.
            NodeError: one has not answered yet.
        """
        clients = [self._driver.search.client(one.node) for one in participants]
        machines = [self._driver.search.info(one.node).boot_id for one in participants]
        work = measure_devices(participants, clients, machines, python=python, progress=progress)
        return self._driver.loop.run(work)
