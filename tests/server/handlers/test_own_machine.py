"""The server's own machine becomes a node through the page's routes, by real commands."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jupyter_mntrain.model.failure.kinds import Kind
from tests.agent.live import free_port
from tests.cluster.conftest import wait_for
from tests.server.conftest import Served, refused

# They start Jupyter servers of their own.
pytestmark = pytest.mark.slow

ROUTE = "/own-machine"


def owners(home: Path) -> list[Path]:
    return list(home.glob(".local/state/mntrain/nodes/*/lock.owner"))


def test_it_becomes_a_node_whose_agent_is_a_service(
    served: Served, loopback_addresses: Iterator[str]
) -> None:
    ask = served.server.ask
    assert ask("POST", f"{ROUTE}/service", {}).json()["kind"] == Kind.NOT_TRUSTED
    address = next(loopback_addresses)
    choice = {"name": "own", "listen": [address], "port": free_port(address)}
    answer = ask("POST", f"{ROUTE}/node", choice | {"without_systemd": True})
    try:
        assert answer.status_code == 201, answer.text
        assert answer.json()["name"] == "own"
        wait_for(
            lambda: any(
                node["name"] == "own" and node["view"]["liveness"] == "up"
                for node in served.server.get("/nodes")
            )
        )
    finally:
        for path in owners(served.server.home):
            psutil.Process(int(path.read_text().split()[0])).terminate()
        # Other tests have the server, too.
        for node in served.server.get("/nodes"):
            if node["name"] == "own":
                ask("DELETE", f"/nodes/{node['key']}")


def test_the_package_is_packed_for_kernels_of_other_environments(served: Served) -> None:
    path = Path(served.server.ask("POST", f"{ROUTE}/wheel", {}).json()["path"])
    assert path.is_relative_to(served.server.home)
    assert "jupyter_mntrain/__init__.py" in zipfile.ZipFile(path).namelist()


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("node", {"host": "wopr"}),
        ("node", {"listen": "--state-dir=/x"}),
        ("membership", {"token": "x", "host": "wopr"}),
    ],
)
def test_no_other_machine_can_be_named(served: Served, route: str, body: dict[str, str]) -> None:
    refused(served.server.ask("POST", f"{ROUTE}/{route}", body), 400, Kind.BAD_REQUEST)


@pytest.mark.parametrize("token", ["", "mntrain-x", "two\nlines", "--help"])
def test_what_is_no_token_starts_nothing(served: Served, token: str) -> None:
    before = owners(served.server.home)
    answer = served.server.ask("POST", f"{ROUTE}/membership", {"token": token})
    assert answer.status_code >= 400
    assert answer.json()["fix"]
    assert owners(served.server.home) == before
