"""``nodes``, ``add``, ``forget``, ``measure``: text and data."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.node import Availability
from tests.standin.availability import offered
from tests.standin.cluster import StandInCluster, node, silent
from tests.standin.screen import Paper
from tests.wording import says


def test_nodes_shows_state_speed_capacity_and_the_diverging_version(do, text, cluster):
    cluster.become(node("muthur", 2, torch="2.12.0"), *cluster.nodes()[1:])
    shown = text(do("nodes").renderable)
    assert "● up" in shown
    assert "eno1 10.0.0.1/24" in shown
    assert "941\u00a0Mbit/s, measured" in shown
    assert "muthur: torch 2.12.0, " in shown
    assert says("muthur: torch 2.12.0, the others have 2.13.0", shown)
    assert "connection refused" in shown
    assert "Training traffic between nodes is neither encrypted" in shown
    assert "docker0" not in shown
    assert "docker0" in text(do("nodes", "--all").renderable)


@pytest.mark.parametrize("width", [80, 99, 100, 140])
def test_no_address_is_torn_at_any_width(do, width):
    nodes = [
        node("workstation-17", 201),
        silent("192.168.100.109:8765", "192.168.100.109:8765: connection refused. Fix: start it."),
    ]
    on = StandInCluster(nodes=nodes, jobs=[])
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(do("nodes", on=on).renderable)
    shown = console.file.getvalue()
    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    assert sum("192.168.100.109:8765" in line for line in lines) >= 1
    for whole in ("10.0.0.201:8765", "eno1 10.0.0.201/24", "workstation-17"):
        assert any(whole in line for line in lines), whole


@pytest.mark.parametrize("width", [80, 140])
def test_nodes_shows_what_cards_and_their_driver_can_do(do, width, cluster):
    view = node("muthur", 2, gpus=2)
    inventory = view.info.inventory
    first, second = (
        msgspec.structs.replace(gpu, compute_capability=able)
        for gpu, able in zip(inventory.gpus, [(8, 6), (7, 5)], strict=True)
    )
    versions = msgspec.structs.replace(inventory.versions, driver="570.1", driver_cuda="12.8")
    able = msgspec.structs.replace(inventory, gpus=(first, second), versions=versions)
    info = msgspec.structs.replace(view.info, inventory=able)
    cluster.become(msgspec.structs.replace(view, info=info))
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(do("nodes").renderable)
    shown = console.file.getvalue()
    assert "compute capability 8.6," in shown
    assert "7.5" in shown
    assert "driver\u00a0570.1, CUDA\u00a012.8" in shown
    assert max(map(len, shown.splitlines())) <= width


def test_nodes_shows_what_is_lent_and_why_not(do, text, cluster):
    drained = Problem(kind=Kind.DRAINED, cause="its owner drained it: exam", fix="leave it out")
    some = Availability(hours="Mon-Fri 19:00-07:00", gpus=(0,), memory_bytes=20 << 30)
    cluster.become(
        offered(node("muthur", 2, gpus=2), some, drained), offered(node("wopr", 1), Availability())
    )
    shown = text(do("nodes").renderable)
    assert "offered: GPU 0, 20.0\u00a0GiB each" in shown
    assert shown.count("offered: Mon-Fri 19:00-07:00") == 1
    assert says("muthur: its owner drained it: exam. Fix: leave it out.", shown)


def test_nodes_says_why_a_node_has_fewer_gpus_than_cards(do, text, cluster):
    view = node("muthur", 2, gpus=2)
    inventory = msgspec.structs.replace(view.info.inventory, gpu_note="GPU 2 is split")
    info = msgspec.structs.replace(view.info, inventory=inventory)
    cluster.become(msgspec.structs.replace(view, info=info))
    assert "GPU 2 is split" in text(do("nodes").renderable)


def test_nodes_data_keeps_everything(do, as_json, cluster):
    cluster.become(node("muthur", 2, torch="2.12.0"), *cluster.nodes()[1:])
    data = as_json(do("nodes"))
    assert [one["node"] for one in data] == ["muthur", "wopr", "hal", "10.0.0.9:8765"]
    assert data[0]["divergences"][0]["key"] == "torch"
    assert data[3]["liveness"] == "lost"


def test_an_empty_cluster_says_what_to_do(do, text):
    shown = text(do("nodes", on=StandInCluster()).renderable)
    assert "mntrain invite" in shown
    assert "mntrain add HOST:PORT" in shown


def test_why_nodes_are_missing_is_said(do, text):
    cluster = StandInCluster()
    cluster.problem = Problem(
        kind=Kind.NO_MULTICAST, cause="no multicast is received on 10.0.0.2", fix="open it"
    )
    cluster.strangers = ("hal of discovery",)
    shown = text(do("nodes", on=cluster).renderable)
    assert says("received on 10.0.0.2. Fix: open it.", shown)
    assert "Also announced here: hal of discovery." in shown


def test_measure_is_every_ordered_pair(do, text, as_json):
    outcome = do("measure", "--links", "wopr", "hal")
    assert [(one["sender"], one["receiver"]) for one in as_json(outcome)["links"]] == [
        ("wopr", "hal"), ("hal", "wopr"),
    ]  # fmt: skip
    shown = text(outcome.renderable)
    assert "941\u00a0Mbit/s" in shown
    assert "0.2\u00a0ms" in shown
    assert "alone" in shown
    assert "lower bound" not in shown
    assert "from \\ to" not in shown, "a matrix of two nodes would say nothing new"


def test_from_three_nodes_on_there_is_a_matrix(do, text, cluster, monkeypatch):
    three = cluster.measure([Participant(node=name) for name in ("wopr", "hal", "eddie")])
    monkeypatch.setattr(cluster, "measure", lambda *_, **__: three)
    shown = text(do("measure", "--links", "wopr", "hal").renderable)
    assert "from \\ to" in shown
    assert shown.count("0.2\u00a0ms") == 2 * 6


def test_a_disturbed_measurement_says_so(do, text, cluster, monkeypatch):
    [link, *_] = cluster.measure([Participant(node="wopr"), Participant(node="hal")])
    capacity = msgspec.structs.replace(link.capacity, condition="beside a job")
    disturbed = msgspec.structs.replace(link, capacity=capacity)
    monkeypatch.setattr(cluster, "measure", lambda *_, **__: (disturbed,))
    shown = text(do("measure", "--links", "wopr", "hal").renderable)
    assert "beside a job" in shown
    assert "lower bound" in shown


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_what_was_measured_is_shown_where_the_rest_was_not(
    do, text, as_json, cluster, monkeypatch, is_interrupted
):
    three = cluster.measure([Participant(node=name) for name in ("wopr", "hal", "eddie")])
    why = RefusedError("wopr → eddie over eno1: timed out", fix="check the firewall", node="wopr")

    def partly(*_, on_measured, on_skipped, **__):
        on_measured(three[0])
        if is_interrupted:
            raise KeyboardInterrupt
        on_skipped(why)
        return three[:1]

    monkeypatch.setattr(cluster, "measure", partly)
    outcome = do("measure", "--links", "wopr", "hal")
    data = as_json(outcome)
    assert [one["receiver"] for one in data["links"]] == ["hal"]
    assert data["is_partial"] is True
    assert [one["fix"] for one in data["problems"]] == [why.fix] * (not is_interrupted)
    assert outcome.exit_code == (130 if is_interrupted else 0)
    shown = text(outcome.renderable)
    assert "941\u00a0Mbit/s" in shown
    if is_interrupted:
        assert "measure --links --due" in shown
    else:
        assert says("not measured: wopr: wopr → eddie over eno1: timed out", shown)
    outcome = do("measure", "wopr", "hal")
    assert ("devices" in as_json(outcome)) is not is_interrupted
    assert as_json(outcome)["is_partial"] is True


def test_a_matrix_has_a_column_of_a_node_that_sent_nothing(do, text, cluster, monkeypatch):
    three = cluster.measure([Participant(node=name) for name in ("wopr", "hal", "eddie")])
    monkeypatch.setattr(
        cluster, "measure", lambda *_, **__: [one for one in three if one.sender != "eddie"]
    )
    [head, *_] = text(do("measure", "--links", "wopr", "hal").renderable).splitlines()
    assert head.split() == ["from", "\\", "to", "wopr", "hal", "eddie"]


def test_add_and_forget(do, text):
    assert "is up" in text(do("add", "10.0.0.9").renderable)
    assert "forgotten" in text(do("forget", "10.0.0.9").renderable)


def test_silent_nodes_are_forgotten_at_once_and_others_stay(do, as_json, cluster):
    assert as_json(do("forget", "--silent")) == {"forgotten": ["10.0.0.9:8765"]}
    assert cluster.forgotten == ["10.0.0.9:8765"]
    for words in (["forget"], ["forget", "10.0.0.9", "--silent"]):
        with pytest.raises(SpecError):
            do(*words)


def test_cluster_and_agents_come_from_options_or_else_the_environment(cluster):
    from jupyter_mntrain.verbs.verb import Clusters, Context
    from tests.standin.screen import run_words

    asked = []

    def connect(name, addresses):
        asked.append((name, addresses))
        return cluster

    environment = {"MNTRAIN_CLUSTER": "home", "MNTRAIN_AGENTS": "b:2, a:1"}
    for words in (["jobs"], ["--cluster", "lab", "--agent", "c:3", "jobs"]):
        clusters = Clusters(connect)
        run_words(words, Context(clusters=clusters, screen=Paper(), environment=environment))
    assert asked == [("home", ("a:1", "b:2")), ("lab", ("c:3",))]
