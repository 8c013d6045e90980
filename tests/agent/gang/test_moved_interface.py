"""Another attempt on a machine whose network interfaces have other names."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_mntrain.agent.gang.moved_gpus import as_it_is_now, interface_now, source_toward
from jupyter_mntrain.model.api import LeaseRequest
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.node import Interface, InterfaceKind
from jupyter_mntrain.model.sources.slots import SLOT_FILE

BEFORE = "10.0.0.4"


def interface(
    name: str, *addresses: str, kind: InterfaceKind = "ethernet", is_up: bool = True
) -> Interface:
    return Interface(name=name, kind=kind, is_up=is_up, addresses=addresses)


LO = interface("lo", "127.0.0.1/8", kind="loopback")
NEAR = interface("ens3", "10.0.0.9/24")
FAR = interface("eth0", "192.168.7.2/24")


@pytest.mark.parametrize(
    ("there", "now"),
    [
        pytest.param([FAR, interface("eth0", "10.0.0.4/24")], "eth0", id="the same is there"),
        pytest.param([LO, FAR, NEAR], "ens3", id="its name is that of another network"),
        pytest.param([interface("eth0", is_up=False), NEAR], "ens3", id="it is down"),
        pytest.param([interface("eth0"), NEAR], "ens3", id="it has no address"),
        pytest.param(
            [interface("br0", "10.0.0.8/24", kind="virtual"), NEAR], "ens3", id="cards first"
        ),
        pytest.param(
            [interface("docker0", "10.0.0.1/16", kind="virtual"), FAR], "eth0", id="no bridge"
        ),
        pytest.param(
            [interface("ens1", "10.0.3.3/16"), NEAR], "ens3", id="the smaller network is nearer"
        ),
        pytest.param([LO, FAR], "eth0", id="it is routed, as asked for"),
        pytest.param([LO, interface("ens4", "172.16.0.2/24")], "ens4", id="another one is routed"),
        pytest.param([LO], "eth0", id="there is none: the node says so"),
    ],
)
def test_the_one_that_reaches_the_network_stands_in(there: list[Interface], now: str) -> None:
    assert interface_now("eth0", BEFORE, there, lambda _: "172.16.0.2") == now


@pytest.mark.parametrize(
    ("asked", "before"), [("lo", "127.0.0.1"), (None, BEFORE), ("eth0", None), ("eth0", "::1")]
)
def test_what_is_no_card_or_has_no_address_stays(asked: str | None, before: str | None) -> None:
    assert interface_now(asked, before, [LO, NEAR], lambda _: None) == asked


def test_the_kernel_says_from_where_it_sends() -> None:
    assert source_toward("127.0.0.1") == "127.0.0.1"


def test_only_nodes_of_an_allocation_choose_another(tmp_path: Path) -> None:
    there = SimpleNamespace(interfaces=(LO, NEAR))
    node: Any = SimpleNamespace(
        state=SimpleNamespace(path=tmp_path), inventory=SimpleNamespace(read=lambda: there)
    )
    asked = LeaseRequest(JobId("j-00000001"), 2, 1, interface="eth0", address=BEFORE)
    assert as_it_is_now(node, asked).interface == "eth0"
    (tmp_path / SLOT_FILE).touch()
    assert as_it_is_now(node, asked).interface == "ens3"
