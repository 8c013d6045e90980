"""How machines become members: real agents, real drivers, and somebody in between."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import msgspec
import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from jupyter_mntrain.cluster import Cluster, StaticDiscovery
from jupyter_mntrain.cluster.admission.admit import admit
from jupyter_mntrain.model.errors import SpecError, TrustError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.trust.authority import self_signed
from jupyter_mntrain.trust.certificates import (
    Subject,
    key_pem,
    load_certificate,
    new_key,
)
from jupyter_mntrain.trust.credentials import Credentials
from jupyter_mntrain.trust.driver_membership import DriverMembership, clusters_directory
from jupyter_mntrain.trust.joining.token import read_token, write_token
from tests.agent.live import free_port
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow


@dataclass
class Joining:
    """An agent that was told to join, as its user would."""

    address: str
    port: int
    state: Path
    process: subprocess.Popen[bytes]

    @property
    def where(self) -> str:
        return f"{self.address}:{self.port}"

    def log(self) -> str:
        return (self.state / "agent.log").read_text()

    def says(self, words: str) -> None:
        until(lambda: words in self.log(), f"{words!r}; it says {self.log()}")

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def agent(loopback_addresses: Iterator[str], tmp_path: Path) -> Iterator[Callable[..., Joining]]:
    """``mntrain agent …`` on an address of its own, or again on the one of another."""
    started: list[Joining] = []

    def start(*words: str, again: Joining | None = None, name: str = "n") -> Joining:
        number = len(started)
        address = again.address if again else next(loopback_addresses)
        port = again.port if again else free_port(address)
        state = again.state if again else tmp_path / f"state{number}"
        state.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "jupyter_mntrain.agent", *words]
        command += ["--state-dir", str(state)]
        if words[0] == "join":
            command += ["--listen", address, "--port", str(port), "--name", f"{name}{number}"]
        with (state / "agent.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        started.append(Joining(address, port, state, process))
        return started[-1]

    yield start
    for one in started:
        one.end()


def kinds(cluster: Cluster) -> list[Kind | None]:
    """Of every node's problem."""
    return [node.problem and node.problem.kind for node in cluster.nodes()]


def up(cluster: Cluster) -> list[str]:
    return [node.name for node in cluster.nodes() if node.liveness == "up"]


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


def test_it_waits_until_somebody_comes_and_then_the_same_port_wants_certificates(agent) -> None:
    token = write_token(DriverMembership.find_or_make("home").authorized().invite())
    waiting = agent("join", token)
    waiting.says("waiting for admission")
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    for method, path in (("GET", "/v1/node"), ("PUT", "/v1/jobs/j-00000001/attempts/1")):
        answer = httpx.request(method, f"https://{waiting.where}{path}", verify=blind)
        assert (answer.status_code, answer.json()["kind"]) == (403, "not-joined")
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


def test_a_token_is_good_for_its_uses_and_its_time(agent) -> None:
    with Cluster("home") as cluster:
        token = cluster.membership.invite()
        assert agent("join", token, "--no-run").process.wait(PATIENCE_S) == 0
        second = agent("join", token)
        assert second.process.wait(PATIENCE_S) == TrustError.exit_code
        assert "used up" in second.log()

        brief = cluster.membership.invite(expires_in_s=1)
        until(lambda: time.time() > read_token(brief).expires_s, "it to expire")
        late = agent("join", brief)
        assert late.process.wait(PATIENCE_S) == TrustError.exit_code
        assert "the invitation has expired" in late.log()
        assert "mntrain invite" in late.log()
        assert len(cluster.membership.members()) == 2
        with pytest.raises(SpecError, match="0 uses"):
            cluster.membership.invite(uses=0)


def test_a_token_that_is_not_ours_admits_nobody(agent) -> None:
    with Cluster("home", discovery=StaticDiscovery()) as cluster:
        ours = read_token(cluster.membership.invite())
        forged = msgspec.structs.replace(ours, secret=bytes(len(ours.secret)))
        thief = agent("join", write_token(forged))
        thief.says("waiting")
        with pytest.raises(TrustError, match="another token, or an intercepted connection"):
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
            with pytest.raises(TrustError, match="intercepted connection"):
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


def test_a_node_belongs_to_one_cluster_until_it_leaves(agent) -> None:
    with Cluster("home") as home, Cluster("other") as other:
        first = agent("join", home.membership.invite(), "--no-run")
        assert first.process.wait(PATIENCE_S) == 0
        refused = agent("join", other.membership.invite(), again=first)
        assert refused.process.wait(PATIENCE_S) == TrustError.exit_code
        assert "belongs to cluster 'home' already" in refused.log()
        assert "mntrain agent leave" in refused.log()
        # Once more into the same one is no harm: keys are new, who it is is not.
        again = agent("join", home.membership.invite(), again=first)
        until(lambda: up(home) == ["n2"], "it to be up")
        assert len([m for m in home.membership.members() if m.role == "node"]) == 1
        again.end()
        left = agent("leave", again=first)
        assert left.process.wait(PATIENCE_S) == 0
        assert not list(first.state.glob("*.pem"))
        silent = agent("run", again=first)
        assert silent.process.wait(PATIENCE_S) == TrustError.exit_code
        assert "is not a member of a cluster yet" in silent.log()
        assert "mntrain invite" in silent.log()
        agent("join", other.membership.invite(), again=first)
        until(lambda: len(up(other)) == 1, "it to be in the other one")


def test_a_second_driver_joins_and_is_revoked_by_name(agent, tmp_path) -> None:
    mntrain = str(Path(sys.executable).with_name("mntrain"))
    colleague = {**os.environ, "HOME": str(tmp_path / "colleague")}

    def theirs(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [mntrain, "--cluster", "home", *words],
            env=colleague,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    with Cluster("home") as cluster:
        node = agent("join", cluster.membership.invite())
        until(lambda: up(cluster) == ["n0"], "the node to be up")
        port = str(free_port("127.0.0.1"))
        joined = theirs(
            "driver", "join", cluster.membership.invite("driver"), "--name", "kim", "--port", port
        )
        assert joined.returncode == 0, joined.stderr
        assert "kim is a driver of cluster home" in joined.stdout
        known = ("--agent", node.where)
        seen = json_of(theirs("--json", "nodes", *known))
        assert [one["liveness"] for one in seen] == ["up"]
        for words in (("invite",), ("revoke", "n0"), ("driver", "invite")):
            refused = theirs(*words)
            assert refused.returncode == TrustError.exit_code
            assert "only the one that did can" in refused.stderr.replace("\n", " ")

        watching = subprocess.Popen(
            [sys.executable, "-c", WATCH, node.where],
            env=colleague,
            stdout=subprocess.PIPE,
            text=True,
        )
        with watching:
            assert watching.stdout is not None
            assert watching.stdout.readline() == "up\n"
            assert cluster.membership.revoke("kim").name == "kim"
            assert watching.stdout.readline() == "cut off: revoked\n"
        assert "this driver (kim) was revoked" in theirs("nodes", *known).stdout.replace("\n", " ")
        assert up(cluster) == ["n0"]
        with pytest.raises(SpecError, match="kim"):
            cluster.membership.revoke("kim")


WATCH = """
import sys, time
from jupyter_mntrain.cluster import Cluster
with Cluster("home", addresses=[sys.argv[1]]) as cluster:
    cluster.wait_for_nodes(1, 20)
    print(cluster.nodes()[0].liveness, flush=True)
    end = time.monotonic() + 30
    while cluster.nodes()[0].problem is None and time.monotonic() < end:
        time.sleep(0.05)
    problem = cluster.nodes()[0].problem
    print("cut off:", problem and problem.kind, flush=True)
"""


def json_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, str]]:
    assert done.returncode == 0, done.stderr
    found: list[dict[str, str]] = msgspec.json.decode(done.stdout)
    return found


def test_a_certificate_is_renewed_while_everything_goes_on(agent) -> None:
    days = 200
    past = DriverMembership.make("home", clock=lambda: time.time() - days * 86400)
    token = write_token(past.authorized().invite(expires_in_s=(days + 1) * 86400))
    waiting = agent("join", token)
    waiting.says("waiting")
    registrar = past.authorized()
    asyncio.run(admit(waiting.where, registrar, registrar.invites()))
    waiting.says("listens on")
    before = Credentials(waiting.state).certificate
    assert before.not_valid_after_utc < datetime.now(UTC) + timedelta(days=170)
    own = DriverMembership.find("home").credentials.certificate
    with Cluster("home", addresses=[waiting.where]) as cluster:
        until(lambda: up(cluster) == ["n0"], "the node to be up")
        seen_s = cluster.nodes()[0].info.started_s

        def expires_s() -> float:
            return cluster.nodes()[0].info.certificate_expires_s

        until(lambda: expires_s() > time.time() + 360 * 86400, "it to have a new one")
        assert up(cluster) == ["n0"]
        assert cluster.nodes()[0].info.started_s == seen_s, "it was not restarted"
    after = Credentials(waiting.state).certificate
    assert after.public_key() == before.public_key()
    shown = ssl.get_server_certificate((waiting.address, waiting.port))
    assert load_certificate(shown) == after, "new connections are shown the new one"
    renewed = DriverMembership.find("home").credentials.certificate
    assert renewed.not_valid_after_utc > own.not_valid_after_utc + timedelta(days=190)


def test_a_revoked_node_is_not_talked_to(agent) -> None:
    with Cluster("home") as cluster:
        agent("join", cluster.membership.invite())
        until(lambda: up(cluster) == ["n0"], "the node to be up")
        cluster.membership.revoke("n0")
        until(lambda: up(cluster) == [], "it to be left alone")
        until(lambda: kinds(cluster) == [Kind.REVOKED], str(cluster.nodes()))


def test_keys_that_others_may_read_are_refused() -> None:
    with Cluster("home") as cluster:
        cluster.membership.invite()
    (clusters_directory() / "home" / "own.pem").chmod(0o640)
    with Cluster("home", addresses=["127.0.0.1:9"]) as cluster:
        with pytest.raises(TrustError, match=r"other users can read .*0640.*chmod 600"):
            cluster.membership.invite()
        with pytest.raises(TrustError, match="other users can read"):
            cluster.discovery.add("127.0.0.1:9")
    (clusters_directory() / "home" / "own.pem").chmod(0o600)
    (clusters_directory() / "home" / "authority.key").chmod(0o604)
    with Cluster("home") as cluster, pytest.raises(TrustError, match=r"authority\.key"):
        cluster.membership.invite()


def test_who_knows_no_cluster_is_told_to_invite() -> None:
    with Cluster("home") as cluster, pytest.raises(TrustError, match="mntrain invite"):
        cluster.discovery.add("127.0.0.1:9")
