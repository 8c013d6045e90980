"""Grace period of a fresh driver: nothing is judged missing before it could be heard."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.failure.kinds import SILENCES, Kind
from jupyter_mntrain.model.records.node_view import NodeView

SETTLE_S = tunables.seconds("cluster.settle_s")

CONNECT_S = tunables.seconds("cluster.connect_s")


class GracePeriod:
    """Begins when it is made; waits may come from any thread.

    Args:
        live: where nodes appear.
        clock: monotonic seconds.
    """

    def __init__(self, live: ClusterView, clock: Clock) -> None:
        self.begun = clock.monotonic()
        self._live = live
        self._clock = clock

    def wait(self, is_enough: Callable[[], object]) -> bool:
        """Wait until ``is_enough``, or until every node that can be found was; the condition then.

        In a notebook that has been open for a while this returns at once.
        """
        changes = self._live.changes
        return (
            changes.wait_until(is_enough, self._left_s(SETTLE_S))
            or changes.wait_until(lambda: is_enough() or self._is_heard(), self._left_s(CONNECT_S))
        ) and bool(is_enough())

    def _is_heard(self) -> bool:
        return not any(map(_is_connecting, self._live.nodes))

    def _left_s(self, whole_s: float) -> float:
        # What this process was too starved to hear does not count.
        until_s = self.begun + whole_s + self._live.missed_s
        return max(0.0, until_s - self._clock.monotonic())


def _is_connecting(view: NodeView) -> bool:
    """Whether it may still answer; a remembered address that times out is most likely off."""
    kind = view.problem.kind if view.problem is not None else None
    is_slow = kind is Kind.NO_ANSWER and view.found_by != "remembered"
    return view.liveness == "connecting" and (kind not in SILENCES or is_slow)
