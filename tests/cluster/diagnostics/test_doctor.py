"""The doctor of a cluster and of a launch: over scripted agents, with facts that tests change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.cluster.preflight import before_launch, probing
from jupyter_mntrain.doctor.check import DoctorReport
from jupyter_mntrain.model.errors import DoctorRefusedError, NodeError, RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.loaded import LoadedSoftware
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.workload.workload import from_cell
from tests.cluster.conftest import wait_for
from tests.cluster.near import Open, spec
from tests.doctor.healthy import with_disk
from tests.standin.agent import FakeAgent
from tests.standin.elsewhere import Elsewhere
from tests.standin.faults import Hang, Refuse
from tests.standin.nodes import gpu
from tests.wording import says

Pair = tuple[FakeAgent, FakeAgent]


@pytest.fixture
def agents(elsewhere: Elsewhere) -> Pair:
    return elsewhere.agent("node1"), elsewhere.agent("node2")


def found(report: DoctorReport) -> list[tuple[str, str, str]]:
    return [(one.check, one.node, one.level) for one in report.findings if one.level != "passed"]


def test_all_nodes_are_examined_at_once(agents: Pair, open_cluster: Open):
    report = open_cluster(*agents).doctor.examine()
    assert sorted(report.nodes) == ["node1", "node2"]
    assert found(report) == []
    assert report.can_launch


def test_where_no_node_answers_nothing_has_passed(open_cluster: Open):
    with pytest.raises(NodeError):
        open_cluster().doctor.examine()


def test_every_way_between_two_nodes_is_tried(agents: Pair, open_cluster: Open):
    report = open_cluster(*agents).doctor.examine()
    reached = {one.node for one in report.findings if one.check == "reachable"}
    assert reached == {"node1", "node2"}
    # It listens, tries and is told to listen no more.
    assert [agent.count("paths") for agent in agents] == [3, 3]


def test_a_node_that_cannot_try_ways_is_unknown(agents: Pair, open_cluster: Open):
    no_route = Refuse(cause="no such route", kind=Kind.NO_SUCH_ROUTE, status=404)
    agents[1].faults["paths"] += [no_route] * 2
    report = open_cluster(*agents).doctor.examine()
    assert ("reachable", "node2", "unknown") in found(report)
    assert report.can_launch


def test_a_full_disk_stops_a_launch(agents: Pair, open_cluster: Open):
    agents[1].facts = with_disk(agents[1].facts, 0)
    report = open_cluster(*agents).doctor.examine()
    assert found(report) == [("disk-space", "node2", "stops")]
    assert not report.can_launch


def test_only_named_nodes_are_asked(agents: Pair, open_cluster: Open):
    agents[1].facts = with_disk(agents[1].facts, 0)
    assert open_cluster(*agents).doctor.examine(["node1"]).nodes == ("node1",)
    assert agents[1].count("facts") == 0


def test_of_a_jobs_participants_it_is_judged_what_the_job_would_use(
    agents: Pair, open_cluster: Open
):
    many = Participant(node="node1", nproc=10_000)
    report = open_cluster(*agents).doctor.examine(participants=(many,))
    assert found(report) == [("cores", "node1", "slows")]


@pytest.mark.parametrize(("port", "is_taken"), [(29511, True), (29512, False), (None, False)])
def test_a_port_that_another_program_uses_on_the_head_is_named(
    port: int | None, is_taken: bool, agents: Pair, open_cluster: Open
):
    for agent in agents:
        agent.taken_ports = {29511}
    job = spec("node2", "node1", port=port)
    report = open_cluster(*agents).doctor.examine(spec=job)
    assert found(report) == ([("launch", "node2", "stops")] if is_taken else [])
    kinds = {one.problem.kind for one in report.findings if one.problem}
    assert kinds == ({Kind.PORT_TAKEN} if is_taken else set())


def test_an_unknown_node_is_refused(agents: Pair, open_cluster: Open):
    with pytest.raises(SpecError):
        open_cluster(*agents).doctor.examine(["nodex"])


def test_what_an_older_agent_does_not_tell_is_unknown(agents: Pair, open_cluster: Open):
    agents[1].facts = None
    report = open_cluster(*agents).doctor.examine()
    levels = {one.level for one in report.findings if one.node == "node2"}
    assert levels == {"unknown"}
    assert report.can_launch


def launched(open_cluster: Open, agents: Pair, **how: Any) -> list[Problem]:
    notes: list[Problem] = []
    open_cluster(*agents).launch(spec(), on_note=notes.append, **how)
    return notes


def test_a_launch_is_refused_before_anything_is_leased(agents: Pair, open_cluster: Open):
    agents[0].faults["facts"].append(Refuse(cause="its disk hangs", kind=Kind.DISK_ERROR))
    agents[1].facts = with_disk(agents[1].facts, 0)
    with pytest.raises(DoctorRefusedError) as caught:
        launched(open_cluster, agents)
    assert (caught.value.kind, caught.value.node) == (Kind.DISK_FULL, "node2")
    assert [agent.count("lease") for agent in agents] == [0, 0]
    # What else it found comes with it; how to go without it is for a terminal.
    assert [(one.kind, one.node) for one in caught.value.found] == [
        (Kind.DISK_FULL, "node2"),
        (Kind.DISK_ERROR, "node1"),
    ]
    assert says("--skip-doctor", caught.value.fix)
    assert caught.value.found[0].fix in caught.value.fix
    assert caught.value.found[0].fix != caught.value.fix


@pytest.mark.parametrize("is_queued", [False, True])
def test_a_launch_without_its_model_on_a_node_is_refused(
    is_queued: bool, agents: Pair, open_cluster: Open, tmp_path: Path
):
    agents[1].lacks = {"/models/llama"}
    workload = from_cell('[model]\npath = "/models/llama"\n', directory=tmp_path)
    job = msgspec.structs.replace(spec(), entry=workload.entry, files=workload.files)
    with pytest.raises(RefusedError) as caught:
        open_cluster(*agents).launch(job, is_queued=is_queued)
    assert (caught.value.kind, caught.value.node) == (Kind.NO_FILE, "node2")
    assert "/models/llama" in caught.value.cause
    assert [agent.count("lease") for agent in agents] == [0, 0]


def test_a_launch_starts_anyway_where_nobody_is_to_look(agents: Pair, open_cluster: Open):
    agents[1].facts = with_disk(agents[1].facts, 0)
    assert launched(open_cluster, agents, is_checked=False) == []
    assert [agent.count("facts") for agent in agents] == [0, 0]


def test_a_launch_says_what_may_end_the_job_later(agents: Pair, open_cluster: Open):
    agents[1].facts = with_disk(agents[1].facts, 2 * 10**9)
    (note,) = launched(open_cluster, agents)
    assert (note.kind, note.node) == (Kind.DISK_FULL, "node2")


def test_a_launch_says_nothing_of_what_no_job_minds(agents: Pair, open_cluster: Open):
    assert agents[1].facts is not None
    agents[1].facts = msgspec.structs.replace(
        agents[1].facts, container="docker", first_process="sleep"
    )
    assert launched(open_cluster, agents) == []


def test_that_nccl_differs_as_it_is_loaded_is_acknowledged_with_the_other_versions(
    agents: Pair, open_cluster: Open
):
    for agent, nccl in zip(agents, ("2.27.5", "2.20.3"), strict=True):
        assert agent.facts is not None
        agent.gpus = (gpu(0),)
        loaded = LoadedSoftware(python="/usr/bin/python", torch="2.13.0", cuda="12.8", nccl=nccl)
        agent.facts = msgspec.structs.replace(agent.facts, loaded=loaded)
    used = tuple(Participant(node=agent.name, gpus=(0,)) for agent in agents)
    job = msgspec.structs.replace(spec(), participants=used)
    with pytest.raises(RefusedError) as caught:
        open_cluster(*agents).launch(job)
    assert caught.value.kind is Kind.MIXED_VERSIONS
    notes: list[Problem] = []
    job = msgspec.structs.replace(job, mixed_versions=True)
    open_cluster(*agents).launch(job, on_note=notes.append)
    assert {note.kind for note in notes} == {Kind.MIXED_VERSIONS}


def test_a_node_that_does_not_tell_in_time_is_not_judged_and_said(
    agents: Pair, open_cluster: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(before_launch, "PATIENCE_S", 1.0)
    agents[1].faults["facts"].append(Hang())
    (note,) = launched(open_cluster, agents)
    assert (note.kind, note.node) == (Kind.SLOW_TO_ANSWER, "node2")
    assert says("was not checked: did not answer the doctor within 1 s", note.cause)
    assert says("mntrain doctor node2", note.fix)


def test_an_older_agent_is_not_judged(agents: Pair, open_cluster: Open):
    agents[1].facts = None
    assert launched(open_cluster, agents) == []


def test_ways_that_take_too_long_are_said(
    agents: Pair, open_cluster: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(before_launch, "NETWORK_PATIENCE_S", 0.2)
    agents[1].faults["paths"].append(Hang())
    (note,) = launched(open_cluster, agents)
    assert says("the network between the nodes was not tested within 0.2 s", note.cause)
    assert says("mntrain doctor node1 node2", note.fix)


def test_ways_that_are_well_are_not_tried_again_by_the_next_launch(
    agents: Pair, open_cluster: Open
):
    cluster = open_cluster(*agents)
    cluster.launch(spec())
    cluster.launch(spec())
    assert [agent.count("paths") for agent in agents] == [3, 3]
    assert [agent.count("facts") for agent in agents] == [2, 2]
    cluster.launch(spec(port=29511))  # which was not among those that were tried
    assert [agent.count("paths") for agent in agents] == [6, 6]


def test_what_refuses_a_launch_has_just_been_tried(agents: Pair, open_cluster: Open):
    cluster = open_cluster(*agents)
    cluster.doctor.examine()
    agents[1].facts = with_disk(agents[1].facts, 0)
    agents[0].blocked, agents[1].blocked = {"node2"}, {"node1"}
    with pytest.raises(DoctorRefusedError) as caught:
        cluster.launch(spec())
    assert {one.kind for one in caught.value.found} == {Kind.DISK_FULL, Kind.LINK_BLOCKED}
    with pytest.raises(DoctorRefusedError):  # and what is not well is not kept
        cluster.launch(spec())
    assert [agent.count("paths") for agent in agents] == [9, 9]


@pytest.mark.parametrize("since", ["an agent was started", "a job failed", "it is long ago"])
def test_ways_are_tried_again_once_they_may_have_changed(
    since: str,
    agents: Pair,
    elsewhere: Elsewhere,
    open_cluster: Open,
    monkeypatch: pytest.MonkeyPatch,
):
    cluster = open_cluster(*agents)
    job = cluster.launch(spec())
    if since == "an agent was started":
        agents[1].started_s = 1.0
    elif since == "a job failed":
        for agent in agents:
            elsewhere.do(agent.finish, job.id, 1)
        wait_for(lambda: job.view().state == "failed")
    else:
        monkeypatch.setattr(probing, "KEPT_S", 0.0)
    cluster.launch(spec())
    assert [agent.count("paths") for agent in agents] == [6, 6]


def test_a_node_that_is_named_twice_is_examined_once(agents: Pair, open_cluster: Open):
    node_id = agents[1].node_id
    report = open_cluster(*agents).doctor.examine(["node2", node_id, "node1"])
    assert report.nodes == ("node2", "node1")
    assert [agent.count("facts") for agent in agents] == [1, 1]


def test_a_job_that_names_a_node_twice_is_refused(agents: Pair, open_cluster: Open):
    twice = tuple(Participant(node=one) for one in ("node2", agents[1].node_id))
    with pytest.raises(SpecError):
        open_cluster(*agents).doctor.examine(participants=twice)


def test_nodes_that_cannot_reach_each_other_start_nothing(agents: Pair, open_cluster: Open):
    agents[0].blocked, agents[1].blocked = {"node2"}, {"node1"}
    with pytest.raises(RefusedError) as caught:
        launched(open_cluster, agents)
    assert caught.value.kind is Kind.LINK_BLOCKED
    assert [agent.count("lease") for agent in agents] == [0, 0]


def test_a_way_that_the_ranks_do_not_go_is_told_and_starts(agents: Pair, open_cluster: Open):
    agents[0].blocked = {"node2"}  # it is the head, with the lower address: node2 connects to it
    (note,) = launched(open_cluster, agents)
    assert note.kind is Kind.ONE_WAY_LINK


def test_the_way_that_they_go_has_to_be_open(agents: Pair, open_cluster: Open):
    agents[1].blocked = {"node1"}
    with pytest.raises(RefusedError):
        launched(open_cluster, agents)


@pytest.mark.parametrize("is_module", [False, True])
def test_a_script_that_lies_in_a_folder_of_the_nodes_is_read_there(
    is_module: bool, agents: Pair, open_cluster: Open, tmp_path: Path
):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.py").write_text("import helper\ndef load(:\n")
    entry = ("-m", "mine.train") if is_module else ("mine/train.py",)
    job = msgspec.structs.replace(spec(), entry=entry, files={}, workdir=str(tmp_path))
    report = open_cluster(*agents).doctor.examine(spec=job)
    assert "script" in {check for check, _, level in found(report) if level == "stops"}


def test_a_script_at_a_path_of_the_nodes_is_read_before_a_launch(
    agents: Pair, open_cluster: Open, tmp_path: Path
):
    script = tmp_path / "train.py"
    script.write_text("def load(:\n")
    job = msgspec.structs.replace(spec(), entry=(str(script),), files={})
    with pytest.raises(DoctorRefusedError) as caught:
        open_cluster(*agents).launch(job)
    assert caught.value.kind is Kind.EXCEPTION
    assert "train.py" in caught.value.cause
