"""Agent addresses: ``host[:port]`` in one spelling."""

from __future__ import annotations

import pytest

from jupyter_mntrain.cluster.agents.address import host_of, parse_address
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
