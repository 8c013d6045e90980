"""Joining: real agents, real drivers, and a man in the middle."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx
import msgspec
import psutil
import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from jupyter_mntrain.cluster import Cluster, StaticDiscovery
from jupyter_mntrain.model.errors import SpecError, TrustError
from jupyter_mntrain.trust.authority import Authority, self_signed
from jupyter_mntrain.trust.certificates import (
    Subject,
    fingerprint,
    key_pem,
    load_certificate,
    new_key,
    pem_of,
    request,
)
from jupyter_mntrain.trust.credentials import Credentials
from jupyter_mntrain.trust.driver_membership import DriverMembership, clusters_directory
from jupyter_mntrain.trust.joining.candidate import Candidate
from jupyter_mntrain.trust.joining.join_server import MOST_CONNECTIONS
from jupyter_mntrain.trust.joining.messages import (
    Admission,
    Greeting,
    JoinRefusedError,
    seal,
)
from jupyter_mntrain.trust.joining.token import (
    Conversation,
    new_nonce,
    new_token,
    read_token,
    write_token,
)
from tests.agent.live import free_port
from tests.cluster.admission.conftest import Joining, up
from tests.waiting import PATIENCE_S, until
from tests.wording import says, wording

pytestmark = pytest.mark.slow

JUST_ACCEPTED = 16
"""Connections that are hung up in a moment."""


def test_one_command_joins_and_afterwards_run_needs_no_argument(agent) -> None:
    with Cluster("home") as cluster:
        assert cluster.membership.identity is None
        first = agent("join", cluster.membership.invite())
        until(lambda: up(cluster) == ["n0"], "the node to be up")
        assert [member.role for member in cluster.membership.members()] == ["driver", "node"]
        for path in (clusters_directory() / "home", first.state):
            for file in path.iterdir():
                if file.suffix in {".pem", ".key"}:
                    assert file.stat().st_mode & 0o777 == 0o600, file
        first.end()
        until(lambda: up(cluster) == [], "it to be silent")
        again = agent("run", again=first)
        until(lambda: up(cluster) == ["n0"], "the node to be up again")
        assert f"listens on {first.where}" in again.log()


@pytest.mark.parametrize("way", ["standard input", "file"])
def test_no_process_shows_the_token(agent, tmp_path, way) -> None:
    """Every user of a machine can read the arguments of all its processes."""
    with Cluster("home") as cluster:
        token = cluster.membership.invite()
        file = tmp_path / "token"
        file.touch(mode=0o600)
        file.write_text(token)
        given = ("join", token) if way == "standard input" else ("join", "", "--token-file", file)
        joined = agent(*map(str, given))
        shown = arguments_of_all_processes()
        until(lambda: up(cluster) == ["n0"], "the node to be up")
        shown += arguments_of_all_processes()
        assert str(joined.state) in shown, "the agent is among them"
        assert token not in shown


def arguments_of_all_processes() -> str:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_text(errors="replace"))
    return "\n".join(found)


def test_it_waits_until_somebody_comes_and_then_the_same_port_wants_certificates(agent) -> None:
    token = write_token(DriverMembership.make("home").authorized().invite())
    waiting = agent("join", token)
    waiting.says("waiting for admission")
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    for method, path in (("GET", "/v1/node"), ("PUT", "/v1/jobs/j-00000001/attempts/1")):
        answer = httpx.request(method, f"https://{waiting.where}{path}", verify=blind)
        assert (answer.status_code, answer.json()["kind"]) == (403, "not-joined")
    for length in ("²", "-1", "1_000", "9" * 3000):
        plain = socket.create_connection((waiting.address, waiting.port), timeout=30)
        with blind.wrap_socket(plain) as connection:
            head = f"POST /v1/join HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{{}}"
            connection.sendall(head.encode())
            assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")
    assert "Traceback" not in waiting.log()
    for body in (b"", b"{", b'{"nonce": ""}', b"[" * 10_000, b'{"nonce": 7}'):
        for method in ("POST", "PUT"):
            answer = httpx.request(
                method, f"https://{waiting.where}/v1/join", verify=blind, content=body
            )
            assert answer.status_code in {400, 403}, answer.text
    with Cluster("home", discovery=StaticDiscovery()) as cluster:
        cluster.discovery.add(waiting.where)
        until(lambda: up(cluster) == ["n0"], "the node to be up")
    with pytest.raises(httpx.TransportError):
        httpx.get(f"https://{waiting.where}/v1/node", verify=blind)


def test_strangers_do_not_keep_a_driver_from_a_machine_that_waits(agent) -> None:
    token = write_token(DriverMembership.make("home").authorized().invite())
    waiting = agent("join", token)
    waiting.says("waiting for admission")
    where = (waiting.address, waiting.port)
    with ExitStack() as open_ones:

        def stranger(source: str) -> socket.socket:
            made = socket.create_connection(where, timeout=20, source_address=(source, 0))
            return open_ones.enter_context(made)

        files = psutil.Process(waiting.process.pid).num_fds
        before = files()
        for number in range(300):
            stranger(f"127.9.0.{number % 3 + 1}")
            assert files() - before <= MOST_CONNECTIONS + JUST_ACCEPTED
        with Cluster("home", discovery=StaticDiscovery()) as cluster:
            cluster.discovery.add(waiting.where)
            until(lambda: up(cluster) == ["n0"], "the node to be up")


def test_a_token_is_good_for_its_uses_and_its_time(agent) -> None:
    with Cluster("home") as cluster:
        token = cluster.membership.invite()
        assert agent("join", token, "--no-run").process.wait(PATIENCE_S) == 0
        second = agent("join", token)
        assert second.process.wait(PATIENCE_S) == TrustError.exit_code
        assert says("used up", second.log())

        brief = cluster.membership.invite(expires_in_s=1)
        until(lambda: time.time() > read_token(brief).expires_s, "it to expire")
        late = agent("join", brief)
        assert late.process.wait(PATIENCE_S) == TrustError.exit_code
        assert says("the invitation has expired", late.log())
        assert says("mntrain invite", late.log())
        assert len(cluster.membership.members()) == 2
        with pytest.raises(SpecError, match=wording("uses=0 is out of range")):
            cluster.membership.invite(uses=0)


def test_a_machine_does_not_join_under_the_id_of_another(
    agent, tmp_path, loopback_addresses
) -> None:
    """Ids are public: every driver and every announcement shows them."""
    with Cluster("home") as cluster:
        token = cluster.membership.invite(uses=2)
        owner = agent("join", token)
        until(lambda: up(cluster) == ["n0"], "the node to be up")
        address = next(loopback_addresses)
        thief = Joining(address, free_port(address), tmp_path / "thief", owner.process)
        thief.state.mkdir(mode=0o700)
        shutil.copy(owner.state / "node_id", thief.state)
        refused = agent("join", token, again=thief)
        assert refused.process.wait(PATIENCE_S) == TrustError.exit_code
        assert says("does not hold its key", refused.log())
        assert says("--replace n0", refused.log())
        assert not (thief.state / "own.pem").exists()
        assert [line["outcome"].partition(":")[0] for line in audit_of(thief)] == ["refused"]
        assert [line["what"] for line in audit_of(owner)] == ["join"]
        assert up(cluster) == ["n0"]
        # Its owner is known by its key; the token is not used up by that.
        owner.end()
        again = agent("join", token, again=owner)
        until(lambda: up(cluster) == ["n2"], "the node to be up again")
        again.end()
        # The driver says that the keys are lost: the id goes to the other machine.
        lost = Credentials(owner.state).certificate.serial_number
        agent("join", cluster.membership.invite(replaces="n2"), again=thief)
        until(lambda: up(cluster) == ["n3"], "the machine that replaces it to be up")
        identity = cluster.membership.identity
        assert identity is not None
        assert lost in identity.credentials.revoked


def audit_of(agent: Joining) -> list[dict[str, str]]:
    return [json.loads(line) for line in (agent.state / "audit.log").read_text().splitlines()]


def test_a_key_lasts_until_it_is_certified(tmp_path) -> None:
    token = new_token("node", bytes(32), 2e9)
    subject = Subject(role="node", name="ab" * 16)
    first, again = (Candidate(token, subject, "n1", room=tmp_path) for _ in range(2))
    assert first.key.public_key() == again.key.public_key(), "it may ask again"
    assert (tmp_path / "joining.key").stat().st_mode & 0o777 == 0o600
    own = Authority.make("home")
    first.keep(
        tmp_path,
        Admission(
            cluster="home",
            certificate=pem_of(own.issue(request(first.key, subject), subject)),
            authority=pem_of(own.certificate),
            revocations=pem_of(own.revocations((), 1)),
        ),
    )
    assert not (tmp_path / "joining.key").exists()
    assert Candidate(token, subject, "n1", room=tmp_path).key.public_key() != first.key.public_key()


def test_greetings_of_strangers_do_not_push_out_those_of_a_driver(tmp_path) -> None:
    token = new_token("node", bytes(32), 2e9)
    candidate = Candidate(token, Subject(role="node", name="ab" * 16), "n1", room=tmp_path)
    greeting = Greeting(nonce=new_nonce())
    candidate.apply(greeting, "10.0.0.1")
    for number in range(2000):
        candidate.apply(Greeting(nonce=new_nonce()), f"10.0.9.{number % 200}")
    refused = Admission(cluster="home", refusal="no", fix="none")
    own = Conversation(
        fingerprint(load_certificate(candidate.certificate)),
        greeting.nonce,
        candidate._application.nonce,
    )
    with pytest.raises(JoinRefusedError):
        candidate.admitted(seal(refused, token, own), "10.0.0.1")
    with pytest.raises(TrustError) as error:
        candidate.admitted(seal(refused, token, own), "10.0.9.1")
    assert not isinstance(error.value, JoinRefusedError)


def test_a_clock_that_is_ahead_makes_no_invitation_expire(agent) -> None:
    with Cluster("home") as cluster:
        token = cluster.membership.invite(expires_in_s=600)
        ahead = agent("join", token, "--no-run", "--json", ahead_s=2 * 3600)
        assert ahead.process.wait(PATIENCE_S) == 0, ahead.log()
        assert '"kind": "clock-off"' in ahead.log()
        assert says("this machine's clock is 2\xa0h 00\xa0min ahead of the driver's", ahead.log())
        years = agent("join", cluster.membership.invite(), "--no-run", ahead_s=3 * 365 * 86400)
        assert years.process.wait(PATIENCE_S) == TrustError.exit_code
        assert says("so its new certificate is not valid here", years.log())
        assert says("1095\xa0d", years.log())
        assert says("timedatectl set-ntp true", years.log())


def test_a_token_that_is_not_ours_admits_nobody(agent) -> None:
    with Cluster("home", discovery=StaticDiscovery()) as cluster:
        ours = read_token(cluster.membership.invite())
        forged = msgspec.structs.replace(ours, secret=bytes(len(ours.secret)))
        thief = agent("join", write_token(forged))
        thief.says("waiting")
        with pytest.raises(
            TrustError, match=wording("another token, or an intercepted connection")
        ):
            cluster.discovery.add(thief.where)
        assert thief.process.poll() is None
        assert len(cluster.membership.members()) == 1


class Between(RequestHandler):
    """Passes everything on, and looks at it; has a certificate of its own."""

    def initialize(self, target: str, seen: list[bytes]) -> None:
        self.target = target
        self.seen = seen

    async def _pass_on(self) -> None:
        self.seen.append(self.request.body)
        blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
        answer = await AsyncHTTPClient().fetch(
            HTTPRequest(
                f"https://{self.target}{self.request.uri}",
                method=self.request.method or "GET",
                body=self.request.body,
                ssl_options=blind,
            ),
            raise_error=False,
        )
        self.set_status(answer.code)
        self.finish(answer.body)

    post = put = _pass_on


def test_a_man_in_the_middle_is_noticed_by_both(agent, loopback_addresses, tmp_path) -> None:
    with Cluster("home", discovery=StaticDiscovery()) as cluster:
        waiting = agent("join", cluster.membership.invite())
        waiting.says("waiting")
        here = next(loopback_addresses)
        key, seen = new_key(), []
        pem = tmp_path / "between.pem"
        certificate = self_signed(key, Subject(role="node", name="ab" * 16), datetime.now(UTC))
        pem.write_text(key_pem(key).decode() + certificate)

        async def attack() -> None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pem)
            own = {"target": waiting.where, "seen": seen}
            server = HTTPServer(Application([(r".*", Between, own)]), ssl_options=context)
            sockets = bind_sockets(0, here)
            server.add_sockets(sockets)
            address = f"{here}:{sockets[0].getsockname()[1]}"
            with pytest.raises(TrustError, match=wording("intercepted connection")):
                await asyncio.to_thread(cluster.discovery.add, address)
            server.stop()
            await server.close_all_connections()

        asyncio.run(attack())
        assert len(seen) == 1, "the driver gave nothing to whoever is in between"
        assert len(cluster.membership.members()) == 1
        assert waiting.process.poll() is None
        # The token is as good as it was.
        cluster.discovery.add(waiting.where)
        until(lambda: up(cluster) == ["n0"], "the node to be up")
