"""Node routes: what an agent reports about its node and its links, and its stream."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.model.api import (
    Goodbye,
    Hello,
    StreamMessage,
    stream_decoder,
)
from jupyter_mntrain.model.records.node import Heartbeat, NodeInfo
from tests.agent.live import LiveAgent, free_port

pytestmark = pytest.mark.agents


def test_it_says_what_it_is_without_torch(agent):
    info = agent.info()
    assert (info.name, info.cluster, info.revocations) == ("node1", "test", 1)
    assert info.certificate_expires_s > time.time()
    assert info.addresses == (f"{agent.address}:{agent.port}",)
    assert info.inventory.versions.torch is not None
    lo = next(i for i in info.inventory.interfaces if i.name == "lo")
    assert (lo.given.bytes_per_s, lo.given.source) == (1e9, "given")
    assert "libtorch" not in Path(f"/proc/{agent.process.pid}/maps").read_text()
    assert "loopback only" in agent.log()


def test_the_stream_says_hello_and_then_beats(agent):
    with agent.stream() as stream:
        lines = stream.iter_lines()
        hello = stream_decoder.decode(next(lines))
        heartbeat = stream_decoder.decode(next(lines))
    assert isinstance(hello, Hello)
    assert hello.node.name == "node1"
    assert isinstance(heartbeat, Heartbeat)
    assert "lo" in {rate.name for rate in heartbeat.interfaces}


@dataclass
class Returned:
    """An agent that measured a link, ended in order while it was listened to, and began again."""

    agent: LiveAgent
    before: NodeInfo
    measured: dict[str, Any]
    last: StreamMessage
    exit_code: int
    after: NodeInfo


def measure(one: LiveAgent, two: LiveAgent, **changes: str) -> dict[str, Any]:
    ticket = two.send("POST", "/v1/probe/listen", {"address": two.address}).json()
    request = {
        "interface": "lo",
        "source_address": one.address,
        "address": two.address,
        "peer": two.name,
        "seconds": 0.1,
        **ticket,
    }
    return one.send("POST", "/v1/probe/send", request | changes).json()


@pytest.fixture(scope="module")
def returned(agent, tmp_path_factory) -> Iterator[Returned]:
    address = agent.address.rpartition(".")[0] + ".2"
    one = LiveAgent("node2", address, free_port(address), tmp_path_factory.mktemp("node2"))
    try:
        before = one.start(environment={"MNTRAIN_LINKS_WARM_UP_S": "0.05"}).info()
        measured = measure(one, agent)
        with one.stream() as stream:
            lines = stream.iter_lines()
            next(lines)
            one.process.terminate()
            *_, last = lines
        code = one.process.wait(20)
        yield Returned(one, before, measured, stream_decoder.decode(last), code, one.start().info())
    finally:
        one.end()


def test_the_node_id_is_private_and_stays(returned):
    assert (returned.agent.state / "node_id").stat().st_mode & 0o777 == 0o600
    assert returned.after.node_id == returned.before.node_id


def test_an_agent_that_ends_in_order_says_goodbye_to_its_listeners(returned):
    assert isinstance(returned.last, Goodbye)
    assert returned.exit_code == 0


def test_a_link_is_measured_between_two_agents_and_its_capacity_kept(returned, agent):
    measured = returned.measured
    assert measured["capacity"]["bytes_per_s"] > 1e7
    assert measured["capacity"]["condition"] in ("alone", "short of CPU")
    lo = next(i for i in returned.after.inventory.interfaces if i.name == "lo")
    assert msgspec.json.decode(msgspec.json.encode(lo.links)) == [measured]
    nowhere = measure(returned.agent, agent, interface="eth99")
    assert nowhere["kind"] == "bad-request"
    assert "eth99" in nowhere["cause"]
