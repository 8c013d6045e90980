"""Credentials: requests without a token, or that Jupyter's authorizer refuses, get nothing."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from jupyter_mntrain.server.app import ROUTES
from tests.agent.live import free_port
from tests.server.conftest import CLUSTER, FILE, SECRET, Served, served_authority
from tests.server.live_server import TOKEN, LiveServer
from tests.trusted import install_drivers

# Each starts Jupyter servers of its own.
pytestmark = pytest.mark.slow

VERBS = ("get", "post", "put", "delete", "patch")
CREDENTIALS = {
    "none": {},
    "wrong header": {"headers": {"Authorization": f"token not-{TOKEN}"}},
    "wrong query": {"params": {"token": f"not-{TOKEN}"}},
}


AUTHORIZER = """
from jupyter_server.auth import Authorizer

class All_But_Ours(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        return resource != "mntrain"

c.ServerApp.authorizer_class = All_But_Ours
"""


def pairs() -> list[tuple[str, str, str]]:
    """Every verb of every route with every credential that is none."""
    found = []
    for pattern, handler in ROUTES:
        path = re.sub(r"\(\?P<job_id>[^)]*\)", "j-00000001", pattern)
        path = re.sub(r"\(\?P<key>[^)]*\)", "id-of-node1", path).replace(".*", "elsewhere")
        for verb in VERBS:
            own = verb in vars(handler)
            found += [(verb.upper(), path, how) for how in CREDENTIALS if own]
    return found


def test_every_route_refuses_every_wrong_credential(served: Served) -> None:
    job_id = served.add_job()
    before = [len(agent.requests) for agent in served.agents]
    for verb, path, how in pairs():
        url = served.server.url(path.replace("j-00000001", job_id))
        more = dict(CREDENTIALS[how])
        more["headers"] = {**upgrade(path), **more.get("headers", {})}  # type: ignore[dict-item]
        answer = httpx.request(verb, url, timeout=20, **more)  # type: ignore[arg-type]
        where = (verb, path, how, answer.text)
        assert answer.status_code == 403, where
        assert job_id not in answer.text, where
        assert SECRET not in answer.text, where
        assert FILE not in answer.text, where
        problem = answer.json()
        assert {"kind", "cause"} <= set(problem) <= {"kind", "cause", "fix", "node"}, where
        assert problem["kind"] == "not-allowed", where
    # The server itself goes on watching: it reads journals, and a stream may begin again.
    asked = [
        request
        for agent, count in zip(served.agents, before, strict=True)
        for request in agent.requests[count:]
        if request[0] != "GET" or request[1] == "log"
    ]
    assert asked == []
    print(f"{len(pairs())} pairs of route and credential refused")


def test_every_route_refuses_whom_the_authorizer_refuses(served: Served, tmp_path: Path) -> None:
    (tmp_path / ".jupyter").mkdir()
    (tmp_path / ".jupyter" / "jupyter_server_config.py").write_text(AUTHORIZER)
    addresses = " ".join(agent.where for agent in served.agents)
    install_drivers(tmp_path / ".config", of=served_authority())
    server = LiveServer(tmp_path, free_port("127.0.0.1"), CLUSTER, addresses).start()
    try:
        routes = sorted({(verb, path) for verb, path, _ in pairs()})
        for verb, path in routes:
            headers = {"Authorization": f"token {TOKEN}", **upgrade(path)}
            answer = httpx.request(verb, server.url(path), headers=headers, timeout=20)
            assert answer.status_code == 403, (verb, path, answer.text)
            assert answer.json()["kind"] == "not-allowed", (verb, path, answer.text)
        assert "Traceback" not in server.log
    finally:
        server.end()
    print(f"{len(routes)} routes refused")


def upgrade(path: str) -> dict[str, str]:
    """What asks for a WebSocket, where the route is one."""
    if "events" not in path:
        return {}
    asked = {"Connection": "Upgrade", "Upgrade": "websocket"}
    return asked | {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "a2V5"}


def test_all_routes_are_covered() -> None:
    assert len({path for _, path, _ in pairs()}) == len(ROUTES)
    assert len(pairs()) >= 3 * 16


@pytest.mark.parametrize("how", [{"headers": {"Authorization": f"token {TOKEN}"}}])
def test_the_right_one_is_let_in(served: Served, how: dict[str, dict[str, str]]) -> None:
    assert httpx.get(served.server.url("/status"), **how).status_code == 200  # type: ignore[arg-type]
