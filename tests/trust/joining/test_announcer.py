"""Announcer, received over real multicast on this machine's loopback."""

from __future__ import annotations

import asyncio
import logging

import pytest
from zeroconf import IPVersion, ServiceStateChange
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from jupyter_mntrain.agent.membership.state import AddressSettings
from jupyter_mntrain.agent.membership.state_directory import NODE_NAME_LIMIT
from jupyter_mntrain.model.api import SERVICE_TYPE, ServiceRecord
from jupyter_mntrain.model.ids import new_node_id
from jupyter_mntrain.model.records.node import Interface
from jupyter_mntrain.trust.joining.announcer import Announcer, service_info

DEADLINE_S = 60.0


def interface(name, kind="ethernet", *, is_up=True, addresses=("10.0.0.1/24",)):
    return Interface(name=name, kind=kind, is_up=is_up, addresses=addresses)


def test_it_announces_on_every_real_network_that_is_up():
    interfaces = [
        interface("eth0"),
        interface("eth1", addresses=("10.1.0.1/24", "10.2.0.1/16")),
        interface("wlan0", "wireless", addresses=("10.3.0.1/24",)),
        interface("docker0", "virtual", addresses=("172.17.0.1/16",)),
        interface("eth2", is_up=False, addresses=("10.4.0.1/24",)),
        interface("eth3", addresses=()),
        interface("lo", "loopback", addresses=("127.0.0.1/8",)),
    ]
    everywhere = ("10.0.0.1", "10.1.0.1", "10.2.0.1", "10.3.0.1")

    def sources(*listen: str) -> tuple[str, ...]:
        return AddressSettings(listen=listen, advertised=(), port=1).announced_from(interfaces)

    assert sources() == everywhere
    assert sources("10.0.0.1") == everywhere
    assert sources("10.0.0.1", "127.0.0.1") == everywhere
    assert sources("127.0.0.2") == ("127.0.0.1",)


def record(name="node1") -> ServiceRecord:
    return ServiceRecord(
        node_id=new_node_id(), name=name, cluster="lab", protocol=1, instance="0123456789abcdef"
    )


def test_the_longest_name_fits_into_the_announcement():
    longest = record("n" * NODE_NAME_LIMIT)
    info = service_info(longest, ("10.0.0.1:8765",))
    assert len(info.name.removesuffix(f".{SERVICE_TYPE}")) == 63
    assert service_info(record("a.b"), ("10.0.0.1:1",)).name.startswith("a-b-")


@pytest.mark.anyio
async def test_it_is_found_with_all_its_addresses_and_says_goodbye():
    said, heard = record(), asyncio.Queue()
    announcer = Announcer()
    addresses = ("127.0.0.7:4321", "127.0.0.8:4321", "a-name:4321")
    ours = service_info(said, addresses).name
    zeroconf = AsyncZeroconf(interfaces=["127.0.0.1"])

    def on_change(zeroconf, service_type, name, state_change):
        if name == ours:
            heard.put_nowait(state_change)

    browser = AsyncServiceBrowser(zeroconf.zeroconf, SERVICE_TYPE, handlers=[on_change])
    try:
        await announcer.announce(said, addresses, ("127.0.0.1",))
        assert await asyncio.wait_for(heard.get(), DEADLINE_S) is ServiceStateChange.Added
        info = AsyncServiceInfo(SERVICE_TYPE, ours)
        assert await info.async_request(zeroconf.zeroconf, DEADLINE_S * 1000)
        assert set(info.parsed_addresses(IPVersion.V4Only)) == {"127.0.0.7", "127.0.0.8"}
        assert info.port == 4321
        assert info.decoded_properties == {
            "node_id": said.node_id,
            "name": "node1",
            "cluster": "lab",
            "protocol": "1",
            "instance": "0123456789abcdef",
        }
        await announcer.close()
        while await asyncio.wait_for(heard.get(), DEADLINE_S) is not ServiceStateChange.Removed:
            pass
    finally:
        await announcer.close()
        await browser.async_cancel()
        await zeroconf.async_close()


# zeroconf itself leaves the socket behind that it could not use.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.anyio
async def test_a_network_that_cannot_be_announced_on_is_told_once_and_survived(caplog):
    announcer, said = Announcer(), record()
    with caplog.at_level(logging.WARNING, "mntrain.agent"):
        for _ in range(2):
            await announcer.announce(
                said, ("127.0.0.1:1",), ("192.0.2.77",)
            )  # documentation's own: on no interface
        for _ in range(2):
            await announcer.announce(said, ("127.0.0.1:1",), ())
    assert [message.split(" (")[0] for message in caplog.messages] == [
        "not announced",
        "no network interface to announce on; add this node by its address",
    ]
