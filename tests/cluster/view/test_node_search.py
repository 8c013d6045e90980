"""Grace period: when a new driver stops waiting. Time passes only while a test waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_mntrain.cluster.view.node_search import CONNECT_S, DISCOVERY_S, GracePeriod
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.node import NodeView

STEP_S = 0.1


class StillTime:
    """A view that changes as time passes, and the only clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.nodes: tuple[NodeView, ...] = ()
        self.missed_s = 0.0
        self.changes = self
        self.events: dict[float, Callable[[], None]] = {}

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def wait_until(self, is_true: Callable[[], object], timeout_s: float) -> bool:
        end = self.now + timeout_s
        while not is_true():
            if self.now >= end:
                return False
            self.now = min(end, self.now + STEP_S)
            for due in [due for due in self.events if due <= self.now]:
                self.events.pop(due)()
        return True

    def become(self, at_s: float, *nodes: NodeView) -> None:
        self.events[100.0 + at_s] = lambda: setattr(self, "nodes", nodes)

    @property
    def waited_s(self) -> float:
        return self.now - 100.0


OFF = Problem(kind=Kind.NO_ANSWER, cause="no answer")
BUSY = Problem(kind=Kind.SLOW_TO_ANSWER, cause="accepted the connection")
REFUSED = Problem(kind=Kind.CONNECTION_REFUSED, cause="refused")


def node(liveness: str = "connecting", **fields) -> NodeView:
    return NodeView(
        address="10.0.0.1:8765", **({"found_by": "mdns", "liveness": liveness} | fields)
    )


@pytest.fixture
def time() -> StillTime:
    return StillTime()


def wait(time: StillTime, is_enough: Callable[[], object] = lambda: False) -> bool:
    return GracePeriod(time, time).wait(is_enough)  # type: ignore[arg-type]


def test_a_brief_wait_is_for_finding_nodes_not_for_their_answers(time):
    time.become(0.1, node())
    GracePeriod(time, time).wait_briefly(lambda: False)
    assert time.waited_s == pytest.approx(DISCOVERY_S)
    GracePeriod(time, time).wait_briefly(lambda: True)
    assert time.waited_s == pytest.approx(DISCOVERY_S)


def test_enough_ends_it_at_once(time):
    assert wait(time, lambda: True)
    assert time.waited_s == 0


def test_where_everybody_has_answered_discovery_has_its_time_and_no_more(time):
    time.nodes = (node("up"), node("lost"))
    assert not wait(time)
    assert time.waited_s == pytest.approx(DISCOVERY_S)


def test_a_node_that_still_connects_is_waited_for(time):
    time.nodes = (node("up"), node())
    time.become(7.0, node("up"), node("up"))
    assert not wait(time)
    assert DISCOVERY_S < time.waited_s == pytest.approx(7.0, abs=2 * STEP_S)


def test_what_is_enough_may_come_while_another_still_connects(time):
    time.nodes = (node(), node())
    time.become(4.0, node("up"), node())
    assert wait(time, lambda: any(one.liveness == "up" for one in time.nodes))
    assert time.waited_s == pytest.approx(4.0, abs=2 * STEP_S)


def test_a_node_that_never_gets_on_is_not_waited_for_without_end(time):
    time.nodes = (node(),)
    assert not wait(time)
    assert time.waited_s == pytest.approx(CONNECT_S)


@pytest.mark.parametrize(
    ("view", "waits"),
    [
        (node(problem=OFF), True),
        (node(problem=OFF, found_by="typed"), True),
        (node(problem=OFF, found_by="remembered"), False),
        (node(problem=BUSY, found_by="remembered"), True),
        (node(found_by="remembered"), True),
        (node(problem=REFUSED), False),
        (node("suspect"), False),
    ],
)
def test_who_has_answered_in_its_way_is_not_waited_for(time, view, waits):
    time.nodes = (view,)
    wait(time)
    assert (time.waited_s > DISCOVERY_S + STEP_S) is waits


def test_what_was_missed_while_this_process_starved_is_given_back(time):
    time.missed_s = 3.0
    assert not wait(time)
    assert time.waited_s == pytest.approx(DISCOVERY_S + 3.0)
