"""Interface choice: the chosen network, and every reason why there is none."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.node import Capacity, NodeInfo
from jupyter_mntrain.plan.interfaces import choose_interfaces, faster_than
from tests.standin.nodes import docker0, measured, nic, node
from tests.wording import says


def chosen(*nodes: NodeInfo, wanted: tuple[str | None, ...] | None = None) -> list[str]:
    found = choose_interfaces(nodes, wanted or (None,) * len(nodes))
    return [interface.name for interface in found]


def refusal(*nodes: NodeInfo, wanted: tuple[str | None, ...] | None = None) -> str:
    with pytest.raises(SpecError) as caught:
        chosen(*nodes, wanted=wanted)
    assert "\n" not in str(caught.value)
    assert caught.value.fix
    return str(caught.value)


def lab(name: str, last: int, **data: object) -> NodeInfo:
    """Two NICs and the decoy, as in the simulated cluster."""
    return node(
        name,
        nic("eth0", f"10.77.1.{last}/24", speed_mbit_per_s=10000),
        nic("eth1", f"10.77.2.{last}/24", **({"speed_mbit_per_s": 10000} | data)),
        docker0(),
        boot_id="all namespaces share it",
    )


def test_of_two_networks_the_measured_faster_one() -> None:
    slow, fast = measured(95), measured(950)
    nodes = [
        node(
            name,
            nic("eth0", f"10.77.1.{last}/24", speed_mbit_per_s=10000, links=slow),
            nic("eth1", f"10.77.2.{last}/24", speed_mbit_per_s=10000, links=fast),
            docker0(),
        )
        for name, last in (("a", 1), ("b", 2), ("c", 3))
    ]
    assert chosen(*nodes) == ["eth1", "eth1", "eth1"]


def test_a_network_is_as_fast_as_its_slower_direction() -> None:
    nodes = [
        node(
            name,
            nic("eth0", f"10.0.0.{last}/24", links=measured(500)),
            nic("eth1", f"10.0.1.{last}/24", links=measured(back)),
        )
        for name, last, back in (("a", 1, 1000), ("b", 2, 20))
    ]
    assert chosen(*nodes) == ["eth0", "eth0"]


def test_only_measurements_to_other_participants_count() -> None:
    nodes = [
        node(
            name,
            nic("eth0", f"10.0.0.{last}/24", links=measured(500)),
            nic(
                "eth1",
                f"10.0.1.{last}/24",
                links=measured(1000, "a", "b") + measured(20, "far"),
            ),
        )
        for name, last in (("a", 1), ("b", 2))
    ]
    assert chosen(*nodes) == ["eth1", "eth1"]


def test_what_was_measured_beats_what_a_card_says_of_itself() -> None:
    assert chosen(lab("a", 1, links=measured(900)), lab("b", 2, links=measured(900))) == [
        "eth1",
        "eth1",
    ]


def test_what_the_user_gave_counts_as_measured_and_nominal_does_not() -> None:
    given = Capacity(bytes_per_s=1e8, source="given")
    nodes = [
        node(
            name,
            nic("eth0", f"10.0.0.{last}/24", given=given),
            nic("eth1", f"10.0.1.{last}/24", speed_mbit_per_s=10_000),
        )
        for name, last in (("a", 1), ("b", 2))
    ]
    assert chosen(*nodes) == ["eth0", "eth0"]


def test_a_network_measured_on_one_side_only_is_not_measured() -> None:
    one = node(
        "a",
        nic("eth0", "10.0.0.1/24", links=measured(900), speed_mbit_per_s=1000),
        nic("eth1", "10.0.1.1/24", speed_mbit_per_s=2500),
    )
    other = node(
        "b",
        nic("eth0", "10.0.0.2/24", speed_mbit_per_s=1000),
        nic("eth1", "10.0.1.2/24", speed_mbit_per_s=2500),
    )
    assert chosen(one, other) == ["eth1", "eth1"]


def test_without_measurements_the_nominal_speed_of_the_slowest_decides() -> None:
    one = node(
        "a",
        nic("eth0", "10.0.0.1/24", speed_mbit_per_s=1000),
        nic("eth1", "10.0.1.1/24", speed_mbit_per_s=10000),
    )
    other = node(
        "b",
        nic("eth0", "10.0.0.2/24", speed_mbit_per_s=1000),
        nic("eth1", "10.0.1.2/24", speed_mbit_per_s=100),
    )
    assert chosen(one, other) == ["eth0", "eth0"]


def test_wired_before_wireless_until_the_measurement_says_otherwise() -> None:
    def laptop(name: str, last: int, *, is_measured: bool) -> NodeInfo:
        return node(
            name,
            nic("eth0", f"10.0.0.{last}/24", speed_mbit_per_s=1000),
            nic(
                "wlan0",
                f"10.0.1.{last}/24",
                kind="wireless",
                speed_mbit_per_s=2400,
                links=measured(1500) if is_measured else (),
            ),
        )

    assert chosen(laptop("a", 1, is_measured=False), laptop("b", 2, is_measured=False)) == [
        "eth0",
        "eth0",
    ]
    assert chosen(laptop("a", 1, is_measured=True), laptop("b", 2, is_measured=True)) == [
        "wlan0",
        "wlan0",
    ]


def test_each_participant_gets_its_own_name_on_the_shared_subnet() -> None:
    one = node("a", nic("eno1", "192.168.1.5/24"), nic("enp3s0", "10.0.0.5/24"))
    other = node("b", nic("enp9s0f0", "10.0.0.9/24"), nic("wlan0", "172.16.0.2/24"))
    assert chosen(one, other) == ["enp3s0", "enp9s0f0"]


def test_two_cards_on_one_subnet_the_faster_one() -> None:
    one = node(
        "a",
        nic("eth0", "10.0.0.1/24", speed_mbit_per_s=100),
        nic("eth1", "10.0.0.11/24", speed_mbit_per_s=1000),
    )
    assert chosen(one, node("b", nic("eth0", "10.0.0.2/24"))) == ["eth1", "eth0"]


def test_an_interface_that_is_down_is_no_candidate() -> None:
    nodes = [
        node(
            name,
            nic("eth0", f"10.0.0.{last}/24", speed_mbit_per_s=100),
            nic("eth1", f"10.0.1.{last}/24", speed_mbit_per_s=10000, is_up=last == 1),
        )
        for name, last in (("a", 1), ("b", 2))
    ]
    assert chosen(*nodes) == ["eth0", "eth0"]


def test_self_given_addresses_only_if_there_is_nothing_else() -> None:
    def box(name: str, last: int, *more: object) -> NodeInfo:
        return node(
            name,
            nic("eth1", f"169.254.3.{last}/16", speed_mbit_per_s=10000),
            *more,  # type: ignore[arg-type]
        )

    assert chosen(box("a", 1), box("b", 2)) == ["eth1", "eth1"]
    assert chosen(
        box("a", 1, nic("eth0", "10.0.0.1/24", speed_mbit_per_s=100)),
        box("b", 2, nic("eth0", "10.0.0.2/24", speed_mbit_per_s=100)),
    ) == ["eth0", "eth0"]


def test_the_choice_does_not_depend_on_the_order_interfaces_are_listed_in() -> None:
    def reordered(info: NodeInfo) -> NodeInfo:
        turned = info.inventory.interfaces[::-1]
        inventory = msgspec.structs.replace(info.inventory, interfaces=turned)
        return msgspec.structs.replace(info, inventory=inventory)

    nodes = [lab("a", 1), lab("b", 2)]
    assert chosen(*nodes) == chosen(*map(reordered, nodes)) == ["eth0", "eth0"]


def test_no_shared_subnet_says_who_has_what() -> None:
    text = refusal(node("a", nic("eth0", "10.0.0.1/24")), node("b", nic("eth0", "10.0.1.1/24")))
    assert "a has eth0 10.0.0.1/24" in text
    assert "b has eth0 10.0.1.1/24" in text


def test_the_decoy_alone_is_no_network_even_if_it_looks_real() -> None:
    assert says("no network is shared", refusal(node("a", docker0()), node("b", docker0())))
    real = [nic("docker0", "172.17.0.1/16", mac=mac) for mac in ("02:01", "02:02")]
    text = refusal(node("a", real[0]), node("b", real[1]))
    assert says("a, b all have the address 172.17.0.1", text)


def test_a_single_participant_needs_no_network() -> None:
    assert chosen(node("a", nic("eth0", "10.0.0.1/24", is_up=False))) == ["lo"]
    assert chosen(node("a", nic("eth0", "10.0.0.1/24")), wanted=("eth0",)) == ["eth0"]


def loopback_node(name: str, address: str, **fields: object) -> NodeInfo:
    eth0 = nic("eth0", "192.0.2.2/24")
    return node(name, eth0, agent=f"{address}:8765", **({"boot_id": "one"} | fields))  # type: ignore[arg-type]


def test_agents_on_loopback_addresses_of_one_machine_use_loopback() -> None:
    assert chosen(loopback_node("a", "127.0.0.2"), loopback_node("b", "127.0.0.3")) == ["lo", "lo"]
    assert chosen(
        loopback_node("a", "127.0.0.2"), loopback_node("b", "127.0.0.3"), wanted=("lo", "lo")
    ) == ["lo", "lo"]


@pytest.mark.parametrize("boots", [("one", "two"), ("", "")])
def test_loopback_never_reaches_another_machine(boots: tuple[str, str]) -> None:
    nodes = [
        loopback_node("a", "127.0.0.2", boot_id=boots[0]),
        loopback_node("b", "127.0.0.2", boot_id=boots[1]),
    ]
    assert says("192.0.2.2", refusal(*nodes))
    assert says("is not connected to other machines", refusal(*nodes, wanted=("lo", "lo")))


def test_namespaces_share_a_boot_id_but_are_machines_of_their_own() -> None:
    nodes = [lab("a", 1, links=measured(900)), lab("b", 2, links=measured(900))]
    assert chosen(*nodes) == ["eth1", "eth1"]


def test_two_agents_on_one_machine_with_real_addresses_share_its_card() -> None:
    eth0 = nic("eth0", "10.0.0.1/24")
    nodes = [node("a", eth0, boot_id="one"), node("b", eth0, boot_id="one")]
    assert chosen(*nodes) == ["eth0", "eth0"]


@pytest.mark.wording
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("eth9", "b: has no interface 'eth9'"),
        ("eth1", "b: interface 'eth1' is down"),
        ("eth2", "b: interface 'eth2' has no IPv4 address"),
    ],
)
def test_a_named_interface_must_be_there_up_and_have_an_address(name: str, problem: str) -> None:
    bad = node(
        "b", nic("eth0", "10.0.0.2/24"), nic("eth1", "10.0.1.2/24", is_up=False), nic("eth2")
    )
    text = refusal(node("a", nic("eth0", "10.0.0.1/24")), bad, wanted=("eth0", name))
    assert text == f"{problem}. Fix: use one of eth0, lo."


def test_named_interfaces_are_taken_as_they_are_even_routed_or_virtual() -> None:
    one = node("a", nic("eth0", "10.0.0.1/24"), nic("br0", "10.1.0.1/24", kind="virtual"))
    other = node("b", nic("eth0", "10.0.0.2/24"), nic("eth1", "10.2.0.1/24"))
    assert chosen(one, other, wanted=("br0", "eth1")) == ["br0", "eth1"]


def test_named_interfaces_that_cannot_reach_each_other_are_refused() -> None:
    text = refusal(node("a", docker0()), node("b", docker0()), wanted=("docker0", "docker0"))
    assert "172.17.0.1" in text


def test_one_named_interface_decides_for_the_others() -> None:
    nodes = [lab("a", 1, links=measured(900)), lab("b", 2, links=measured(900))]
    assert chosen(*nodes, wanted=("eth0", None)) == ["eth0", "eth0"]
    text = refusal(*nodes, wanted=("docker0", None))
    assert "no network is shared" in text or "172.17.0.1" in text


def test_a_named_network_that_is_much_slower_than_another_is_told() -> None:
    nodes = [
        node(
            name,
            nic("eth0", f"10.77.1.{last}/24", links=measured(95)),
            nic("eth1", f"10.77.2.{last}/24", links=measured(950)),
            docker0(),
        )
        for name, last in (("a", 1), ("b", 2))
    ]
    found = faster_than(nodes, ["eth0", "eth0"])
    assert found is not None
    assert (found.named, found.better) == ("eth0", "eth1")
    assert found.better_bytes_per_s == pytest.approx(10 * found.named_bytes_per_s)
    assert faster_than(nodes, ["eth1", "eth1"]) is None
    unknown = [lab("a", 1, speed_mbit_per_s=None), lab("b", 2, speed_mbit_per_s=None)]
    assert faster_than(unknown, ["eth1", "eth1"]) is None, "what it carries is not known"
