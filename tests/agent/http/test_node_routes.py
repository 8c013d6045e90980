"""What an agent says about its node and its links, and its stream."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from jupyter_mntrain.model.api import (
    Goodbye,
    Hello,
    stream_decoder,
)
from jupyter_mntrain.model.records.node import Beat


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


def test_the_node_id_is_private_and_stays(new_agent):
    agent = new_agent()
    path = agent.state / "node_id"
    assert path.stat().st_mode & 0o777 == 0o600
    before = agent.info().node_id
    agent.process.terminate()
    agent.process.wait(20)
    assert agent.start().info().node_id == before


def test_the_stream_says_hello_and_then_beats(agent):
    with agent.stream() as stream:
        lines = stream.iter_lines()
        hello = stream_decoder.decode(next(lines))
        beat = stream_decoder.decode(next(lines))
    assert isinstance(hello, Hello)
    assert hello.node.name == "node1"
    assert isinstance(beat, Beat)
    assert "lo" in {rate.name for rate in beat.interfaces}


def test_an_agent_that_ends_in_order_says_goodbye_to_its_listeners(new_agent):
    agent = new_agent()
    with agent.stream() as stream:
        lines = stream.iter_lines()
        next(lines)
        agent.process.terminate()
        *_, last = lines
    assert isinstance(stream_decoder.decode(last), Goodbye)
    assert agent.process.wait(20) == 0


def test_a_link_is_measured_between_two_agents_and_its_capacity_kept(new_agent):
    one, two = new_agent(), new_agent()
    ticket = two.send("POST", "/v1/probe/listen", {"address": two.address}).json()
    request = {
        "interface": "lo",
        "source_address": one.address,
        "address": two.address,
        "peer": "node2",
        "seconds": 0.2,
        **ticket,
    }
    measured = one.send("POST", "/v1/probe/send", request).json()
    assert measured["capacity"]["bytes_per_s"] > 1e7
    assert measured["capacity"]["condition"] in ("alone", "starved of CPU")
    one.process.terminate()
    one.process.wait(20)
    lo = next(i for i in one.start().info().inventory.interfaces if i.name == "lo")
    assert msgspec.to_builtins(lo.links) == (measured,)
    nowhere = one.send("POST", "/v1/probe/send", request | {"interface": "eth99"})
    assert nowhere.json()["kind"] == "bad-request"
    assert "eth99" in nowhere.json()["cause"]
