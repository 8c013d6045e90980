"""Agent access: every route, with every certificate that is not a driver's of its cluster."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import msgspec
import pytest

from jupyter_mntrain.agent.http import ROUTES
from jupyter_mntrain.model.api import StopRequest, TrustNews
from jupyter_mntrain.model.ids import new_job_id
from jupyter_mntrain.model.records.probes import ProbeListen
from jupyter_mntrain.trust.authority import Authority
from jupyter_mntrain.trust.certificates import (
    Subject,
    pem_of,
)
from tests import trusted
from tests.agent.live import LiveAgent, free_port, launch
from tests.waiting import until

pytestmark = pytest.mark.agents

VERBS = ("GET", "POST", "PUT", "DELETE", "PATCH")
SECRET = "only-the-owner-may-read-this"
SCRIPT = f"import time; print({SECRET!r}, flush=True); time.sleep(600)"
ONE_DAY = timedelta(days=1)
LATER = timedelta(seconds=2)
"""Than the list that everybody here begins with: OpenSSL goes by whole seconds."""

NODE_MAY = {("POST", "/v1/probe/listen")}
"""What another node may do to one with which it shares no job."""


@dataclass(frozen=True)
class Caller:
    """A certificate, or none, and what TLS itself makes of it."""

    name: str
    context: ssl.SSLContext
    gets_in: bool = False


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveAgent, str]]:
    """An agent with a running job whose files and logs hold a secret."""
    address = "127.88.0.1"
    state = tmp_path_factory.mktemp("node1")
    agent = LiveAgent("node1", address, free_port(address), state)
    try:
        agent.start()
        job_id = launch([agent], SCRIPT)
        until(lambda: SECRET in agent.get(f"/v1/jobs/{job_id}/log").text, "the job to speak")
        until(lambda: agent.record(job_id).part.state == "running", "it to run")
        yield agent, job_id
    finally:
        agent.end()


@pytest.fixture(scope="module")
def callers(
    running: tuple[LiveAgent, str], tmp_path_factory: pytest.TempPathFactory
) -> list[Caller]:
    agent, _ = running
    own, now = trusted.authority(), datetime.now(UTC)

    def context(name: str, **given: object) -> ssl.SSLContext:
        role = "node" if "node" in name else "driver"
        subject = Subject(role=role, name="ab" * 16 if role == "node" else "a-driver")  # type: ignore[arg-type]
        made = trusted.make_credentials(tmp_path_factory.mktemp("caller"), subject, **given)  # type: ignore[arg-type]
        # Whoever attacks does not care whom it talks to.
        for one in (made.unnamed_client,):
            one.verify_mode = ssl.CERT_NONE
        if "revoked" in name:
            revoked.append(made.certificate.serial_number)
        return made.unnamed_client

    revoked: list[int] = []
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nobody.check_hostname, nobody.verify_mode = False, ssl.CERT_NONE
    same_name = Authority.make("test")
    callers = [
        Caller("nobody", nobody),
        Caller("driver of another cluster", context("driver", of=Authority.make("other"))),
        Caller("driver of one of the same name", context("driver", of=same_name)),
        Caller("node of another cluster", context("node", of=Authority.make("other"))),
        Caller(
            "expired driver",
            context("driver", now=now - timedelta(days=3), lifetime=timedelta(days=1)),
        ),
        Caller("driver of tomorrow", context("driver", now=now + timedelta(days=3))),
        Caller("revoked driver", context("revoked driver")),
        Caller("revoked node", context("revoked node")),
        Caller("node", context("node"), gets_in=True),
    ]
    news = TrustNews(revocations=pem_of(own.revocations(revoked, 2, now + LATER)))
    assert agent.send("PUT", "/v1/trust", news).status_code == 200
    return callers


def pairs() -> list[tuple[str, str]]:
    """Every verb of every route, filled in."""
    found = []
    for _, pattern, _ in ROUTES:
        path = re.sub(r"\(\?P<job_id>[^)]*\)", "JOB", pattern)
        path = re.sub(r"\(\?P<attempt>(\[[^\]]*\]|[^)])*\)", "1", path)
        path = re.sub(r"\(\?P<rank>(\[[^\]]*\]|[^)])*\)", "0", path)
        path = re.sub(r"\(\?P<port>(\[[^\]]*\]|[^)])*\)", "29500", path)
        path = re.sub(r"\(\?P<(sha256|transfer)>(\[[^\]]*\]|[^)])*\)", "0" * 64, path)
        path = re.sub(r"\(\?P<piece>(\[[^\]]*\]|[^)])*\)", "0", path)
        assert "(" not in path, path
        found += [(verb, path) for verb in VERBS]
    return [*found, ("GET", "/v1/elsewhere"), ("POST", "/v1/join"), ("PUT", "/v1/join")]


def ask(agent: LiveAgent, verb: str, path: str, context: ssl.SSLContext) -> httpx.Response | None:
    with httpx.Client(verify=context, timeout=5) as client:
        return ask_over(client, agent, verb, path)


def ask_over(client: httpx.Client, agent: LiveAgent, verb: str, path: str) -> httpx.Response | None:
    """The answer, or ``None`` if there was none at all."""
    bodies = {
        "/v1/probe/listen": ProbeListen(address=agent.address),
        "/v1/trust": TrustNews(revocations=""),
    }
    body = bodies.get(path, StopRequest(reason="taken over") if path.endswith("/stop") else {})
    try:
        with client.stream(verb, f"{agent.url}{path}", content=msgspec.json.encode(body)) as answer:
            # A stream that was opened would never end.
            answer.read()
            return answer
    except httpx.ReadTimeout as error:
        raise AssertionError(f"{verb} {path} was let in") from error
    except httpx.TransportError:
        return None


def test_nobody_gets_in_or_learns_what_is_not_his(
    running: tuple[LiveAgent, str], callers: list[Caller]
) -> None:
    agent, job_id = running
    before = agent.record(job_id)
    every = [(verb, pattern.replace("JOB", job_id)) for verb, pattern in pairs()]
    for caller in callers:
        # The handshake of a stranger fails before a request is read: any verb of a route will do.
        asked = every if caller.gets_in else every[:: len(VERBS) - 1]
        with httpx.Client(verify=caller.context, timeout=5) as client:
            for verb, path in asked:
                where = (caller.name, verb, path)
                answer = ask_over(client, agent, verb, path)
                if not caller.gets_in:
                    assert answer is None, where
                    continue
                assert answer is not None, where
                assert SECRET not in answer.text, where
                if (verb, path) in NODE_MAY:
                    assert answer.status_code == 200, (where, answer.text)
                else:
                    assert answer.status_code in {403, 404, 405}, (where, answer.text)
    assert agent.record(job_id).part == before.part, "nothing happened to the job"


def test_what_is_not_tls_gets_no_answer(running: tuple[LiveAgent, str]) -> None:
    agent, _ = running
    for words in (b"GET /v1/node HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00" * 4096, b"\x16\x03\x01"):
        with socket.create_connection((agent.address, agent.port), timeout=10) as plain:
            said = b""
            # It may hang up as soon as it has seen the first bytes.
            with contextlib.suppress(ConnectionError):
                plain.sendall(words)
                with contextlib.suppress(OSError):  # not connected any more
                    plain.shutdown(socket.SHUT_WR)
                while chunk := plain.recv(4096):
                    said += chunk
        assert b"HTTP" not in said
    assert agent.answers()


def test_an_older_tls_is_refused(running: tuple[LiveAgent, str]) -> None:
    agent, _ = running
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection((agent.address, agent.port), timeout=10) as plain,
        pytest.raises(ssl.SSLError),
    ):
        context.wrap_socket(plain)


def test_a_node_that_takes_part_may_ask_for_its_job_and_stop_it(
    running: tuple[LiveAgent, str], tmp_path: Path
) -> None:
    agent, job_id = running
    own = Subject(role="node", name=agent.info().node_id)
    context = trusted.make_credentials(tmp_path, own).unnamed_client
    assert ask(agent, "GET", f"/v1/jobs/{job_id}", context).status_code == 200  # type: ignore[union-attr]
    assert ask(agent, "GET", f"/v1/jobs/{job_id}/log", context).status_code == 403  # type: ignore[union-attr]
    # A participant must learn that the record is lost. So a job of others answers like none at all.
    stranger = trusted.make_credentials(tmp_path / "x", Subject(role="node", name="0" * 32))
    for where, caller in ((new_job_id(), context), (job_id, stranger.unnamed_client)):
        answer = ask(agent, "GET", f"/v1/jobs/{where}", caller)
        assert (answer.status_code, answer.json()["kind"]) == (404, "no-such-job")  # type: ignore[union-attr]
    assert ask(agent, "POST", f"/v1/jobs/{job_id}/stop", context).status_code == 200  # type: ignore[union-attr]
    assert agent.ended(job_id).part.state == "canceled"


def test_open_streams_of_whoever_is_revoked_end(tmp_path: Path, new_agent) -> None:  # type: ignore[no-untyped-def]
    agent = new_agent()
    made = trusted.make_credentials(tmp_path, Subject(role="driver", name="gone"))
    with httpx.stream(
        "GET", f"{agent.url}/v1/stream", verify=made.unnamed_client, timeout=20
    ) as stream:
        lines = stream.iter_lines()
        next(lines)
        serial = made.certificate.serial_number
        revocations = trusted.authority().revocations([serial], 2, datetime.now(UTC) + LATER)
        agent.send("PUT", "/v1/trust", TrustNews(revocations=pem_of(revocations)))
        with contextlib.suppress(httpx.TransportError):
            for _ in lines:  # the client's own limit of time is what fails this
                pass
    assert ask(agent, "GET", "/v1/node", made.unnamed_client) is None
    # An older list does not bring it back.
    older = TrustNews(revocations=pem_of(trusted.authority().revocations([], 1)))
    assert agent.send("PUT", "/v1/trust", older).status_code == 200
    assert ask(agent, "GET", "/v1/node", made.unnamed_client) is None
    forged = TrustNews(revocations=pem_of(Authority.make("test").revocations([], 9)))
    assert agent.send("PUT", "/v1/trust", forged).status_code == 400
    agent.kill()
    agent.start()
    assert ask(agent, "GET", "/v1/node", made.unnamed_client) is None, "it is kept"


def test_a_connection_ends_with_its_certificate(tmp_path: Path, new_agent) -> None:  # type: ignore[no-untyped-def]
    agent = new_agent()
    subject = Subject(role="driver", name="soon-over")
    began, lifetime = datetime.now(UTC), timedelta(days=1, seconds=6)
    made = trusted.make_credentials(tmp_path, subject, lifetime=lifetime, now=began - ONE_DAY)
    limits = httpx.Limits(keepalive_expiry=60)
    with httpx.Client(verify=made.unnamed_client, timeout=30, limits=limits) as client:
        # Two connections: of the stream, and one that is kept.
        with client.stream("GET", f"{agent.url}/v1/stream") as stream:
            lines = stream.iter_lines()
            next(lines)
            assert client.get(f"{agent.url}/v1/node").status_code == 200
            with contextlib.suppress(httpx.TransportError):
                for _ in lines:  # the client's own limit of time is what fails this
                    pass
        assert datetime.now(UTC) >= made.certificate.not_valid_after_utc
        assert datetime.now(UTC) < made.certificate.not_valid_after_utc + timedelta(seconds=20)
        answer = ask_over(client, agent, "GET", "/v1/node")
    assert answer is not None, "on the kept connection"
    assert (answer.status_code, answer.json()["kind"]) == (403, "not-allowed")
