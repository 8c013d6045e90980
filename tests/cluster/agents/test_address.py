"""Agent addresses: ``host[:port]`` in one spelling."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from jupyter_mntrain.cluster.agents.address import (
    host_of,
    own_networks,
    parse_address,
    refuse_elsewhere,
)
from jupyter_mntrain.model.errors import SpecError
from tests.wording import wording


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.5", "10.0.0.5:8765"),
        ("10.0.0.5:9000", "10.0.0.5:9000"),
        (" node2 ", "node2:8765"),
        ("Node2.Local:1", "node2.local:1"),
        ("[::1]", "[::1]:8765"),
        ("[fd00::2]:99", "[fd00::2]:99"),
    ],
)
def test_addresses(text: str, address: str) -> None:
    assert parse_address(text) == address
    assert parse_address(address) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":80",
        "a:b",
        "a:70000",
        "a:0",
        "http://a",
        "a/b",
        "u@a",
        "a b",
        "a:1:2",
        "[::1",
        "a\0b:1",
        "a" * 64,
        "a." * 200,
        "é" * 70,
    ],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(SpecError, match=wording("HOST:PORT")):
        parse_address(text)


def test_hosts() -> None:
    assert host_of("[::1]:5") == "::1"
    assert host_of("node2:5") == "node2"


OWN = (ip_network("203.0.113.0/24"), ip_network("169.254.7.0/24"))


@pytest.mark.parametrize(
    "text",
    [
        *("10.0.0.5", "192.168.1.9:9000", "127.0.0.1:8765", "[fd00::2]", "[::1]:8765"),
        *("100.101.1.2", "203.0.113.9", "169.254.7.2", "no-such-host.invalid", "localhost"),
    ],
)
def test_where_a_node_may_be(text: str) -> None:
    refuse_elsewhere(text, OWN)


@pytest.mark.parametrize(
    "text",
    [
        *("10.0.0.5:22", "127.0.0.1:1", "8.8.8.8", "169.254.169.254:8765", "0.0.0.0:8765"),
        *("224.0.0.1", "255.255.255.255", "[2001:db8::1]:9000", "[::ffff:8.8.8.8]:9000"),
        *("[fe80::1]", "2130706434:80"),
    ],
)
def test_where_no_node_is(text: str) -> None:
    with pytest.raises(SpecError) as caught:
        refuse_elsewhere(text, OWN)
    assert caught.value.fix


def test_the_networks_of_this_machine() -> None:
    assert ip_network("127.0.0.0/8") in own_networks()
