"""Cluster: the public API over agents in another thread, as a notebook or script uses it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jupyter_mntrain
from jupyter_mntrain import cluster as room
from jupyter_mntrain.cluster import Cluster, Job, PeerBook, StaticDiscovery
from jupyter_mntrain.cluster import cluster as cluster_module
from jupyter_mntrain.cluster.admission import desk
from jupyter_mntrain.cluster.view import node_search
from jupyter_mntrain.cluster.view.peer_book import SeenNode
from jupyter_mntrain.model.errors import NodeError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.trust.authority import Authority
from jupyter_mntrain.trust.driver_membership import clusters_directory
from tests.cluster.conftest import wait_for
from tests.cluster.near import Open, spec
from tests.standin.agent import FakeAgent
from tests.standin.elsewhere import Elsewhere
from tests.standin.faults import Hang, Refuse, Slow
from tests.standin.heard import Heard
from tests.wording import reads, wording


def test_the_package_offers_the_same_names() -> None:
    assert jupyter_mntrain.Cluster is Cluster
    assert jupyter_mntrain.Job is Job
    assert sorted(room.__all__) == room.__all__
    assert all(hasattr(room, name) for name in room.__all__)


def test_nodes_are_there_as_soon_as_they_answer(near: Cluster) -> None:
    assert [(node.name, node.liveness, node.found_by) for node in near.nodes()] == [
        ("node1", "up", "typed"),
        ("node2", "up", "typed"),
    ]
    assert repr(near) == "<Cluster 'default': 2 nodes>"


@pytest.mark.parametrize("name", ["", "a b", "ü", "-x", "a/b", "x" * 64])
def test_a_name_with_odd_characters_is_one_line(name: str) -> None:
    with pytest.raises(SpecError, match=wording("is not a cluster name")):
        Cluster(name)


def test_discovered_agents_of_another_cluster_are_never_shown(
    open_cluster: Open, elsewhere: Elsewhere
) -> None:
    ours = elsewhere.agent("ours")
    theirs = elsewhere.agent("theirs", authority=Authority.make("theirs"))
    both = [ours.where, theirs.where]
    made = open_cluster(discovery=StaticDiscovery(both))
    wait_for(
        lambda: any(
            node.problem and node.problem.kind is Kind.WRONG_CLUSTER for node in made.nodes()
        )
    )
    wait_for(lambda: any(node.liveness == "up" for node in made.nodes()))
    assert [node.name for node in made.nodes() if node.info] == ["ours"]


# Adding and forgetting


def test_a_node_added_is_up_and_remembered_by_the_next_cluster(
    open_cluster: Open, elsewhere: Elsewhere
) -> None:
    agent = elsewhere.agent("node9")
    first = open_cluster()
    view = first.discovery.add(agent.where)
    assert (view.name, view.liveness, view.found_by) == ("node9", "up", "typed")
    assert PeerBook().addresses("default") == (agent.where,)
    second = open_cluster()
    wait_for(lambda: [node.liveness for node in second.nodes()] == ["up"])
    (again,) = second.nodes()
    assert (again.name, again.found_by) == ("node9", "remembered")


def test_adding_twice_or_by_another_address_is_still_one_node(
    open_cluster: Open, elsewhere: Elsewhere
) -> None:
    agent = elsewhere.agent("node9", address="0.0.0.0")
    made = open_cluster()
    for host in ("127.0.0.1", "127.0.0.1", "localhost"):
        assert made.discovery.add(f"{host}:{agent.port}").name == "node9"
    assert [node.name for node in made.nodes()] == ["node9"]


def test_adding_says_what_is_wrong_and_remembers_nothing(
    open_cluster: Open, elsewhere: Elsewhere
) -> None:
    dead = elsewhere.agent("dead")
    elsewhere.do(dead.die)
    foreign = elsewhere.agent("foreign", authority=Authority.make("theirs"))
    old = elsewhere.agent("old", protocol=0)
    odd = elsewhere.agent("odd")
    no = Refuse(status=503, kind=Kind.BROKEN, cause="starting")
    odd.faults["node"] += [no, no]  # once for who it is
    made = open_cluster()
    for agent, kind, said in (
        (dead, Kind.CONNECTION_REFUSED, dead.where),
        (foreign, Kind.WRONG_CLUSTER, "'theirs'"),
        (old, Kind.OTHER_PROTOCOL, " 0"),
        (odd, Kind.BROKEN, "starting"),
    ):
        with pytest.raises(NodeError) as caught:
            made.discovery.add(agent.where)
        assert caught.value.kind is kind
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(SpecError, match=wording("HOST:PORT")):
        made.discovery.add("not an address")
    assert made.nodes() == ()
    assert PeerBook().addresses("default") == ()


def test_forgetting_by_address_and_by_name(open_cluster: Open, two: list[FakeAgent]) -> None:
    made = open_cluster()
    for agent in two:
        made.discovery.add(agent.where)
    made.discovery.forget("node1")
    made.discovery.forget(two[1].where)
    assert made.nodes() == ()
    assert PeerBook().addresses("default") == ()
    with pytest.raises(NodeError, match=wording("is known")):
        made.discovery.forget("10.0.0.1")


# Choosing


def test_nobody_named_is_everybody(near: Cluster) -> None:
    assert near.participants() == (Participant(node="node1"), Participant(node="node2"))


def test_members_are_checked_against_the_nodes(near: Cluster) -> None:
    assert near.participants(["node2:3:lo", "node1:1"]) == (
        Participant(node="node2", nproc=3, interface="lo"),
        Participant(node="node1"),
    )
    with pytest.raises(SpecError, match=wording("use node")):
        near.participants(["node3:1"])
    with pytest.raises(SpecError, match="HOST:N"):
        near.participants(["node1:x"])


def test_a_cluster_just_opened_gives_the_named_nodes_time_to_be_found(
    open_cluster: Open, two: list[FakeAgent]
) -> None:
    assert len(open_cluster(*two).participants(["node1:1", "node2:1"])) == 2


def test_a_lost_node_cannot_be_chosen_and_says_why(
    near: Cluster, elsewhere: Elsewhere, two: list[FakeAgent], monkeypatch: pytest.MonkeyPatch
) -> None:
    from jupyter_mntrain.cluster.view import agent_watch

    monkeypatch.setattr(agent_watch, "SUSPECT_AFTER_S", 0.2)
    monkeypatch.setattr(agent_watch, "LOST_AFTER_S", 0.4)
    elsewhere.do(two[1].die)
    wait_for(lambda: near.nodes()[1].liveness == "lost")
    with pytest.raises(NodeError, match=wording("node2: connection refused")):
        near.participants(["node1:1", "node2:1"])
    assert near.participants() == (Participant(node="node1"),)


def test_a_dry_run_shows_every_node_and_touches_none(near: Cluster, two: list[FakeAgent]) -> None:
    commands = near.dry_run(spec(environment={"A": "1"}))
    assert [command.node for command in commands] == ["node1", "node2"]
    assert all(command.environment["A"] == "1" for command in commands)
    assert [agent.leases for agent in two] == [{}, {}]


def test_measuring_every_ordered_pair_one_after_the_other(
    near: Cluster, elsewhere: Elsewhere, open_cluster: Open, two: list[FakeAgent]
) -> None:
    third = elsewhere.agent("node3")
    near.discovery.add(third.where)
    measured = near.measure()
    assert [(link.sender, link.receiver) for link in measured] == [
        ("node1", "node2"),
        ("node1", "node3"),
        ("node2", "node1"),
        ("node2", "node3"),
        ("node3", "node1"),
        ("node3", "node2"),
    ]
    assert measured[0].address == two[1].address
    assert {link.capacity.source for link in measured} == {"measured"}
    heard = Heard()
    some = near.measure([Participant(node="node3"), Participant(node="node1")], progress=heard)
    assert len(some) == 2
    assert list(heard.pieces().items()) == [
        ("asking the nodes", [(0, 2), (1, 2), (2, 2)]),
        ("measuring node3 → node1, about 4\u00a0s left", [(0, 2)]),
        ("measuring node1 → node3, about 2\u00a0s left", [(1, 2)]),
    ]


def test_a_node_that_is_not_there_yet_is_counted_as_missing(near: Cluster) -> None:
    heard = Heard()
    with pytest.raises(SpecError):
        near.participants(["node1:1", "node9:1"], progress=heard)
    near.participants(progress=heard)
    assert heard.pieces() == {"looking for nodes": [(1, 2), (2, None)]}


def test_reading_nodes_and_jobs_asks_nobody(near: Cluster, job: Job, two: list[FakeAgent]) -> None:
    before = [len(agent.requests) for agent in two]
    for _ in range(100):
        near.nodes()
        near.jobs()
        job.view()
    assert [len(agent.requests) for agent in two] == before


def test_it_may_be_used_from_many_threads(near: Cluster, job: Job) -> None:
    errors: list[BaseException] = []

    def use() -> None:
        try:
            for _ in range(5):
                near.nodes()
                job.history()
                job.logs()
                near.participants()
        except BaseException as error:  # noqa: BLE001  # handed to the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_closing_twice_is_once_and_the_job_goes_on(
    open_cluster: Open, two: list[FakeAgent], job: Job
) -> None:
    with open_cluster(*two) as made:
        wait_for(lambda: [node.liveness for node in made.nodes()] == ["up", "up"])
    made.close()
    assert [agent.count("stop") for agent in two] == [0, 0]
    assert job.state == "running"


def test_opening_takes_no_time_even_if_nobody_answers(open_cluster: Open) -> None:
    begun = time.monotonic()
    open_cluster(addresses=["127.0.0.1:9"])
    assert time.monotonic() - begun < node_search.DISCOVERY_S


@pytest.fixture
def impatient_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream without a first message is soon called unanswered, and whoever is silent lost."""
    for name, limit_s in {
        "cluster.view.node_search.DISCOVERY_S": 0.1,
        "cluster.view.agent_watch.LOST_AFTER_S": 0.6,
        "cluster.agents.client.SILENT_STREAM_S": 0.5,
    }.items():
        monkeypatch.setattr(f"jupyter_mntrain.{name}", limit_s)


@pytest.mark.usefixtures("impatient_streams")
def test_a_node_that_answers_late_is_waited_for(
    two: list[FakeAgent], open_cluster: Open, elsewhere: Elsewhere, job: Job
) -> None:
    """Its first streams are broken off as unanswered: it was called lost and unknown then."""
    for agent in two:
        agent.faults["stream"] += [Hang(), Hang()]
    made = open_cluster(*two)
    assert [one.nproc for one in made.participants(["node1", "node2"])] == [1, 1]
    assert made.job(job.id).id == job.id


def test_a_copied_machine_is_told_from_a_node_that_is_named_twice(
    elsewhere: Elsewhere, open_cluster: Open
) -> None:
    """The copy, which answers first, has the other's name and id, and a host name of its own."""
    first = elsewhere.agent("node1", hostname="node1")
    copy = elsewhere.agent("node1", hostname="node2")
    first.faults["stream"] += [Slow(0.5)]
    made = open_cluster(first, copy)
    with pytest.raises(NodeError) as caught:
        made.participants(["node1", "node2"])
    assert caught.value.kind is Kind.NODE_ID_TWICE


@pytest.mark.usefixtures("impatient_streams")
def test_a_node_that_never_answers_is_named_with_the_seconds(
    two: list[FakeAgent], open_cluster: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_search, "CONNECT_S", 1.5)
    two[1].faults["stream"] += [Hang()] * 100
    peers = PeerBook(tmp_path / "peers.json")
    node = SeenNode(
        node_id=two[1].info.node_id, name="node2", addresses=(two[1].where,), seen_s=time.time()
    )
    peers.was_seen("default", node)
    made = open_cluster(two[0], peers=peers)
    for ask in (
        lambda: made.participants(["node2"]),
        lambda: made.launch(spec("node1", "node2")),
        lambda: made.port_status("node2", 29500),
        lambda: made.job("j-0abc"),
        lambda: made.participants(["nod2"]),
    ):
        with pytest.raises(NodeError) as caught:
            ask()
        assert caught.value.kind is Kind.NO_ANSWER
        assert reads(r"node2 has not answered yet \(\d+(\.\d)? s\)", caught.value.cause)
    assert made.participants(["node1"])


def test_a_node_may_answer_before_all_is_set_up(
    two: list[FakeAgent], open_cluster: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a remembered one does that is near: it was lost for good then."""

    class Eager(cluster_module.DriverSession):
        def __init__(self, *given: Any, on_seen: Callable[[Any], None], **more: Any) -> None:
            super().__init__(*given, on_seen=on_seen, **more)
            on_seen(two[0].info)

    monkeypatch.setattr(cluster_module, "DriverSession", Eager)
    made = open_cluster(*two)
    wait_for(lambda: [node.liveness for node in made.nodes()] == ["up", "up"])


def test_a_register_that_cannot_be_read_is_told_and_ends_nothing(
    open_cluster: Open,
    two: list[FakeAgent],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(desk, "RENEW_EVERY_S", 0.0)
    made = open_cluster(*two)
    register = clusters_directory() / made.name / "register.json"
    for torn in ("{", "[]"):
        register.write_text(torn)
        told = caplog.text.count("register.json")
        wait_for(lambda: caplog.text.count("register.json") == told + 1)  # noqa: B023
    wait_for(lambda: [node.liveness for node in made.nodes()] == ["up", "up"])
