"""Job: watched, waited for and ended, as from a notebook or script."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.cluster import Cluster, Job, LogLine, PeerBook
from jupyter_mntrain.model.api import STOP_GRACE_S
from jupyter_mntrain.model.errors import JobNotFoundError, RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records.metrics import RankProgress
from jupyter_mntrain.model.text.serving_address import SERVER, served_at
from tests.cluster.conftest import wait_for
from tests.cluster.near import Open, spec
from tests.standin.agent import FakeAgent
from tests.standin.elsewhere import Elsewhere
from tests.standin.faults import Refuse
from tests.standin.heard import Heard
from tests.wording import says, wording

# Jobs


def test_a_job_launched_is_known_at_once_and_to_every_cluster(
    near: Cluster, job: Job, open_cluster: Open, two: list[FakeAgent], tmp_path: Path
) -> None:
    assert job.state == "running"
    assert [view.job_id for view in near.jobs()] == [job.id]
    assert two[0].jobs[job.id].submitted_by.count("@") == 1
    # One participant knows where the others are.
    other = open_cluster(two[1], peers=PeerBook(tmp_path / "other.json"))
    seen = other.job(job.id)
    assert [part.state for part in seen.view().parts] == ["running", "running"]
    assert [view.found_by for view in other.nodes()] == ["job", "typed"]


def test_a_participant_that_does_not_answer_is_unknown_and_the_job_is_still_found(
    job: Job,
    open_cluster: Open,
    elsewhere: Elsewhere,
    two: list[FakeAgent],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jupyter_mntrain.cluster.view.node_search.DISCOVERY_S", 0.5)
    elsewhere.do(two[0].die)
    seen = open_cluster(two[1]).job(job.id)
    assert [part.state for part in seen.view().parts] == ["unknown", "running"]
    assert seen.state == "running"


def test_a_job_is_found_by_the_beginning_of_its_id(near: Cluster, job: Job) -> None:
    assert near.job(job.id[:6]).id == job.id
    assert near.job(job.id[2:7]).id == job.id
    second = near.launch(spec("node1"))
    assert [view.job_id for view in near.jobs()] == [second.id, job.id]
    with pytest.raises(SpecError, match=wording("2 jobs begin with 'j-'")):
        near.job("j-")
    with pytest.raises(JobNotFoundError, match=wording("mntrain jobs")):
        near.job("j-nothere")
    with pytest.raises(JobNotFoundError):
        near.job("")
    name = job.view().spec.name
    with pytest.raises(JobNotFoundError, match=wording("is a job's name; use its id: ")) as caught:
        near.job(name)
    assert caught.value.kind is Kind.NO_SUCH_JOB
    assert says(job.id, caught.value.fix)


def test_two_jobs_of_one_cluster_do_not_disturb_each_other(
    near: Cluster, job: Job, elsewhere: Elsewhere, two: list[FakeAgent]
) -> None:
    other = near.launch(spec("node1"))
    elsewhere.do(two[0].finish, other.id)
    assert other.wait(20).state == "succeeded"
    assert job.state == "running"


def test_waiting_ends_when_every_part_has_ended_and_not_before(
    job: Job, elsewhere: Elsewhere, two: list[FakeAgent]
) -> None:
    elsewhere.do(two[0].finish, job.id)
    wait_for(lambda: job.view().parts[0].state == "succeeded")
    assert job.wait(0.1).state == "running"
    elsewhere.do(two[1].finish, job.id, 1)
    assert job.wait(20).state == "failed"


def test_the_part_of_a_node_that_went_silent_is_unknown_and_never_done(
    near: Cluster,
    job: Job,
    elsewhere: Elsewhere,
    two: list[FakeAgent],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from jupyter_mntrain.cluster.view import agent_watch

    monkeypatch.setattr(agent_watch, "SUSPECT_AFTER_S", 0.2)
    monkeypatch.setattr(agent_watch, "LOST_AFTER_S", 0.4)
    elsewhere.do(two[0].finish, job.id)
    elsewhere.do(two[1].die)
    wait_for(lambda: job.view().parts[1].state == "unknown")
    assert job.wait(0.1).state == "unknown"
    elsewhere.do(two[1].start)
    wait_for(lambda: job.view().parts[1].state == "running")


def test_ctrl_c_while_waiting_stops_the_waiting_and_not_the_job(
    job: Job, two: list[FakeAgent]
) -> None:
    main = threading.main_thread().ident
    assert main
    timer = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        job.wait()
    timer.join()
    assert [agent.count("stop") for agent in two] == [0, 0]
    assert job.state == "running"


def test_history_summary_and_a_second_kernel_that_sees_all_of_it(
    job: Job, elsewhere: Elsewhere, two: list[FakeAgent], open_cluster: Open
) -> None:
    assert job.history().ranks == {}
    for rank, agent in enumerate(two):
        elsewhere.do(agent.steps, job.id, rank, range(1, 11))
    wait_for(lambda: [len(s.steps) for s in job.history().ranks.values()] == [10, 10])
    assert not job.history().is_complete
    assert job.summary().step == 10
    assert job.summary().tokens_per_s == 20.0
    for agent in two:
        elsewhere.do(agent.finish, job.id)
    assert job.wait_for_history(20).is_complete

    later = open_cluster(*two).job(job.id)
    history = later.wait_for_history(20)
    assert history.is_complete
    assert history.ranks == job.history().ranks
    assert later.summary().state == "succeeded"


def test_a_server_tells_where_it_answers_as_long_as_it_runs(
    near: Cluster, elsewhere: Elsewhere, two: list[FakeAgent]
) -> None:
    serving = near.launch(msgspec.structs.replace(spec("node1"), entry=("-m", SERVER)))
    assert serving.serving_url(0) is None
    told = RankProgress(time_s=1.0, rank=Rank(0), what=served_at("0.0.0.0", 8000), done=0)
    elsewhere.do(two[0].write, serving.id, told)
    assert serving.serving_url(30) == "http://127.0.0.1:8000/v1"
    elsewhere.do(two[0].finish, serving.id, 1)
    assert serving.wait(20).state == "failed"
    assert serving.serving_url() is None


def test_a_running_job_is_caught_up_with_once_every_reported_step_is_read(
    job: Job, elsewhere: Elsewhere, two: list[FakeAgent], open_cluster: Open
) -> None:
    for rank, agent in enumerate(two):
        elsewhere.do(agent.steps, job.id, rank, range(1, 11))
    later = open_cluster(*two).job(job.id)
    wait_for(lambda: [part.ranks[0].step for part in later.view().parts] == [10, 10])
    heard = Heard()
    history = later.catch_up(20, progress=heard)
    assert [series.steps[-1].step for series in history.ranks.values()] == [10, 10]
    assert not history.is_complete
    (piece,) = heard.pieces().values()
    assert all(done < 20 for done, _ in piece), "nothing is reported once all is read"


def test_logs_are_merged_by_time_and_chosen_by_rank(
    job: Job, two: list[FakeAgent], elsewhere: Elsewhere
) -> None:
    two[0].logs[job.id] = b"torchrun says\n[node1 rank 0] one\n[node1 rank 0] two\n"
    two[1].logs[job.id] = b"[node2 rank 1] three\n"
    two[0].log_times[job.id] = ((14, 10.0), (35, 11.0), (56, 13.0))
    two[1].log_times[job.id] = ((23, 12.0),)
    assert job.logs(tail=3) == (
        LogLine(node="node1", rank=0, text="one", time_s=11.0),  # type: ignore[arg-type]
        LogLine(node="node2", rank=1, text="three", time_s=12.0),  # type: ignore[arg-type]
        LogLine(node="node1", rank=0, text="two", time_s=13.0),  # type: ignore[arg-type]
    )
    assert [line.text for piece in job.whole_log() for line in piece] == [
        "torchrun says",
        "one",
        "three",
        "two",
    ]
    assert [line.text for line in job.logs(rank=1)] == ["three"]
    assert [line.text for line in job.logs(node="node1")] == ["torchrun says", "one", "two"]
    with pytest.raises(SpecError, match=wording("no rank 7")):
        job.logs(rank=7)
    with pytest.raises(SpecError, match=wording("does not run on 'node3'")):
        job.logs(node="node3")
    elsewhere.do(two[1].die)
    assert "no log: node2:" in job.logs(tail=1)[-1].text
    assert [line.text for line in job.logs(tail=1)[:-1]] == ["two"]
    (told,) = [line for piece in job.whole_log() for line in piece if line.node == "node2"]
    assert "no log: node2:" in told.text


@pytest.mark.parametrize(("end", "grace_s"), [("stop", STOP_GRACE_S), ("kill", 0.0)])
def test_ending_a_job(job: Job, two: list[FakeAgent], end: str, grace_s: float) -> None:
    view = getattr(job, end)()
    assert view.state == "canceled"
    assert {part.stop_reason for part in view.parts} == {
        f"{'stopped' if end == 'stop' else 'killed'} by user"
    }
    assert job.state == "canceled"


def test_a_refused_launch_leaves_nothing_and_no_job(near: Cluster, two: list[FakeAgent]) -> None:
    two[1].faults["lease"].append(Refuse(cause="GPU 0 is promised"))
    with pytest.raises(RefusedError, match="node2: GPU 0 is promised"):
        near.launch(spec())
    assert [agent.leases for agent in two] == [{}, {}]
    assert near.jobs() == ()


def test_what_is_waited_for_is_said(near: Cluster, job: Job) -> None:
    heard = Heard()
    near.participants(["node1:1", "node2:1"], progress=heard)
    assert heard.pieces() == {"looking for nodes": [(2, 2)]}
    heard = Heard()
    near.job(job.id, progress=heard)
    assert heard.pieces() == {f"looking for job {job.id}": [(0, None)]}
    heard = Heard()
    job.kill(progress=heard)
    job.wait(20, progress=heard)
    pieces = heard.pieces()
    assert pieces[f"telling the nodes to stop {job.id}"] == [(0, 2), (1, 2), (2, 2)]
    assert pieces[f"waiting for the end of {job.id}"][-1] == (2, 2)
