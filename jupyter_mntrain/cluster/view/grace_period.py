"""Grace period of a new driver: no node counts as missing before it could have been heard."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_mntrain.cluster.view.agent_watch import CONNECT_S, Clock
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.node_view import NodeView

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
