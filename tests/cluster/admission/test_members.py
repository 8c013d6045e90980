"""Members after joining: they leave, are renewed and are revoked."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.cluster import Cluster, Job
from jupyter_mntrain.cluster.admission.desk import admit
from jupyter_mntrain.model.errors import RefusedError, SpecError, TrustError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.trust.certificates import (
    load_certificate,
)
from jupyter_mntrain.trust.credentials import Credentials
from jupyter_mntrain.trust.driver_membership import DriverMembership, clusters_directory
from jupyter_mntrain.trust.joining.token import write_token
from tests.agent.live import free_port
from tests.cluster.admission.conftest import kinds, up
from tests.waiting import PATIENCE_S, until
from tests.wording import says, wording

pytestmark = pytest.mark.slow


def test_a_node_belongs_to_one_cluster_until_it_leaves(agent) -> None:
    with Cluster("home") as home, Cluster("other") as other:
        first = agent("join", home.membership.invite(), "--no-run")
        assert first.process.wait(PATIENCE_S) == 0
        refused = agent("join", other.membership.invite(), again=first)
        assert refused.process.wait(PATIENCE_S) == TrustError.exit_code
        assert "'home'" in refused.log()
        assert says("belongs to cluster 'home' already", refused.log())
        assert says("mntrain agent leave", refused.log())
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
        assert says("is not a member of a cluster yet", silent.log())
        assert says("mntrain invite", silent.log())
        agent("join", other.membership.invite(), again=first)
        until(lambda: len(up(other)) == 1, "it to be in the other one")


def test_a_second_driver_joins_and_is_revoked_by_name(agent, tmp_path) -> None:
    mntrain = str(Path(sys.executable).with_name("mntrain"))
    colleague = {**os.environ, "HOME": str(tmp_path / "colleague")}

    def theirs(*words: str, token: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [mntrain, "--cluster", "home", *words],
            env=colleague,
            input=token,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    with Cluster("home") as cluster:
        node = agent("join", cluster.membership.invite())
        until(lambda: up(cluster) == ["n0"], "the node to be up")
        port = str(free_port("127.0.0.1"))
        token = cluster.membership.invite("driver")
        joined = theirs("driver", "join", "--name", "kim", "--port", port, token=token)
        assert joined.returncode == 0, joined.stderr
        assert "kim is a driver of cluster home" in joined.stdout
        known = ("--agent", node.where)
        seen = json_of(theirs("--json", "nodes", *known))
        assert [one["liveness"] for one in seen] == ["up"]
        for words in (("invite",), ("revoke", "n0"), ("driver", "invite")):
            refused = theirs(*words)
            assert refused.returncode == TrustError.exit_code
            assert says("only the one that did can", refused.stderr.replace("\n", " "))

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
        shown = theirs("nodes", *known).stdout.replace("\n", " ")
        assert says("this driver (kim) was revoked", shown)
        assert up(cluster) == ["n0"]
        with pytest.raises(SpecError, match="kim"):
            cluster.membership.revoke("kim")


def test_a_read_only_driver_watches_and_does_nothing(agent, tmp_path) -> None:
    mntrain = str(Path(sys.executable).with_name("mntrain"))
    guest = {**os.environ, "HOME": str(tmp_path / "guest")}

    def theirs(*words: str, token: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [mntrain, "--cluster", "home", *words],
            env=guest,
            input=token,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    with Cluster("home") as cluster:
        node = agent("join", cluster.membership.invite())
        until(lambda: up(cluster) == ["n0"], "the node to be up")
        port = str(free_port("127.0.0.1"))
        token = cluster.membership.invite("viewer")
        joined = theirs("driver", "join", "--name", "kim", "--port", port, token=token)
        assert joined.returncode == 0, joined.stderr
        assert "kim is a read-only driver of cluster home" in joined.stdout
        known = ("--agent", node.where)
        assert [one["liveness"] for one in json_of(theirs("--json", "nodes", *known))] == ["up"]
        (tmp_path / "x.py").write_text("pass")
        job = launched(cluster, tmp_path / "may-end")
        assert [one["job_id"] for one in json_of(theirs("--json", "jobs", *known))] == [job.id]
        assert "line 1" in theirs("logs", job.id, *known).stdout
        for words in (("launch", str(tmp_path / "x.py")), ("stop", job.id), ("kill", job.id)):
            refused = theirs("--json", *words, *known)
            assert refused.returncode == RefusedError.exit_code, (words, refused.stdout)
            assert json.loads(refused.stderr)["kind"] == Kind.NOT_ALLOWED, words
        (tmp_path / "may-end").touch()
        assert job.wait(PATIENCE_S).state == "succeeded"
        assert cluster.membership.revoke("kim", role="driver").role == "viewer"


def launched(cluster: Cluster, may_end: Path) -> Job:
    """A job that runs until that file is there."""
    script = "import os, time; print('line 1', flush=True)\n"
    script += f"while not os.path.exists({str(may_end)!r}): time.sleep(0.1)"
    spec = JobSpec(
        entry=("s.py",), files={"s.py": script}, participants=cluster.participants(["n0:1"])
    )
    job = cluster.launch(spec)
    until(lambda: any("line 1" in line.text for line in job.logs()), "it to speak")
    return job


WATCH = """
import sys, time
from jupyter_mntrain.cluster import Cluster, Job
with Cluster("home", addresses=[sys.argv[1]]) as cluster:
    end = time.monotonic() + 20
    while cluster.nodes()[0].liveness != "up" and time.monotonic() < end:
        time.sleep(0.05)
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
        with pytest.raises(TrustError, match=wording(r"other users can read .*0640.*chmod 600")):
            cluster.membership.invite()
        with pytest.raises(TrustError, match=wording("other users can read")):
            cluster.discovery.add("127.0.0.1:9")
    (clusters_directory() / "home" / "own.pem").chmod(0o600)
    (clusters_directory() / "home" / "authority.key").chmod(0o604)
    with Cluster("home") as cluster, pytest.raises(TrustError, match=r"authority\.key"):
        cluster.membership.invite()


def test_who_knows_no_cluster_is_told_to_invite() -> None:
    with Cluster("home") as cluster, pytest.raises(TrustError, match=wording("mntrain invite")):
        cluster.discovery.add("127.0.0.1:9")
