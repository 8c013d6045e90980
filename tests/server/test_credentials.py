"""Nobody without the token learns or does anything."""

from __future__ import annotations

import re

import httpx
import pytest

from jupyter_mntrain.server.app import ROUTES
from tests.server.conftest import FILE, SECRET, Served
from tests.server.live_server import TOKEN

# Each starts Jupyter servers of its own.
pytestmark = pytest.mark.slow

VERBS = ("get", "post", "put", "delete", "patch")
CREDENTIALS = {
    "none": {},
    "wrong header": {"headers": {"Authorization": f"token not-{TOKEN}"}},
    "wrong query": {"params": {"token": f"not-{TOKEN}"}},
}


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
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"} if "events" in path else {}
        upgrade |= {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "a2V5"} if upgrade else {}
        more = dict(CREDENTIALS[how])
        more["headers"] = {**upgrade, **more.get("headers", {})}  # type: ignore[dict-item]
        answer = httpx.request(verb, url, timeout=20, **more)  # type: ignore[arg-type]
        where = (verb, path, how, answer.text)
        assert answer.status_code == 403, where
        assert job_id not in answer.text, where
        assert SECRET not in answer.text, where
        assert FILE not in answer.text, where
        problem = answer.json()
        assert {"code", "message"} <= set(problem) <= {"code", "message", "hint"}, where
        assert problem["code"] == "forbidden", where
    asked = sum(len(agent.requests) for agent in served.agents) - sum(before)
    assert asked <= len(served.agents), "at most the journals of the new job were asked for"
    print(f"{len(pairs())} pairs of route and credential refused")


def test_all_routes_are_covered() -> None:
    assert len({path for _, path, _ in pairs()}) == len(ROUTES)
    assert len(pairs()) >= 3 * 16


@pytest.mark.parametrize("how", [{"headers": {"Authorization": f"token {TOKEN}"}}])
def test_the_right_one_is_let_in(served: Served, how: dict[str, dict[str, str]]) -> None:
    assert httpx.get(served.server.url("/status"), **how).status_code == 200  # type: ignore[arg-type]
