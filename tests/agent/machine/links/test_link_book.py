from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.agent.machine.links.link_book import LinkBook
from jupyter_mntrain.model.records.node import Capacity, Condition, Interface, LinkMeasurement
from jupyter_mntrain.plan.networks.outdated import link_end
from tests.wording import says


def link(
    receiver: str, bytes_per_s: float, condition: Condition = "alone", interface: str = "eth1"
) -> LinkMeasurement:
    return LinkMeasurement(
        sender="node1",
        receiver=receiver,
        interface=interface,
        address="10.0.0.9",
        capacity=Capacity(
            bytes_per_s=bytes_per_s, source="measured", time_s=5.0, condition=condition
        ),
    )


def test_each_receiver_and_interface_is_kept_apart_and_survives_a_restart(tmp_path):
    path = tmp_path / "links.json"
    links = [link("node2", 1e8), link("node3", 2e7), link("node2", 1e6, interface="eth0")]
    for one in links:
        LinkBook(path, {}).keep(one)
    book = LinkBook(path, {})
    assert book.measured("eth1") == tuple(links[:2])
    assert book.measured("eth0") == (links[2],)
    book.keep(link("node2", 9e7))
    assert book.measured("eth1")[0].capacity.bytes_per_s == 9e7, "the newest, alone as before"


@pytest.mark.parametrize("condition", ["short of CPU", "beside a job"])
def test_a_disturbed_measurement_is_a_lower_bound(tmp_path, condition):
    book = LinkBook(tmp_path / "links.json", {})

    def kept(bytes_per_s: float, how: Condition) -> tuple[float, Condition | None]:
        book.keep(link("node2", bytes_per_s, how))
        capacity = book.measured("eth1")[0].capacity
        return capacity.bytes_per_s, capacity.condition

    assert kept(58.0, condition) == (58.0, condition), "better than nothing"
    assert kept(40.0, condition) == (40.0, condition)
    assert kept(95.0, "alone") == (95.0, "alone")
    assert kept(58.0, condition) == (95.0, "alone"), "no reason to believe that it is slower now"
    assert kept(96.0, condition) == (96.0, condition), "it carries this much for certain"


def test_what_the_user_gives_is_attached_beside_what_was_measured(tmp_path):
    given = Capacity(bytes_per_s=2e8, source="given")
    book = LinkBook(tmp_path / "links.json", {"eth1": given})
    book.keep(link("node2", 1e8))
    eth0, eth1 = book.attach(
        [Interface(name=name, kind="ethernet", is_up=True) for name in ("eth0", "eth1")]
    )
    assert (eth0.given, eth0.links) == (None, ())
    assert (eth1.given, eth1.links) == (given, (link("node2", 1e8),))


def test_what_was_measured_before_a_card_changed_is_marked_and_not_used(tmp_path):
    book = LinkBook(tmp_path / "links.json", {})
    before = Interface(name="eth1", kind="ethernet", is_up=True, mtu=1500, came_up=1)
    after = msgspec.structs.replace(before, came_up=2)
    many = msgspec.structs.replace(link("node2", 2e8), streams=4)
    for one in (link("node2", 1e8), many):
        book.keep(msgspec.structs.replace(one, ends=(link_end(before), None)))
    assert [one.streams for one in book.attach([before])[0].links] == [1, 4]
    assert [one.streams for one in book.measured("eth1")] == [1]
    [now] = book.attach([after])
    assert all(says("was down", one.outdated) for one in now.links)
    assert book.measured("eth1") == ()
    lower = msgspec.structs.replace(
        link("node2", 1e7, "beside a job"), ends=(link_end(after), None)
    )
    book.keep(lower)
    assert book.measured("eth1") == (lower,), "the higher one says nothing any more"


@pytest.mark.parametrize("content", ["", "[{", '[{"interface": "eth1"}]'])
def test_a_file_that_cannot_be_read_counts_as_not_measured(tmp_path, content, caplog):
    path = tmp_path / "links.json"
    path.write_text(content)
    book = LinkBook(path, {})
    assert str(path) in caplog.text
    book.keep(link("node2", 1e8))
    assert LinkBook(path, {}).measured("eth1") == (link("node2", 1e8),)
