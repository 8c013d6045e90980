"""Agent hosts: over which interfaces a node can be reached."""

from __future__ import annotations

import pytest

from jupyter_mntrain.model.records.node import Interface, InterfaceKind
from jupyter_mntrain.plan.agent_hosts import listed_interfaces


def interface(name: str, kind: InterfaceKind, *addresses: str, is_up: bool = True) -> Interface:
    return Interface(name=name, kind=kind, is_up=is_up, addresses=addresses)


KNOWN = (
    interface("eno1", "ethernet", "10.0.0.2/24"),
    interface("eno2", "ethernet"),
    interface("eno3", "ethernet", "10.0.1.2/24", is_up=False),
    interface("wlan0", "wireless", "10.0.2.2/24"),
    interface("docker0", "virtual", "172.17.0.1/16"),
    interface("lo", "loopback", "127.0.0.1/8"),
)


@pytest.mark.parametrize(
    ("addresses", "listed"),
    [
        (("10.0.0.2:8765",), ["eno1", "wlan0"]),
        (("127.0.0.2:8765", "10.0.0.2:8765"), ["eno1", "wlan0"]),
        (("127.0.0.2:8765",), ["lo"]),
        (("[::1]:8765", "localhost:8765"), ["lo"]),
        ((), ["eno1", "wlan0"]),
    ],
)
def test_cards_are_listed_and_of_an_agent_on_loopback_only_that(
    addresses: tuple[str, ...], listed: list[str]
) -> None:
    assert [one.name for one in listed_interfaces(KNOWN, addresses)] == listed
