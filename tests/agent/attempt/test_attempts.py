"""Attempts under real agents: start, end, failure, restarted agent."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

import jupyter_mntrain
from jupyter_mntrain.agent.attempt.processes import environment_of, kill_all, marked, processes_of
from jupyter_mntrain.model.api import KillRequest, LeaseRequest, StopRequest
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import new_job_id
from jupyter_mntrain.model.records.metrics import RankEnd, RankStep, journal_decoder
from tests.agent.live import free_port, launch, start_request, two_agents
from tests.waiting import PATIENCE_S, until
from tests.wording import says

pytestmark = pytest.mark.slow

# No torch inside the ranks: what is tested is what stands around them.
STEPS = """
import time
from jupyter_mntrain import Recorder
with Recorder() as recorder:
    for _ in range({steps}):
        time.sleep(0.05)
        recorder.step(tokens=10, loss=1.0)
"""
GATED = """
import os, time
from jupyter_mntrain import Recorder
with Recorder() as recorder:
    for step in range(200):
        time.sleep(0.05)
        while step == 100 and not os.path.exists({gate!r}):
            time.sleep(0.1)
        recorder.step(tokens=10, loss=1.0)
"""
"""Makes the second half of its steps once a file is there."""
SHORT, LONG = STEPS.format(steps=40), STEPS.format(steps=100_000)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two agents whose torchrun no server forks, for tests that leave them as they were."""
    with two_agents(
        "127.92.8", tmp_path_factory.mktemp("pair"), "test", python=sys.executable
    ) as made:
        yield made


def journal(agent, job_id, since=0):
    content = agent.get(f"/v1/jobs/{job_id}/journal?since={since}").content
    return [journal_decoder.decode(line) for line in content.splitlines()]


def processes(agent, job_id):
    return processes_of(agent.state / "jobs" / job_id / "attempt-1")


def running(agent, job_id):
    until(lambda: agent.record(job_id).part.state == "running", f"{job_id} to run")
    until(lambda: agent.record(job_id).part.ranks[0].step, "a first step")


def test_only_this_user_can_read_a_job_even_where_the_directory_was_open(new_agent):
    """Its record holds the environment, where tokens are."""
    agent = new_agent()
    agent.end()
    old = agent.state / "jobs" / "j-old"
    old.mkdir()
    (old / "record.json").write_text("")
    for path in (agent.state, agent.state / "jobs", old):
        path.chmod(0o755)
    (old / "record.json").chmod(0o644)
    before = os.umask(0)
    try:
        agent.start()
    finally:
        os.umask(before)
    assert says("other users could read ", agent.log())
    assert ("running as root" in agent.log()) == (os.geteuid() == 0)
    job_id = launch([agent], SHORT, environment={"HF_TOKEN": "secret"})
    assert agent.ended(job_id).part.state == "succeeded"
    attempt = agent.state / "jobs" / job_id / "attempt-1"
    # What torchrun and the script write in these has the modes that they choose.
    theirs = attempt / "ranks", attempt / "work"
    found = set()
    for path in agent.state.rglob("*"):
        if not any(one in path.parents for one in theirs) and path.name != "agent.log":
            assert not path.stat().st_mode & 0o077, path
            found.add(path.name)
    assert not agent.state.stat().st_mode & 0o077
    assert {"record.json", "journal.ndjson", "log", "supervisor.log", "supervisor.json"} <= found
    assert {"command.json", "status.json", "rank-0.ndjson", "links.json"} <= found | {"links.json"}


def test_two_nodes_run_and_leave_nothing(pair):
    job_id = launch(pair, SHORT)
    for rank, agent in enumerate(pair):
        record = agent.ended(job_id)
        assert record.part.state == "succeeded", record.part
        assert [(r.rank, r.state, r.step) for r in record.part.ranks] == [(rank, "succeeded", 40)]
        lines = journal(agent, job_id)
        assert [line.seq for line in lines] == list(range(1, len(lines) + 1))
        steps = [line.body.step for line in lines if isinstance(line.body, RankStep)]
        assert steps == list(range(1, 41))
        assert processes(agent, job_id) == {}
        assert agent.info().leases == ()


def test_starting_twice_starts_once_and_a_killed_agent_comes_back_with_nothing_missing(
    new_agent, tmp_path
):
    agent, gate = new_agent(), tmp_path / "go-on"
    script = GATED.format(gate=str(gate))
    job_id = launch([agent], script)
    running(agent, job_id)
    pid = agent.record(job_id).part.ranks[0].pid
    launch([agent], script, job_id=job_id)
    assert agent.record(job_id).part.ranks[0].pid == pid
    port = agent.record(job_id).attempt.master_port
    agent.kill()
    assert processes(agent, job_id)
    agent.start()
    until(lambda: agent.info().leases, "its lease")
    assert agent.info().leases[0].job_id == job_id
    taken = LeaseRequest(job_id=new_job_id(), attempt=1, ranks=1, interface="lo", hold_port=port)
    assert agent.send("POST", "/v1/leases", taken).status_code == 409
    gate.touch()
    record = agent.ended(job_id)
    assert record.part.state == "succeeded"
    lines = journal(agent, job_id)
    assert [line.seq for line in lines] == list(range(1, len(lines) + 1))
    steps = [line.body.step for line in lines if isinstance(line.body, RankStep)]
    assert steps == list(range(1, 201))
    assert any(isinstance(line.body, RankEnd) for line in lines)


def test_an_agent_that_was_away_at_the_end_still_tells_it(new_agent):
    agent = new_agent()
    job_id = launch([agent], STEPS.format(steps=60) + "raise SystemExit(3)\n")
    running(agent, job_id)
    agent.kill()
    until(lambda: not processes(agent, job_id), "the job's own end")
    part = agent.start().ended(job_id).part
    assert part.state == "failed"
    assert part.ranks[0].exit_code == 3


def test_ranks_that_torchrun_leaves_behind_are_ended(pair):
    agent = pair[0]
    job_id = launch([agent], LONG)
    running(agent, job_id)
    ranks = {rank.pid for rank in agent.record(job_id).part.ranks}
    torchrun = next(
        pid for pid, environment in processes(agent, job_id).items() if "RANK" not in environment
    )
    assert torchrun not in ranks
    os.kill(torchrun, signal.SIGKILL)
    part = agent.ended(job_id).part
    assert part.state == "failed"
    assert part.problem.kind in {Kind.KILLED, Kind.OUT_OF_MEMORY}
    assert processes(agent, job_id) == {}


def test_one_rank_can_be_killed_and_the_cause_says_by_whom(pair):
    head, other = pair
    job_id = launch([head, other], LONG)
    running(head, job_id)
    running(other, job_id)
    pid = other.record(job_id).part.ranks[0].pid
    kill = KillRequest(attempt=1, reason="killed by a test")
    late = KillRequest(attempt=2, reason="killed by a test")
    for where, rank, request in ((head, 1, kill), (other, 1, late)):
        refused = where.send("POST", f"/v1/jobs/{job_id}/ranks/{rank}/kill", request)
        assert refused.status_code == 409
    for _ in range(2):  # twice is once
        answer = other.send("POST", f"/v1/jobs/{job_id}/ranks/1/kill", kill)
        assert answer.status_code in {200, 409}, answer.text
    part = other.ended(job_id).part
    assert part.ranks[0].exit_code == -signal.SIGKILL
    assert part.ranks[0].pid == pid
    assert (part.problem.kind, part.problem.cause) == (Kind.KILLED, "killed by a test")
    noted = map(json.loads, (other.state / "audit.log").read_text().splitlines())
    kills = [line for line in noted if line["what"] == "kill rank"]
    assert {line["rank"] for line in kills} == {"1"}
    assert "done" in {line["outcome"] for line in kills}
    ended = head.ended(job_id).part
    assert ended.state == "canceled"
    assert says("node2: rank 1 failed: killed by a test", ended.stop_reason)
    assert processes(head, job_id) == {}


def test_without_the_head_the_next_participant_ends_the_rest(new_agent):
    head, second, third = new_agent(), new_agent(), new_agent()
    job_id = launch([head, second, third], LONG)
    for agent in (head, second, third):
        running(agent, job_id)
    head.kill()
    os.kill(third.record(job_id).part.ranks[0].pid, signal.SIGKILL)
    assert third.ended(job_id).part.ranks[0].exit_code == -signal.SIGKILL
    part = second.ended(job_id).part
    assert part.state == "canceled"
    assert part.stop_reason.startswith("node3: ")
    assert says("rank 2 failed: killed by SIGKILL", part.stop_reason)
    assert processes(second, job_id) == {}


def test_a_node_that_lost_its_jobs_ends_the_job_as_failed(new_agent):
    soon = {"MNTRAIN_LAUNCH_START_PATIENCE_S": "1"}
    head, other = new_agent(environment=soon), new_agent(environment=soon)
    job_id = launch([head, other], LONG)
    running(head, job_id)
    running(other, job_id)
    lost = other.state / "jobs"
    try:
        other.kill()
        shutil.rmtree(lost)
        other.start(environment=soon)
        part = head.ended(job_id).part
    finally:
        kill_all(partial(marked, lost / job_id / "attempt-1"))
    assert (part.state, part.problem.kind, part.problem.node) == (
        "failed",
        Kind.NO_RECORD,
        "node2",
    )
    assert processes(head, job_id) == {}


def test_a_second_attempt_of_a_script_that_failed_goes_on_with_the_numbers_of_the_first(new_agent):
    agent = new_agent()
    job_id = launch([agent], "import json\nimport not_there\n")
    part = agent.ended(job_id).part
    assert part.state == "failed"
    assert part.problem.cause == (
        "ModuleNotFoundError: No module named 'not_there' (script.py, line 2)"
    )
    assert (part.problem.kind, part.problem.rank) == (Kind.NO_MODULE, 0)
    before = journal(agent, job_id)
    (agent.state / "jobs" / job_id / "attempt-1" / "work" / "snapshot.pt").write_text("step 7")
    launch([agent], SHORT, job_id=job_id, attempt=2)
    assert agent.ended(job_id).part.state == "succeeded"
    lines = journal(agent, job_id)
    assert lines[: len(before)] == before
    assert [line.seq for line in lines] == list(range(1, len(lines) + 1))
    assert {line.attempt for line in lines[len(before) :]} == {2}
    work = agent.state / "jobs" / job_id / "attempt-2" / "work"
    assert (work / "snapshot.pt").read_text() == "step 7", "what the first one wrote is there"
    # A start of the first one that comes only now changes nothing.
    late = start_request([agent], SHORT, job_id, 1, 29400)
    answer = agent.send("PUT", f"/v1/jobs/{job_id}/attempts/1", late)
    assert answer.status_code == 409
    assert agent.record(job_id).attempt.number == 2


def test_a_port_of_the_user_s_own_choice_and_a_script_without_telemetry(pair):
    agent = pair[0]
    port = free_port(agent.address)
    job_id = launch([agent], "import time; time.sleep(600)", port=port)
    until(lambda: agent.record(job_id).part.state == "running", "a rank seen without telemetry")
    record = agent.record(job_id)
    assert record.attempt.master_port == port
    pid = record.part.ranks[0].pid
    assert environment_of(pid)["RANK"] == "0"
    log = agent.get(f"/v1/jobs/{job_id}/log?offset=0&limit=60").text
    assert log.startswith(f"[mntrain] job {job_id} attempt 1: rank 0 on node1")
    agent.send("POST", f"/v1/jobs/{job_id}/stop", StopRequest(reason="enough", grace_s=0.0))
    assert agent.ended(job_id).part.state == "canceled"


def old_version(tmp_path):
    """What makes a process use another version of this package: its environment."""
    ours = Path(jupyter_mntrain.__file__).parent
    theirs = tmp_path / "old" / "jupyter_mntrain"
    shutil.copytree(ours, theirs, ignore=shutil.ignore_patterns("__pycache__", "labextension"))
    described = theirs.parent / "jupyter_mntrain-0.0.1.dist-info" / "METADATA"
    described.parent.mkdir()
    described.write_text("Metadata-Version: 2.1\nName: jupyter-mntrain\nVersion: 0.0.1\n")
    return {"PYTHONPATH": str(theirs.parent), "PYTHONSAFEPATH": "1"}


def test_a_stopped_agent_leaves_its_jobs_running_and_an_upgraded_one_takes_them_up(
    new_agent, tmp_path
):
    """As when systemd restarts it: SIGTERM to the agent alone. Stopping needs no second try."""
    agent = new_agent()
    agent.kill()
    agent.start(environment=old_version(tmp_path))
    assert agent.info().inventory.versions.mntrain == "0.0.1"
    job_id = launch([agent], LONG)
    running(agent, job_id)
    alive = processes(agent, job_id)
    agent.process.terminate()
    assert agent.process.wait(PATIENCE_S) == 0
    assert alive
    assert processes(agent, job_id).keys() == alive.keys()
    agent.start()
    assert agent.info().inventory.versions.mntrain == jupyter_mntrain.__version__
    assert processes(agent, job_id).keys() == alive.keys()
    before = agent.record(job_id).part.ranks[0].step or 0
    until(lambda: (agent.record(job_id).part.ranks[0].step or 0) > before, "its steps to be seen")
    numbers = [line.seq for line in journal(agent, job_id)]
    assert numbers == list(range(1, len(numbers) + 1)), "nothing is lost or doubled"
    for _ in range(2):
        agent.send("POST", f"/v1/jobs/{job_id}/stop", StopRequest(reason="enough"))
    part = agent.ended(job_id).part
    assert (part.state, part.stop_reason, part.problem) == ("canceled", "enough", None)
    assert processes(agent, job_id) == {}


def test_a_killed_supervisor_s_duty_falls_to_the_agent(new_agent):
    agent = new_agent()
    job_id = launch([agent], LONG)
    running(agent, job_id)
    supervisor = json.loads(
        (agent.state / "jobs" / job_id / "attempt-1/supervisor.json").read_text()
    )
    os.kill(supervisor["pid"], signal.SIGKILL)
    part = agent.ended(job_id).part
    assert (part.state, part.exit_code, part.leftovers) == ("failed", None, ())
    assert part.problem.kind is Kind.SUPERVISOR_LOST
    assert processes(agent, job_id) == {}
