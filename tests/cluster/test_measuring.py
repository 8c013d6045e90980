"""Measuring links: one driver at a time in a cluster, and never silently beside a job."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

import pytest

from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.cluster.launch import measure
from jupyter_mntrain.model.errors import MntrainError, NodeError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.node import Capacity, Interface, LinkMeasurement
from jupyter_mntrain.model.records.probes import MEASURE_LEASE_S, MeasureLease
from jupyter_mntrain.plan.networks.measuring import Measuring
from tests.cluster.conftest import wait_for
from tests.cluster.near import Open, spec
from tests.standin.agent import FakeAgent
from tests.standin.elsewhere import Elsewhere
from tests.standin.faults import Held, LoseRequest, Refuse
from tests.standin.heard import Heard
from tests.standin.nodes import nic
from tests.wording import says

KIM = MeasureLease(key="kim", who="kim@laptop")


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "LOOK_S", 0.02)


BOTH = [Participant(node="node1"), Participant(node="node2")]


def waits(heard: Heard) -> bool:
    """Whether a driver has said that it waits, which it does for nobody knows how long."""
    return any((0, None) in told for told in heard.pieces().values())


def is_free(agent: FakeAgent) -> bool:
    """Whether nobody has the turn."""
    try:
        agent.turn.refuse_others("nobody", agent.name)
    except RefusedError:
        return False
    return True


def test_a_second_driver_waits_for_the_first(
    open_cluster: Open, two: list[FakeAgent], elsewhere: Elsewhere
) -> None:
    one, other = open_cluster(*two), open_cluster(*two)
    for driver in (one, other):
        assert len(driver.participants(["node1:1", "node2:1"])) == 2
    released = asyncio.Event()
    elsewhere.do(lambda: two[0].faults["send"].append(Held(released)))
    heard = Heard()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(one.measure)
        wait_for(lambda: not is_free(two[0]) and not is_free(two[1]))
        second = pool.submit(other.measure, BOTH, progress=heard)
        wait_for(lambda: waits(heard))
        assert not second.done()
        elsewhere.do(released.set)
        assert len(first.result(20)) == len(second.result(20)) == 2
    assert all(map(is_free, two))


def test_a_node_that_does_not_measure_keeps_others_from_it_too(
    open_cluster: Open, two: list[FakeAgent], elsewhere: Elsewhere
) -> None:
    third = elsewhere.agent("node3")
    driver = open_cluster(*two, third)
    wait_for(lambda: [node.liveness for node in driver.nodes()] == ["up"] * 3)
    third.turn.take(KIM, {}, "node3")
    with pytest.raises(RefusedError) as caught:
        driver.measure(BOTH, Measuring(patience_s=0.0))
    assert caught.value.kind is Kind.TOO_MANY
    assert says("kim@laptop is measuring links", str(caught.value))
    assert all(map(is_free, two))


def test_the_turn_of_a_driver_that_died_ends_by_itself(near: Cluster, two: list[FakeAgent]) -> None:
    two[1].turn.take(KIM, {}, "node2")
    dead, now_s = two[1].turn, [0.0]
    dead._clock = lambda: now_s[0]
    dead.take(KIM, {}, "node2")
    heard = Heard()
    with ThreadPoolExecutor() as pool:
        measuring = pool.submit(near.measure, BOTH, progress=heard)
        wait_for(lambda: waits(heard))
        now_s[0] = MEASURE_LEASE_S + 1
        assert len(measuring.result(20)) == 2


def test_a_job_in_the_way_is_named_unless_it_is_wanted(near: Cluster, two: list[FakeAgent]) -> None:
    two[1].training["lo"] = JobId("j-01234567")
    with pytest.raises(RefusedError) as caught:
        near.measure()
    assert caught.value.kind is Kind.JOBS_RUNNING
    assert says("job j-01234567 trains over lo", str(caught.value))
    assert all(map(is_free, two))
    assert len(near.measure(how=Measuring(is_beside_jobs=True))) == 2


def with_link(outdated: str) -> tuple[Interface, ...]:
    """A card over which the first of two nodes has measured the link to the second."""
    capacity = Capacity(2e8, "measured", time_s=time.time(), condition="alone")
    link = LinkMeasurement(
        "node1", "node2", "eth1", "10.0.1.2", capacity, ends=(None, None), outdated=outdated
    )
    return (nic("eth1", "10.0.1.1/24", links=(link,)),)


@pytest.mark.parametrize(("outdated", "sent"), [("eth1 was down", 1), ("", 0)])
def test_a_launch_measures_again_what_has_changed(
    open_cluster: Open, elsewhere: Elsewhere, outdated: str, sent: int
) -> None:
    one = elsewhere.agent("node1", boot_id="boot1", interfaces=with_link(outdated))
    other = elsewhere.agent("node2", boot_id="boot2", interfaces=(nic("eth1", "10.0.1.2/24"),))
    driver = open_cluster(one, other)
    heard = Heard()
    driver.launch(spec(), progress=heard)
    assert [route for _, route in one.requests + other.requests].count("send") == sent
    said = [what for what in heard.pieces() if what.startswith("measuring node1 → node2")]
    assert len(said) == sent


def test_a_launch_does_not_wait_for_a_driver_that_measures(
    open_cluster: Open, elsewhere: Elsewhere
) -> None:
    interfaces = with_link("eth1 was down")
    one = elsewhere.agent("node1", boot_id="boot1", interfaces=interfaces)
    other = elsewhere.agent("node2", boot_id="boot2", interfaces=(nic("eth1", "10.0.1.2/24"),))
    one.turn.take(KIM, {}, "node1")
    open_cluster(one, other).launch(spec())
    assert ("POST", "send") not in one.requests


def test_an_older_agent_without_turns_is_measured(
    near: Cluster, two: list[FakeAgent], elsewhere: Elsewhere
) -> None:
    unknown = Refuse(cause="no such route", kind=Kind.NO_SUCH_ROUTE, status=404)
    elsewhere.do(lambda: two[0].faults["measure lease"].extend([unknown] * 9))
    assert len(near.measure()) == 2


def test_a_link_that_fails_gives_the_turn_back(
    near: Cluster, two: list[FakeAgent], elsewhere: Elsewhere
) -> None:
    elsewhere.do(lambda: two[1].faults["listen"].append(Refuse(cause="cannot listen")))
    with pytest.raises(RefusedError, match="cannot listen"):
        near.measure()
    assert all(map(is_free, two))


def test_of_two_networks_one_that_fails_is_told_and_the_other_one_is_kept(
    open_cluster: Open, elsewhere: Elsewhere
) -> None:
    agents = [
        elsewhere.agent(
            f"node{last}",
            boot_id=f"boot{last}",
            interfaces=(nic("eth0", f"10.0.0.{last}/24"), nic("eth1", f"10.0.1.{last}/24")),
        )
        for last in (1, 2)
    ]
    driver = open_cluster(*agents)
    wait_for(lambda: [node.liveness for node in driver.nodes()] == ["up", "up"])
    elsewhere.do(lambda: agents[1].faults["listen"].append(Refuse(cause="cannot listen")))
    skipped: list[MntrainError] = []
    links = driver.measure(BOTH, Measuring(streams=4), on_skipped=skipped.append)
    assert [(one.sender, one.interface) for one in links] == [
        ("node1", "eth1"),
        ("node2", "eth0"),
        ("node2", "eth1"),
    ]
    assert ["cannot listen" in str(one) for one in skipped] == [True]


@pytest.fixture
def three(open_cluster: Open, two: list[FakeAgent], elsewhere: Elsewhere) -> Cluster:
    driver = open_cluster(*two, elsewhere.agent("node3"))
    wait_for(lambda: [node.liveness for node in driver.nodes()] == ["up"] * 3)
    return driver


def ends(links: Iterable[LinkMeasurement]) -> list[tuple[str, str]]:
    return [(link.sender[-1], link.receiver[-1]) for link in links]


ALL = list(permutations("123", 2))


def test_a_direction_that_fails_leaves_the_others(
    three: Cluster, two: list[FakeAgent], elsewhere: Elsewhere
) -> None:
    fails = Refuse(cause="cannot listen")
    elsewhere.do(lambda: two[1].faults["listen"].extend([fails, fails]))
    measured: list[LinkMeasurement] = []
    with pytest.raises(RefusedError, match="cannot listen"):
        three.measure(on_measured=measured.append)
    others = [pair for pair in ALL if pair[1] != "2"]
    assert ends(measured) == others, "who is not told of failures learns of them at the end"
    elsewhere.do(lambda: two[1].faults["listen"].append(fails))
    skipped: list[MntrainError] = []
    assert len(three.measure(on_skipped=skipped.append)) == len(ALL) - 1
    [only] = skipped
    assert says("node1 → node2 over lo: cannot listen", only.cause)
    assert only.fix == fails.fix


def test_a_node_that_falls_silent_leaves_the_links_of_the_others(
    three: Cluster, two: list[FakeAgent], elsewhere: Elsewhere
) -> None:
    elsewhere.do(lambda: two[1].faults["listen"].extend([LoseRequest()] * 9))
    skipped: list[MntrainError] = []
    measured = three.measure(on_skipped=skipped.append)
    assert ends(measured) == [("1", "3"), ("3", "1")]
    assert len(skipped) == 4
    assert {type(one) for one in skipped} == {NodeError}
    assert {one.node for one in skipped} == {"node2"}


def test_a_job_that_begins_ends_the_measurement_and_what_was_measured_stays(
    three: Cluster, two: list[FakeAgent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "RENEW_AFTER_S", -1.0)

    def begin(_: LinkMeasurement) -> None:
        two[1].training["lo"] = JobId("j-01234567")

    skipped: list[MntrainError] = []
    measured = three.measure(on_measured=begin, on_skipped=skipped.append)
    assert ends(measured) == ALL[:1]
    assert [one.kind for one in skipped] == [Kind.JOBS_RUNNING] * 5
    assert all(map(is_free, two))
