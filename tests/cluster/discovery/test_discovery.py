"""Discovery: parses untrusted announcements, and browses by real multicast on loopback."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import psutil
import pytest

from jupyter_mntrain import cli
from jupyter_mntrain.cluster.discovery.discovery import (
    FoundAgent,
    MdnsDiscovery,
    StaticDiscovery,
    browsing_addresses,
    read_announcement,
)
from jupyter_mntrain.cluster.handle.discovery import ClusterDiscovery
from jupyter_mntrain.model.api import SERVICE_TYPE
from jupyter_mntrain.trust.driver_membership import DriverMembership
from tests.hostile import HOSTILE, LONG, assert_safe, strings
from tests.sysfs import sysfs
from tests.waiting import coming

__all__ = ["sysfs"]


def announcement(*addresses: str, port: int = 8765, **text: str) -> object:
    from zeroconf import ServiceInfo

    label = f"node-{secrets.token_hex(4)}"
    properties = {"node_id": "ab" * 16, "name": "node", "cluster": "lab", "protocol": "1"} | text
    return ServiceInfo(
        SERVICE_TYPE,
        f"{label}.{SERVICE_TYPE}",
        port=port,
        parsed_addresses=list(addresses),
        properties=properties,
        server=f"{label}.local.",
    )


def read(*addresses: str, **fields: object) -> FoundAgent | None:
    return read_announcement(announcement(*addresses, **fields))  # type: ignore[arg-type]


def test_an_announcement_is_where_who_and_which_cluster() -> None:
    assert read("10.0.0.9", "10.0.0.1", authority="c0ffee", instance="1234") == FoundAgent(
        addresses=("10.0.0.1:8765", "10.0.0.9:8765"),
        cluster="lab",
        node_id="ab" * 16,
        name="node",
        authority="c0ffee",
        instance="1234",
        protocol=1,
    )


def test_the_loopback_of_another_machine_is_not_ours() -> None:
    found = read("127.0.0.1", "10.0.0.1")
    assert found
    assert found.addresses == ("10.0.0.1:8765",)
    only = read("127.0.0.2")
    assert only
    assert only.addresses == ("127.0.0.2:8765",)


@pytest.mark.parametrize("text", [{"protocol": "soon"}, {"protocol": ""}])
def test_what_anyone_may_send_is_no_error(text: dict[str, str]) -> None:
    assert read("10.0.0.1", **text) is None


def test_without_an_address_or_a_port_it_is_of_no_use() -> None:
    assert read() is None
    assert read("10.0.0.1", port=0) is None


def test_we_browse_on_our_own_real_addresses_and_loopback() -> None:
    addresses = browsing_addresses()
    assert "127.0.0.1" in addresses
    own = {a.address for all_of in psutil.net_if_addrs().values() for a in all_of}
    assert own.issuperset(addresses)


@pytest.fixture
def interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("eth0", "eth1", "docker0", "utun3", "br0", "veth12")
    given = {
        name: [SimpleNamespace(family=socket.AF_INET, address=f"172.17.{n}.1")]
        for n, name in enumerate(names)
    }
    states = {name: SimpleNamespace(isup=name != "eth1") for name in names}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: given)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: states)


def test_containers_tunnels_and_interfaces_that_are_down_are_left_out(
    interfaces: None, sysfs: Callable[..., Path]
) -> None:
    """A LAN of 172.17.0.0/16 is one, and a card may be called docker0."""
    sysfs("eth0")
    sysfs("eth1")
    sysfs("docker0", marks=("device",))
    sysfs("utun3", marks=("tun_flags",))
    sysfs("br0", marks=("bridge", "brif/veth12"))
    root = sysfs("veth12", marks=("brport",))
    assert browsing_addresses(root) == ("127.0.0.1", "172.17.0.1", "172.17.2.1")


def test_where_no_kernel_tells_what_is_what_names_must_do(interfaces: None, tmp_path: Path) -> None:
    found = browsing_addresses(tmp_path)
    assert "172.17.0.1" in found
    assert "172.17.3.1" not in found


@pytest.mark.anyio
async def test_static_discovery_finds_what_it_is_told() -> None:
    found: list[FoundAgent] = []
    discovery = StaticDiscovery(["10.0.0.1:1", "10.0.0.2:1"])
    await discovery.start(found.append)
    assert [one.addresses for one in found] == [("10.0.0.1:1",), ("10.0.0.2:1",)]
    await discovery.close()


@pytest.mark.anyio
async def test_closing_without_starting_does_nothing() -> None:
    await MdnsDiscovery().close()


@pytest.mark.slow
@pytest.mark.anyio
async def test_an_announced_agent_is_found_by_multicast(loopback_addresses: Iterator[str]) -> None:
    from zeroconf.asyncio import AsyncZeroconf

    cluster = f"test-{secrets.token_hex(4)}"
    info = announcement(next(loopback_addresses), cluster=cluster)
    before, after = MdnsDiscovery(lambda: ["127.0.0.1"]), MdnsDiscovery(lambda: ["127.0.0.1"])
    heard: dict[str, list[FoundAgent]] = {"before": [], "after": []}
    announcer = AsyncZeroconf(interfaces=["127.0.0.1"])

    def ours(who: str) -> list[FoundAgent]:
        return [one for one in heard[who] if one.cluster == cluster]

    try:
        await before.start(heard["before"].append)
        await (await announcer.async_register_service(info))  # type: ignore[arg-type]
        await coming(lambda: ours("before"))
        await after.start(heard["after"].append)
        await coming(lambda: ours("after"))
        assert ours("after")[0] == read_announcement(info)  # type: ignore[arg-type]
        await (await announcer.async_unregister_service(info))  # type: ignore[arg-type]
        await coming(lambda: any(one.is_gone for one in ours("after")))
    finally:
        await announcer.async_close()
        await before.close()
        await after.close()
    count = len(ours("before"))
    await asyncio.sleep(0)
    assert len(ours("before")) == count


def test_what_anyone_announces_is_safe_and_short() -> None:
    found = read("10.0.0.1", name=HOSTILE, cluster=LONG[:200], joining="\x1b]0;x\x07")
    assert found
    for text in strings(msgspec.to_builtins(found)):
        assert_safe(text)
        assert len(text) < 300
    assert "\\x1b]52" in found.name


@pytest.mark.slow
@pytest.mark.anyio
async def test_nodes_shows_no_announcement_as_it_is(
    capsys: pytest.CaptureFixture[str], loopback_addresses: Iterator[str]
) -> None:
    """Everybody on the network can read the authority's id in announcements, and repeat it."""
    from zeroconf.asyncio import AsyncZeroconf

    authority = DriverMembership.make("mine").credentials.authority_id
    name = "EVIL\x1b]52;c;bm8=\x07\x1b[2J\u202e\x9b"
    member = announcement(next(loopback_addresses), authority=authority, name=name, cluster="mine")
    stranger = announcement(next(loopback_addresses), authority="0" * 16, name=name, cluster=name)
    announcer = AsyncZeroconf(interfaces=["127.0.0.1"])
    try:
        for info in (member, stranger):
            await (await announcer.async_register_service(info))  # type: ignore[arg-type]
        for words in (["nodes"], ["nodes", "--json"]):
            await asyncio.to_thread(cli.main, ["--cluster", "mine", *words])
            captured = capsys.readouterr()
            assert_safe(captured.out + captured.err)
            assert "EVIL\\x1b]52;c;" in captured.out.replace("\\\\", "\\")
    finally:
        await announcer.async_close()


@pytest.mark.wording
def test_nodes_of_another_cluster_of_the_same_name_are_told_as_such() -> None:
    strangers = {
        "a": FoundAgent(("10.0.0.1:8765",), cluster="default", name="vm"),
        "b": FoundAgent(("10.0.0.2:8765",), cluster="lab", name="hal"),
    }
    live = SimpleNamespace(desk=SimpleNamespace(strangers=strangers), cluster="default")
    session = SimpleNamespace(live=live, on_close=lambda _: None)
    found = ClusterDiscovery(session, None).strangers  # type: ignore[arg-type]
    assert found == ("hal of lab", "vm of another cluster called default")
