"""Lease routes: what an agent grants and refuses, and with which messages."""

from __future__ import annotations

import json
import os
import socket
from datetime import UTC, datetime, timedelta

import httpx
import msgspec
import pytest

from jupyter_mntrain.model.api import (
    LeaseRequest,
    NodeChanged,
    StopRequest,
    TrustNews,
    stream_decoder,
)
from jupyter_mntrain.model.ids import JobId, new_job_id
from jupyter_mntrain.model.records.probes import ProbeListen
from jupyter_mntrain.telemetry.gpus import has_driver
from jupyter_mntrain.trust.certificates import Subject, pem_of
from tests import trusted
from tests.agent.live import lease as live_lease
from tests.agent.live import start_request
from tests.wording import says

pytestmark = pytest.mark.agents

JOB = JobId("j-0000abcd")


def lease(**changes):
    return LeaseRequest(job_id=JOB, attempt=1, ranks=1, **{"interface": "lo", **changes})


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"interface": "eth99"}, "no-interface", "'eth99'"),
        ({"gpus": [7]}, "no-gpu", "GPU 7"),
    ],
)
def test_a_lease_that_cannot_be_is_refused_with_a_fix(agent, changes, kind, words):
    answer = agent.send("POST", "/v1/leases", lease(**changes))
    assert answer.status_code == 409
    problem = answer.json()
    assert (problem["kind"], problem["node"]) == (kind, "node1")
    assert says(words, problem["cause"])
    assert problem["fix"]
    assert agent.info().leases == ()


@pytest.mark.skipif(has_driver(), reason="a driver is installed here")
def test_a_lease_of_a_gpu_that_is_not_there_says_why_as_the_nodes_list_does(agent):
    note = agent.info().inventory.gpu_note
    assert note
    problem = agent.send("POST", "/v1/leases", lease(gpus=[7])).json()
    assert problem["cause"].endswith(note)


def test_leases_are_granted_shown_and_given_back(agent):
    answer = agent.send("POST", "/v1/leases", lease(hold_port=0)).json()
    assert answer["address"] == agent.address
    assert answer["port"] > 0
    assert [(one.job_id, one.port) for one in agent.info().leases] == [(JOB, answer["port"])]
    agent.send("DELETE", f"/v1/leases/{JOB}/1", {})
    agent.send("DELETE", f"/v1/leases/{JOB}/1", {})
    assert agent.info().leases == ()


def test_a_stop_that_overtakes_its_start_wins(agent):
    job_id = new_job_id()
    live_lease(agent, job_id, 1, None)
    stop = StopRequest(reason="rolled back", attempt=1)
    assert agent.send("POST", f"/v1/jobs/{job_id}/stop", stop).status_code == 404
    assert agent.info().leases == ()
    # Even if the lease is asked for again by a driver that does not know yet.
    request = start_request([agent], "", job_id, 1, live_lease(agent, job_id, 1, 0).port)
    late = agent.send("PUT", f"/v1/jobs/{job_id}/attempts/1", request)
    assert (late.status_code, late.json()["kind"]) == (409, "out-of-turn")
    assert agent.get("/v1/jobs").json()["records"] == []


def test_nothing_starts_without_its_lease(agent):
    def put(request, number=1):
        return agent.send("PUT", f"/v1/jobs/{JOB}/attempts/{number}", request)

    unleased = put(start_request([agent], "", JOB, 1, 29400))
    assert (unleased.status_code, unleased.json()["kind"]) == (409, "no-lease")
    granted = live_lease(agent, JOB, 1, 0)
    request = start_request([agent], "", JOB, 1, granted.port + 1)
    assert put(request).json()["kind"] == "no-lease"
    request = start_request([agent], "", JOB, 1, granted.port)
    assert put(request, number=2).json()["kind"] == "bad-request"
    files = {"../escape.py": ""}
    spoilt = msgspec.structs.replace(
        request, spec=msgspec.structs.replace(request.spec, files=files)
    )
    answer = put(spoilt)
    assert (answer.status_code, answer.json()["kind"]) == (400, "bad-spec")
    assert agent.get("/v1/jobs").json()["records"] == []
    assert list((agent.state / "jobs").iterdir()) == []
    assert agent.info().leases == ()


def test_a_port_that_is_taken_is_told_with_who_has_it(agent):
    with socket.create_server((agent.address, 0)) as server:
        port = server.getsockname()[1]
        answer = agent.send("POST", "/v1/leases", lease(hold_port=port))
    assert (answer.status_code, answer.json()["kind"]) == (409, "port-taken")
    assert f"(pid {os.getpid()})" in answer.json()["cause"]


def test_a_port_is_looked_at_without_being_held(agent):
    with socket.create_server((agent.address, 0)) as taken:
        port = taken.getsockname()[1]
        status = agent.get(f"/v1/port/{port}?interface=lo").json()
        assert status["address"] == agent.address
        assert status["problem"]["kind"] == "port-taken"
        assert str(port) in status["problem"]["cause"]
        assert port < status["next_free"] <= port + 50
        free = agent.get(f"/v1/port/{status['next_free']}").json()
        assert free == {"port": status["next_free"], "address": agent.address}
    assert "problem" not in agent.get(f"/v1/port/{port}").json()
    agent.send("POST", "/v1/leases", lease(hold_port=port))
    promised = agent.get(f"/v1/port/{port}").json()["problem"]
    assert promised["kind"] == "port-taken"
    assert JOB in promised["cause"]
    assert agent.get(f"/v1/port/{port}?interface=eth99").status_code == 409
    assert agent.get("/v1/port/99999").json()["problem"]["kind"] == "refused"
    assert agent.get("/v1/port/0").status_code == 404


@pytest.mark.slow
def test_a_lease_frees_itself_and_listeners_are_told(agent):
    with agent.stream() as stream:
        lines = map(stream_decoder.decode, stream.iter_lines())
        assert next(lines).node.leases == ()
        assert agent.send("POST", "/v1/leases", lease(expires_in_s=3.0)).status_code == 200
        # The node may be told again for other reasons in between.
        news = (line.node.leases for line in lines if isinstance(line, NodeChanged))
        granted = next(leases for leases in news if leases)
        assert [one.job_id for one in granted] == [JOB]
        assert next(leases for leases in news if not leases) == ()


def test_a_lease_that_ended_unnoticed_is_news_when_it_is_granted_again(agent):
    agent.send("POST", "/v1/leases", lease(expires_in_s=0.2))
    while agent.info().leases:
        pass
    with agent.stream() as stream:
        lines = map(stream_decoder.decode, stream.iter_lines())
        assert next(lines).node.leases == ()
        assert agent.send("POST", "/v1/leases", lease(expires_in_s=3.0)).status_code == 200
        news = (line.node.leases for line in lines if isinstance(line, NodeChanged))
        assert next(leases for leases in news if leases)


def test_who_started_what_from_where_is_kept(agent):
    def lines() -> list[dict[str, str]]:
        text = (agent.state / "audit.log").read_text()
        return [json.loads(line) for line in text.splitlines()]

    job_id = new_job_id()
    request = start_request([agent], "pass", job_id, 1, 29500)
    agent.send("PUT", f"/v1/jobs/{job_id}/attempts/1", request)
    agent.send("POST", f"/v1/jobs/{job_id}/stop", StopRequest(reason="r" * 999))
    started, stopped = lines()[-2:]
    assert (started["what"], started["job"], started["from"]) == ("start", job_id, "127.0.0.1")
    assert started["attempt"] == "1"
    outcome, _, why = started["outcome"].partition(": ")
    assert outcome == "refused"
    assert says(f"job {job_id} has no lease here", why)
    assert (stopped["what"], stopped["who"]) == ("stop", "driver a-test")
    assert (agent.state / "audit.log").stat().st_mode & 0o777 == 0o600


def test_changes_of_trust_and_probes_are_kept(agent, tmp_path):
    own = trusted.make_credentials(tmp_path / "node", Subject(role="node", name="cd" * 16))
    gone = trusted.make_credentials(tmp_path / "gone", Subject(role="driver", name="gone"))
    listen = msgspec.json.encode(ProbeListen(address=agent.address))
    probed = httpx.post(
        f"{agent.url}/v1/probe/listen", content=listen, verify=own.unnamed_client, timeout=10
    )
    assert probed.status_code == 200
    serial = gone.certificate.serial_number
    later = datetime.now(UTC) + timedelta(seconds=2)
    revocations = pem_of(trusted.authority().revocations([serial], 2, later))
    newer = pem_of(trusted.authority().renew(gone.certificate))
    news = TrustNews(revocations=revocations, certificates=(newer,))
    assert agent.send("PUT", "/v1/trust", news).status_code == 200
    text = (agent.state / "audit.log").read_text()
    probe, revoke, renew = [json.loads(line) for line in text.splitlines()][-3:]
    assert (probe["what"], probe["who"]) == ("probe", f"node {'cd' * 16}")
    assert probe["address"] == agent.address
    assert (revoke["what"], revoke["member"]) == ("revoke", f"certificate {serial:x}")
    assert (renew["what"], renew["member"]) == ("renew", "mntrain:driver:gone")
    assert revoke["who"] == renew["who"] == "driver a-test"
