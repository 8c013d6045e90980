"""Node search: waits in a new driver for the nodes it needs, and names those that are silent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.view.agent_watch import CONNECT_S, Clock
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.launch.progress import Progress
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import NodeError, not_answered
from jupyter_mntrain.model.failure.kinds import TAKEN, Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.node import NodeInfo, NodeView, awaited_words
from jupyter_mntrain.plan.lookup import find_node


class NodeSearch:
    """Finds nodes that answer, by name, id or host name. Safe from any thread.

    Args:
        live: the live view.
        grace: how long a new driver waits.
        clock: for how long nodes have been silent.
    """

    def __init__(self, live: ClusterView, grace: GracePeriod, clock: Clock) -> None:
        self._live = live
        self._grace = grace
        self._clock = clock

    def wait_until_known(self, names: Sequence[str], progress: Progress) -> None:
        """Wait, in a new driver, until the nodes in ``names`` are found or should have been.

        While several of these names lead to one node, it is waited on: a copy of a machine has the
        id of one node and the host name of another.
        """

        def found() -> bool:
            usable = self.usable()
            known = {name: info.node_id for info in usable for name in info.names}
            missing = [name for name in names if name not in known]
            progress.report(
                "looking for nodes",
                len(names) - len(missing) if names else len(usable),
                len(names) or None,
            )
            if missing or not names:
                return False
            return len({known[name] for name in names}) == len(set(names))

        self._grace.wait(found)

    def glance(self, expected: int) -> None:
        """Wait, in a new driver, until this many nodes answer or discovery has had enough time.

        Args:
            expected: 0 if it is not known how many there are.
        """
        self._grace.wait_briefly(lambda: 0 < expected <= len(self.usable()))

    def usable(self) -> list[NodeInfo]:
        """Return the nodes that answer and can take part in a job."""
        return [
            info
            for view in self._live.nodes
            if (info := view.newest) and view.liveness in ("up", "suspect") and not view.is_conflict
        ]

    def client(self, node: str) -> AgentClient:
        """Return the client of a node that answers, by its name, id or host name.

        Raises:
            SpecError: it is unknown.
            NodeError: it does not answer.
        """
        info = self.info(node)
        address = next(view.address for view in self._live.nodes if view.info is info)
        return self._live.client(address, info.node_id, info.name)

    def info(self, node: str) -> NodeInfo:
        """Return the information of such a node; raises as :meth:`client` does."""
        self.refuse_awaited([node])
        return find_node(node, [view.info for view in self._live.nodes if view.info])

    def awaited(self) -> str:
        """Say which nodes have not answered yet, and for how long; empty if all have."""
        return awaited_words(self._live.nodes, self._clock.time())

    def refuse_awaited(self, names: Sequence[str]) -> None:
        """Raise the reason why nodes have not answered yet, rather than call them unknown.

        Args:
            names: nodes that are needed; empty = any.

        Raises:
            NodeError: it names the silent nodes, and for how long they have been.
        """
        for view in self._live.nodes:
            if view.name in names and not view.is_awaited:
                refuse_unusable(view)
        usable = self.usable()
        missing = set(names).difference(*(info.names for info in usable))
        if not missing and usable:
            return
        awaited = [view for view in self._live.nodes if view.is_awaited]
        meant = [view for view in awaited if {view.name, view.address} & missing]
        if awaited:
            nobody = f"no node named {' or '.join(sorted(missing))} is known"
            raise not_answered(
                awaited_words(meant or awaited, self._clock.time()),
                nobody if missing and not meant else "",
            )


def refuse_unusable(view: NodeView) -> None:
    """Refuse a node that does not answer, whose id two machines claim, or that a scheduler has
    taken back, of which only the records remain.
    """
    is_refused = view.liveness == "connecting" and view.problem is not None
    is_taken = view.problem is not None and view.problem.kind in TAKEN
    if view.is_conflict or view.liveness == "lost" or is_refused or is_taken:
        problem = view.problem or Problem(kind=Kind.SILENT, cause="does not answer")
        fix = problem.fix or "start it again, or omit it"
        raise NodeError(problem.cause, kind=problem.kind, fix=fix, node=view.name)


DISCOVERY_S = tunables.seconds("cluster.discovery_s")


class GracePeriod:
    """A grace period that starts when it is created. Safe from any thread.

    Args:
        live: the live view.
        clock: monotonic seconds.
    """

    def __init__(self, live: ClusterView, clock: Clock) -> None:
        self.begun = clock.monotonic()
        self._live = live
        self._clock = clock

    def begin_again(self) -> None:
        """Restart the period, as nodes that could not be heard before have just been found."""
        self.begun = self._clock.monotonic() - self._live.missed_s

    def wait(self, is_enough: Callable[[], object]) -> bool:
        """Wait until ``is_enough()``, or until all nodes should have been found. Returns the
        former.

        In a notebook that has been open for a while it returns at once.
        """
        changes = self._live.changes
        return (
            changes.wait_until(is_enough, self._left_s(DISCOVERY_S))
            or changes.wait_until(lambda: is_enough() or self._is_heard(), self._left_s(CONNECT_S))
        ) and bool(is_enough())

    def wait_briefly(self, is_enough: Callable[[], object]) -> None:
        """Like :meth:`wait`, but do not wait for nodes that were found and have not answered."""
        self._live.changes.wait_until(is_enough, self._left_s(DISCOVERY_S))

    def _is_heard(self) -> bool:
        return not any(map(_is_connecting, self._live.nodes))

    def _left_s(self, whole_s: float) -> float:
        # Time in which this process could not listen does not count.
        until_s = self.begun + whole_s + self._live.missed_s
        return max(0.0, until_s - self._clock.monotonic())


def _is_connecting(view: NodeView) -> bool:
    """Whether a node may still answer. A remembered node without a connection is probably off."""
    kind = view.problem.kind if view.problem is not None else None
    is_off = kind is Kind.NO_ANSWER and view.found_by == "remembered"
    return view.is_awaited and not is_off
